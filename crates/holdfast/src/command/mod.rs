//! What each command does.

mod check;
mod demo;
mod explain;
mod model_server;
mod serve;
mod show;

use clap::CommandFactory;

use crate::cli::{Cli, Command, PinCommand, ReplicaCommand, TableCommand};
use crate::output;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit code: 1 failed, 2 wrong use or configuration.
    pub code: u8,
    /// For a person.
    pub text: String,
}

impl Failure {
    /// It failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { code: 1, text: text.into() }
    }

    /// It was asked wrongly.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self { code: 2, text: text.into() }
    }
}

/// Runs a command.
///
/// # Errors
/// [`Failure`].
pub fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Schema => {
            let schema = serde_json::to_string_pretty(&holdfast_config::schema());
            output::say(&schema.map_err(|e| Failure::failed(e.to_string()))?);
            Ok(())
        }
        Command::Explain(args) => explain::run(&args),
        Command::Replica { what: ReplicaCommand::List(args) } => show::replicas(&args),
        Command::Table { what: TableCommand::Show(args) } => show::table(&args),
        Command::Pin { what: PinCommand::List(args) } => show::pins(&args),
        Command::Demo(args) => demo::run(&args),
        Command::ModelServer(args) => model_server::run(*args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "holdfast", &mut std::io::stdout());
            Ok(())
        }
    }
}

/// A runtime for what is not a worker.
///
/// # Errors
/// The operating system gives no thread.
pub fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|e| Failure::failed(format!("cannot start: {e}")))
}
