//! The configuration file while a gateway runs: read anew when asked or when it has changed, taken whole or not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;

use holdfast_config::{ResourceKind, Role, Split, with_history};
use holdfast_control::desk::{Adopted, Desk, DeskError, inline_golden};
use holdfast_control::keeper::Keeper;
use holdfast_gateway::Gateway;
use holdfast_plane::{Edit, Entries};
use holdfast_telemetry::Clock;

use crate::config_file::{self, Read};
use crate::watch::Watch;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long the gateway may take to serve what the desk has taken.
const IN_FORCE: Duration = Duration::from_secs(5);
/// The wait before a file is offered again that the store could not take.
const AGAIN: Duration = Duration::from_secs(2);

/// Resources that are named, of those that differ.
const NAMED: usize = 5;

/// Who takes the file in.
pub struct Reload {
    /// The file.
    pub path: PathBuf,
    /// As it was before it was read for the first time.
    pub watch: Watch,
    /// What this process is: a file for another role is refused.
    pub role: Role,
    /// Takes what routes, where this process has a desk.
    pub desk: Option<Arc<Desk>>,
    /// Takes how much of the history is kept.
    pub keeper: Option<Arc<Keeper>>,
    /// Takes the settings.
    pub gateway: Arc<Gateway>,
}

impl Reload {
    /// Runs until the process ends.
    pub async fn run(mut self, mut hangup: Signal) {
        let mut waits = false;
        loop {
            let pause = if waits { AGAIN } else { LOOK };
            let asked = tokio::select! {
                heard = hangup.recv() => heard.is_some(),
                () = tokio::time::sleep(pause) => false,
            };
            if asked {
                // Who asks has often just written the file: one reading is enough for both.
                self.watch.take();
            }
            if asked || waits || self.watch.changed() {
                waits = self.offer().await;
            }
        }
    }

    /// Whether it is to be offered again, for a reason that may pass.
    async fn offer(&self) -> bool {
        let (taken, later) = match config_file::read(&self.path) {
            Ok(read) if read.split.loaded.config.role() != self.role => {
                let role = read.split.loaded.config.role().as_str();
                (Err(format!("it is a file for `holdfast {role}`")), false)
            }
            Ok(read) => match self.adopt(read).await {
                Ok(frame) => (Ok(frame), false),
                Err(error) => (Err(error.to_string()), matches!(error, DeskError::Unavailable(_))),
            },
            Err(error) => (Err(error.to_string()), false),
        };
        // A refusal is counted, logged and shown by whoever refuses.
        let _ = self.gateway.tables.offer(taken);
        self.gateway.tables.read_again();
        later
    }

    /// What routes first: if that is refused, the settings are too.
    async fn adopt(&self, read: Read) -> Result<holdfast_config::Frame, DeskError> {
        let history = read.split.loaded.config.history.clone();
        if let Some(desk) = &self.desk {
            let retired = self.gateway.tables.retired();
            let declared = declared(&read.split);
            let adopted = desk.adopt_file(read.split, read.frame.clone(), Clock::wall_millis(), retired, None).await?;
            if let (Adopted::SettingsOnly, Some(differs)) = (adopted, differs(&desk.truth().desired, &declared)) {
                tracing::warn!(%differs, "the store is the truth: what the file says of these is not taken; `holdfast apply` does it");
            }
            // What is told as taken is what requests are answered under. A gateway that refuses the table says so itself.
            let _ = self.gateway.tables.reaches(desk.truth().head.in_force, IN_FORCE).await;
        }
        if let Some(keeper) = &self.keeper {
            keeper.set(history);
        }
        Ok(read.frame)
    }
}

/// What a file says of everything that routes, as a desk holds it.
fn declared(split: &Split) -> Entries {
    let mut resources = split.resources.clone();
    inline_golden(&mut resources, &split.loaded.config);
    resources.into()
}

/// Which resources a file has otherwise than they are desired: the first few by name. A file that names none says nothing of them.
fn differs(desired: &Entries, declared: &Entries) -> Option<String> {
    if declared.is_empty() {
        return None;
    }
    let mut changes = desired.changes(declared);
    // What an experiment has given so far is in the table and in no file.
    changes.retain(|edit| !is_as_desired(desired, edit));
    let named: Vec<String> =
        changes.iter().take(NAMED).map(|edit| format!("{} {}", edit.kind.as_str(), edit.name)).collect();
    let more = changes.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("{}{rest}", named.join(", ")))
}

/// Whether an experiment is as the file says, but for its history.
fn is_as_desired(desired: &Entries, edit: &Edit) -> bool {
    let (Some(before), Some(asked)) = (desired.get(edit.kind, &edit.name), &edit.value) else { return false };
    edit.kind == ResourceKind::Experiment
        && with_history(&edit.name, Some(before), asked).is_ok_and(|content| content == **before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::ResourceKind::{Model, Pin, Tenant};
    use holdfast_config::Resources;

    #[test]
    fn a_file_that_says_something_else_is_told_of_by_name() {
        let entries = |pins: &[(&str, &str)]| {
            let mut all =
                Resources::from([((Tenant, "acme".to_owned()), 1.into()), ((Model, "a".to_owned()), 1.into())]);
            all.extend(pins.iter().map(|(name, version)| ((Pin, (*name).to_owned()), (*version).into())));
            Entries::from(all)
        };
        let desired = entries(&[("acme/a", "2")]);
        assert_eq!(differs(&desired, &desired.clone()), None);
        assert_eq!(differs(&desired, &Entries::default()), None, "a file of settings alone");
        assert_eq!(differs(&desired, &entries(&[("acme/a", "1")])).as_deref(), Some("pin acme/a"));
        assert_eq!(differs(&desired, &entries(&[])).as_deref(), Some("pin acme/a"), "one that is not in the file");
        let many: Vec<String> = (0..8).map(|n| format!("acme/b{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
        let told = differs(&entries(&[]), &entries(&many)).unwrap();
        assert!(told.ends_with(" and 3 more") && told.matches("pin ").count() == 5, "{told}");
    }
}
