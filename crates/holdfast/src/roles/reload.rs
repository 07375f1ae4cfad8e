//! The configuration file while a gateway runs: read anew when asked or when it has changed, taken whole or not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;

use holdfast_config::Role;
use holdfast_control::desk::{Adopted, Desk, DeskError};
use holdfast_control::keeper::Keeper;
use holdfast_gateway::Gateway;
use holdfast_telemetry::Clock;

use super::differs::{NOT_TAKEN, declared, differs};
use crate::config_file::{self, Read};
use crate::watch::Watch;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long the gateway may take to serve what the desk has taken.
const IN_FORCE: Duration = Duration::from_secs(5);
/// The wait before a file is offered again that the store could not take.
const AGAIN: Duration = Duration::from_secs(2);

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
                waits = Box::pin(self.offer()).await;
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
                tracing::warn!(differs, "{NOT_TAKEN}");
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
