//! Alarms: a metric, a log line, and the last of them for the admin port.
//!
//! What causes one may come back many times a second (a wanted set is told anew with each table). The metric counts each; of one kind about one version
//! on one replica there is a line and an entry when it is raised, and at most one more in a minute, with the number of those between.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use holdfast_placement::residency::{Alarm, ReplicaIx, VersionIx};
use holdfast_telemetry::{Clock, GatewayMetrics, Throttled};
use holdfast_types::Mono;

use super::Recent;
use crate::fleet::Fleet;

const KEPT: usize = 200;
/// At most one line about the same in this time.
const AGAIN: Duration = Duration::from_mins(1);
/// Kinds, replicas and versions that are told apart; those beyond share one allowance.
const TOLD_APART: usize = 4_096;

/// What an alarm is about: its kind, the replica, the version.
type Key = (&'static str, Option<String>, Option<String>);

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
    /// How often it was raised, until the next entry of this kind about the same.
    pub times: u64,
    /// When it was raised last, in milliseconds since 1970 (UTC).
    pub last_millis: u64,
}

/// See the module.
pub struct Alarms {
    recent: Mutex<Recent>,
    lines: Throttled<Key>,
    metrics: Arc<GatewayMetrics>,
}

impl Alarms {
    pub(super) fn new(metrics: Arc<GatewayMetrics>) -> Self {
        Self { recent: Mutex::default(), lines: Throttled::new(AGAIN, TOLD_APART), metrics }
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
        self.keep(Clock::now(), (kind, replica, version), detail);
    }

    /// Raises an alarm about this process.
    pub fn say(&self, kind: &'static str, detail: String) {
        self.keep(Clock::now(), (kind, None, None), detail);
    }

    /// A line and an entry, or one more of the last entry.
    fn keep(&self, now: Mono, key: Key, detail: String) {
        self.metrics.alarms.get([key.0]).inc();
        let wall_millis = Clock::wall_millis();
        let left_out = self.lines.pass(now, key.clone());
        let (kind, replica, version) = key;
        let new = AlarmRecord { wall_millis, kind, replica, version, detail, times: 1, last_millis: wall_millis };
        let mut recent = self.recent.lock();
        let Some(left_out) = left_out else {
            let is_same =
                |r: &&mut AlarmRecord| (r.kind, &r.replica, &r.version) == (new.kind, &new.replica, &new.version);
            if let Some(last) = recent.iter_mut().rev().find(is_same) {
                (last.times, last.last_millis) = (last.times.saturating_add(1), new.wall_millis);
                last.detail = new.detail;
            }
            return;
        };
        let AlarmRecord { kind, replica, version, detail, .. } = &new;
        tracing::warn!(kind, replica, version, detail, left_out, "alarm");
        if recent.len() >= KEPT {
            recent.pop_front();
        }
        recent.push_back(new);
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

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_telemetry::MetricsOptions;

    #[test]
    fn one_line_in_a_minute_for_each_kind_and_place() {
        let metrics = Arc::new(GatewayMetrics::new(&MetricsOptions::default()));
        let alarms = Alarms::new(metrics.clone());
        let raise = |seconds: u64, kind, at: u32| {
            let now = Mono::ZERO.after(Duration::from_secs(seconds));
            alarms.keep(now, (kind, Some(format!("main/r{at}")), None), format!("at {seconds} s"));
        };
        (0..59).for_each(|second| raise(second, "wanted_has_no_room", 1));
        raise(5, "thrash", 1);
        raise(6, "wanted_has_no_room", 2);
        let told = || alarms.recent().into_iter().map(|r| (r.kind, r.times)).collect::<Vec<_>>();
        assert_eq!(told(), [("wanted_has_no_room", 59), ("thrash", 1), ("wanted_has_no_room", 1)]);
        assert_eq!(alarms.recent()[0].detail, "at 58 s");
        raise(60, "wanted_has_no_room", 1);
        assert_eq!(told().last(), Some(&("wanted_has_no_room", 1)), "and after a minute a new one");
        assert_eq!(metrics.alarms.get(["wanted_has_no_room"]).get(), 61, "each counts");
    }
}
