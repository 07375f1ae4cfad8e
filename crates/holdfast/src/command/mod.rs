//! What each command does.

mod check;
mod demo;
mod explain;
mod model_server;
mod serve;
mod show;

use std::time::Duration;

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

/// How long what was left to run beside a command's future is waited for: long enough for a file that is being written.
const LEAVE: Duration = Duration::from_millis(200);

/// Runs a future on a runtime for what is not a worker. When it has ended nothing else is waited for: a look-up of a name is a call into the
/// system that nobody can end, and may hang for as long as the name service does.
///
/// # Errors
/// The operating system gives no thread; or what the future fails with.
pub fn run_to_end<T>(threads: usize, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|e| Failure::failed(format!("cannot start: {e}")))?;
    let ended = runtime.block_on(future);
    runtime.shutdown_timeout(LEAVE);
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_call_that_hangs_does_not_hold_a_command_up() {
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let begun = Instant::now();
        let ended = run_to_end(1, async {
            let (tell, entered) = tokio::sync::oneshot::channel();
            drop(tokio::task::spawn_blocking(move || {
                let _ = tell.send(());
                let _ = hangs.recv_timeout(Duration::from_secs(60));
            }));
            entered.await.map_err(|e| Failure::failed(e.to_string()))
        });
        assert!(ended.is_ok() && begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        drop(release);
    }
}
