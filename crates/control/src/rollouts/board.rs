//! What the driver and those who ask it have in common.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_decide::rollout::{Command, Options, Phase, Progress};
use holdfast_plane::Orders;
use holdfast_store::Store;
use holdfast_telemetry::{Clock, Throttled};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::Now;
use super::forms::{By, Meta};
use super::running::Reply;
use super::sessions::Sessions;
use crate::desk::Desk;

/// Alarms that are kept; the eldest go first.
pub(super) const MAX_ALARMS: usize = 256;
/// At most one line with the same words in this time.
pub(super) const ALARM_AGAIN: Duration = Duration::from_mins(1);

/// How the driver goes about it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For pins without options of their own.
    pub options: Options,
    /// What gateways say is looked at, and orders are published, at most once in this time.
    pub batch: Duration,
    /// Finished roll-outs that are kept, to be listed.
    pub keep: usize,
    /// How often a control plane that does not lead tries to.
    pub lead: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { options: Options::default(), batch: Duration::from_millis(20), keep: 200, lead: Duration::from_secs(1) }
    }
}

/// A roll-out in full.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Who, why, when.
    pub meta: Meta,
    /// How it goes about it.
    pub options: Options,
    /// Where it is.
    pub progress: Progress,
}

/// A pin that is desired elsewhere than it is in force, and is on no way there, or finds no room on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// `TENANT/MODEL`.
    pub pin: Arc<str>,
    /// What it waits for, or why it does not go.
    pub words: String,
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarmed {
    /// When: milliseconds since 1970.
    pub at_ms: u64,
    /// Of which roll-out.
    pub rollout: Option<u64>,
    /// What.
    pub words: String,
    /// How often, until the next entry with these words.
    pub times: u64,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such roll-out.
    #[error("there is no roll-out {0}")]
    Unknown(u64),
    /// Another control plane leads, or none does right now.
    #[error(
        "this control plane does not lead, and only the one that leads steers roll-outs: ask the one whose /readyz?verbose says \"leads\": true"
    )]
    NotLeading,
    /// The roll-out refuses it.
    #[error("{}", super::words::refusal(.0))]
    Refused(holdfast_decide::rollout::Refusal),
    /// What is desired could not be changed with it, so nothing was done.
    #[error("{0}")]
    Undesired(String),
    /// The store does not answer, so nothing was done.
    #[error("{0}")]
    Unavailable(String),
    /// No answer in time. It may be carried out all the same.
    #[error("no answer in time; look at the roll-out before asking again")]
    Late,
}

/// A command, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) command: Command,
    /// In whose words a way back that it begins goes into history.
    pub(super) by: By,
    /// What is desired was changed with it: nobody wants the new versions any more, whatever the roll-out says to it.
    pub(super) withdrawn: bool,
}

/// What the driver is asked.
pub(super) enum Ask {
    Command { id: u64, order: Order, reply: Reply },
    Show { id: u64, reply: oneshot::Sender<Option<Shown>> },
}

/// What the driver and those who ask it have in common.
pub(super) struct Parts {
    pub(super) desk: Arc<Desk>,
    pub(super) store: Arc<dyn Store>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) settings: Settings,
    pub(super) now: Now,
    pub(super) orders: watch::Sender<Arc<Orders>>,
    pub(super) waiting: Mutex<Vec<Waits>>,
    pub(super) alarms: Mutex<VecDeque<Alarmed>>,
    /// Which alarms get a line.
    pub(super) lines: Throttled<(Option<u64>, String)>,
    pub(super) changes: watch::Sender<u64>,
    /// Roll-outs in hand, by phase.
    pub(super) phases: Mutex<BTreeMap<Phase, u64>>,
    pub(super) failed: AtomicU64,
    pub(super) alarmed: AtomicU64,
}

impl Parts {
    /// Tells a person; of the same words about the same roll-out at most once in a minute.
    pub(super) fn alarm(&self, rollout: Option<u64>, words: String) {
        self.alarmed.fetch_add(1, Ordering::Relaxed);
        let left_out = self.lines.pass((self.now)(), (rollout, words.clone()));
        let mut alarms = self.alarms.lock();
        let Some(left_out) = left_out else {
            let last = alarms.iter_mut().rev().find(|a| a.rollout == rollout && a.words == words);
            last.into_iter().for_each(|last| last.times = last.times.saturating_add(1));
            return;
        };
        tracing::warn!(rollout, %words, left_out, "a roll-out needs attention");
        if alarms.len() >= MAX_ALARMS {
            alarms.pop_front();
        }
        alarms.push_back(Alarmed { at_ms: Clock::wall_millis(), rollout, words, times: 1 });
    }

    pub(super) fn bump(&self) {
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }
}
