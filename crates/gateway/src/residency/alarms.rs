//! Alarms: a metric, a log line, and the last of them for the admin port.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use holdfast_placement::residency::{Alarm, ReplicaIx, VersionIx};
use holdfast_telemetry::{Clock, GatewayMetrics};

use super::Recent;
use crate::fleet::Fleet;

const KEPT: usize = 200;

/// One alarm, for people.
#[derive(Clone, Debug, Serialize)]
pub struct AlarmRecord {
    /// When, in milliseconds since 1970 (UTC).
    pub wall_millis: u64,
    /// The kind: a word of a closed list.
    pub kind: &'static str,
    /// The replica, if it is about one.
    pub replica: Option<String>,
    /// The model and version, if it is about one.
    pub version: Option<String>,
    /// What happened.
    pub detail: String,
}

/// See the module.
pub struct Alarms {
    recent: Mutex<Recent>,
    metrics: Arc<GatewayMetrics>,
}

impl Alarms {
    pub(super) fn new(metrics: Arc<GatewayMetrics>) -> Self {
        Self { recent: Mutex::default(), metrics }
    }

    /// The last alarms, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<AlarmRecord> {
        self.recent.lock().iter().cloned().collect()
    }

    pub(super) fn raise(&self, fleet: &Fleet, alarm: &Alarm) {
        let (kind, replica, version, detail) = describe(alarm);
        self.note(fleet, kind, replica, version, detail);
    }

    /// Raises an alarm.
    pub fn note(
        &self,
        fleet: &Fleet,
        kind: &'static str,
        replica: ReplicaIx,
        version: Option<VersionIx>,
        detail: String,
    ) {
        let replica = fleet.replica(replica).map(|r| format!("{}/{}", r.pool, r.name));
        let version = version.and_then(|v| fleet.version(v)).map(|v| format!("{}/{}", v.model, v.version));
        self.keep(kind, replica, version, detail);
    }

    /// Raises an alarm about this process.
    pub fn say(&self, kind: &'static str, detail: String) {
        self.keep(kind, None, None, detail);
    }

    fn keep(&self, kind: &'static str, replica: Option<String>, version: Option<String>, detail: String) {
        self.metrics.alarms.get([kind]).inc();
        tracing::warn!(kind, replica, version, detail, "alarm");
        let record = AlarmRecord { wall_millis: Clock::wall_millis(), kind, replica, version, detail };
        let mut recent = self.recent.lock();
        if recent.len() >= KEPT {
            recent.pop_front();
        }
        recent.push_back(record);
    }
}

fn describe(alarm: &Alarm) -> (&'static str, ReplicaIx, Option<VersionIx>, String) {
    match alarm {
        Alarm::Thrash { replica, version, after } => {
            let detail = format!("wanted again {after:?} after it was evicted; the present set is held stable");
            ("thrash", *replica, Some(*version), detail)
        }
        Alarm::DoesNotFit { replica, version, size, memory } => {
            ("does_not_fit", *replica, Some(*version), format!("its {size} are more than the replica's {memory}"))
        }
        Alarm::OverMemory { replica, held, memory } => {
            ("over_memory", *replica, None, format!("holds {held} with {memory} of memory"))
        }
        Alarm::VerificationFailed { replica, version, why } => {
            ("verification_failed", *replica, Some(*version), why.clone())
        }
        Alarm::LoadOverdue { replica, version, after } => {
            let detail = format!(
                "not ended after {after:?}; it keeps its slot until the server answers, is seen to hold it, or ceases to list it"
            );
            ("load_overdue", *replica, Some(*version), detail)
        }
        Alarm::LoadFailing { replica, version, failures, why } => {
            ("load_failing", *replica, Some(*version), format!("{failures} failed in a row: {why}"))
        }
        Alarm::WantedHasNoRoom { replica, version } => {
            let detail = "no room, and what is held may not be evicted for it".to_owned();
            ("wanted_has_no_room", *replica, Some(*version), detail)
        }
    }
}
