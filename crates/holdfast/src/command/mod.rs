//! What each command does.

mod apply;
mod audit;
mod backup;
mod begun;
mod change;
mod check;
mod control;
mod demo;
mod experiment;
mod explain;
mod export;
mod fetch_backup;
mod key;
mod limits;
mod man;
mod model_server;
mod plan;
mod receipt;
mod rollout;
mod serve;
mod show;
mod sim;
mod steps;
mod table;
mod token;
mod wait;

use std::path::Path;
use std::time::Duration;

use clap::CommandFactory;

use holdfast_config::{Config, Role};

use crate::cli::{AuditCommand, Cli, Command, NodeCommand, PinCommand, ReplicaCommand, TableCommand};
use crate::output;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit code: 1 failed, 2 wrong use or configuration.
    pub code: u8,
    /// For a person.
    pub text: String,
    /// Nobody answered, or asked to be asked again: it may pass.
    pub passing: bool,
}

impl Failure {
    /// It failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { code: 1, text: text.into(), passing: false }
    }

    /// It was asked wrongly.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self { code: 2, text: text.into(), passing: false }
    }

    /// It failed for want of an answer.
    pub fn lost(text: impl Into<String>) -> Self {
        Self { code: 1, text: text.into(), passing: true }
    }
}

/// Whether the file is for this command.
///
/// # Errors
/// It is for another one.
pub fn must_be(path: &Path, config: &Config, role: Role) -> Result<(), Failure> {
    let is = config.role();
    if is == role {
        return Ok(());
    }
    let (is, not) = (is.as_str(), role.as_str());
    let why = match role {
        Role::Control | Role::Gateway => format!(": it has no section {not}"),
        Role::Serve => format!(": it has a section {is}"),
    };
    Err(Failure::wrong(format!("{} is a file for `holdfast {is}`, not for `holdfast {not}`{why}", path.display())))
}

/// Runs a command.
///
/// # Errors
/// [`Failure`].
pub fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(args) => serve::run(&args, Role::Serve),
        Command::Gateway(args) => serve::run(&args, Role::Gateway),
        Command::Control(args) => control::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Schema => {
            let schema = serde_json::to_string_pretty(&holdfast_config::schema());
            output::say(&schema.map_err(|e| Failure::failed(e.to_string()))?);
            Ok(())
        }
        Command::Explain(args) => explain::run(&args),
        Command::Receipt(args) => receipt::run(&args),
        Command::Replica { what: ReplicaCommand::List(args) } => show::replicas(&args),
        Command::Limits { what } => limits::run(&what),
        Command::Apply(args) => apply::run(&args),
        Command::Table { what: TableCommand::Show(args) } => show::table(&args),
        Command::Table { what } => table::run(&what),
        Command::Pin { what: PinCommand::List(args) } => show::pins(&args),
        Command::Audit { what: AuditCommand::Find(args) } => audit::find(&args),
        Command::Audit { what: AuditCommand::Verify(place) } => audit::verify(&place),
        Command::Pin { what: PinCommand::Set { tenant, model, version, how } } => {
            change::set_pin(&tenant, &model, &version, &how)
        }
        Command::Pin { what: PinCommand::Remove { tenant, model, how } } => {
            change::remove_pin(&tenant, &model, &how.into())
        }
        Command::Experiment { what } => experiment::run(&what),
        Command::Key { what } => key::run(&what),
        Command::Token { what } => token::run(&what),
        Command::Rollout { what } => rollout::run(&what),
        Command::Node { what: NodeCommand::List(args) } => rollout::nodes(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Plan { what } => plan::run(&what),
        Command::Sim { what } => sim::run(&what),
        Command::Demo(args) => demo::run(&args),
        Command::ModelServer(args) => model_server::run(*args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "holdfast", &mut std::io::stdout());
            Ok(())
        }
        Command::Man { dir } => man::run(dir.as_deref()),
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
