//! What the machine knows, for people and for readiness: a copy, taken when asked.

use holdfast_types::{Bytes, Mono};

use super::Residency;
use super::event::{Op, ReplicaIx, VersionIx};
use super::state::{Entry, InFlight, OpKind, Phase, Replica};

/// The whole state, as far as it is of interest outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The bound on loads in flight over all replicas.
    pub fleet_loads: u32,
    /// Loads in flight.
    pub loads_in_flight: u32,
    /// Requests that wait.
    pub waiting: usize,
    /// The replicas, by number.
    pub replicas: Vec<ReplicaReport>,
    /// What is waited for or still to be loaded for a request, oldest first.
    pub queued: Vec<QueuedReport>,
}

impl Report {
    /// Nothing wanted is missing anywhere.
    #[must_use]
    pub fn warm(&self) -> bool {
        self.replicas.iter().all(|r| r.missing.iter().all(|m| !m.wanted))
    }
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaReport {
    /// Its number.
    pub replica: ReplicaIx,
    /// Not down.
    pub up: bool,
    /// What it holds is known.
    pub observed: bool,
    /// Its memory.
    pub memory: Option<Bytes>,
    /// The sizes of all holdings together, those on their way in or out included.
    pub held: Bytes,
    /// Its loads in flight.
    pub loads_in_flight: u32,
    /// Those of them whose version is known, in the order in which they began.
    pub loads: Vec<LoadReport>,
    /// What it holds, loads or unloads.
    pub holdings: Vec<HoldingReport>,
    /// What it does not serve, of the wanted set and of what failed to load for a request.
    pub missing: Vec<MissingReport>,
    /// The version that room is being made for.
    pub making_room_for: Option<VersionIx>,
}

/// One load that takes a slot of a replica's server, whoever asked for it and whether or not anybody still wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// The version.
    pub version: VersionIx,
    /// Since when it is known of.
    pub since: Mono,
    /// Since when it is over its time, if it is.
    pub overdue_since: Option<Mono>,
    /// It is of the replica's wanted set.
    pub wanted: bool,
}

/// What a version is to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Being loaded.
    Loading,
    /// Loaded, to be verified.
    Unproven,
    /// Being verified.
    Verifying,
    /// Held and shown.
    Held,
    /// Loaded when last seen, but contact was lost since.
    Unknown,
    /// Hidden, until nothing is in use.
    Hiding,
    /// Being unloaded.
    Unloading,
    /// Loaded, but wrong: not shown.
    Quarantined,
}

impl State {
    /// The state as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Unproven => "unproven",
            Self::Verifying => "verifying",
            Self::Held => "held",
            Self::Unknown => "unknown",
            Self::Hiding => "hiding",
            Self::Unloading => "unloading",
            Self::Quarantined => "quarantined",
        }
    }
}

/// One version on one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingReport {
    /// The version.
    pub version: VersionIx,
    /// Its state.
    pub state: State,
    /// Since when it has been in this state.
    pub since: Mono,
    /// Its size: measured if known, else declared.
    pub size: Bytes,
    /// Requests may be sent.
    pub shown: bool,
    /// It is of the replica's wanted set.
    pub wanted: bool,
    /// Why it is quarantined or was not proven.
    pub why: Option<String>,
}

/// One version that a replica does not serve although it is wanted there, or was asked for and could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingReport {
    /// The version.
    pub version: VersionIx,
    /// It is of the replica's wanted set.
    pub wanted: bool,
    /// Loads that failed in a row.
    pub failures: u32,
    /// The next attempt is not before this.
    pub retry_at: Option<Mono>,
    /// The last failure, or what stands in the way; empty if it only has not been its turn.
    pub why: String,
}

/// What some requests wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedReport {
    /// The version.
    pub version: VersionIx,
    /// Where it may be loaded.
    pub candidates: Vec<ReplicaIx>,
    /// How many requests wait. Zero: they were shed, and the load is kept in mind for their next attempt.
    pub waiters: usize,
}

impl Residency {
    /// A copy of the state. Cost: in proportion to the holdings; not for the request path.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            fleet_loads: self.settings.fleet_loads,
            loads_in_flight: self.loads_in_flight(),
            waiting: self.waiters.len(),
            replicas: self.replicas.keys().filter_map(|r| self.report_replica(*r)).collect(),
            queued: self
                .demands
                .values()
                .map(|d| QueuedReport {
                    version: d.version,
                    candidates: d.candidates.to_vec(),
                    waiters: d.waiters.len(),
                })
                .collect(),
        }
    }

    fn report_replica(&self, replica: ReplicaIx) -> Option<ReplicaReport> {
        let r = self.replicas.get(&replica)?;
        let holding = |(version, entry): (&VersionIx, &Entry)| HoldingReport {
            version: *version,
            state: entry.state(),
            since: entry.since,
            size: entry.size,
            shown: entry.shown,
            wanted: r.wanted.contains_key(version),
            why: entry.why.clone(),
        };
        let failing = self.history.range((replica, VersionIx(0))..=(replica, VersionIx(u32::MAX)));
        let failing =
            failing.filter(|((_, v), past)| past.failures > 0 && !r.wanted.contains_key(v)).map(|((_, v), _)| v);
        let missing = r.wanted.keys().chain(failing);
        let missing = missing.filter(|v| r.entries.get(v).is_none_or(|e| e.phase != Phase::Held));
        Some(ReplicaReport {
            replica,
            up: r.up,
            observed: r.observed,
            memory: r.spec.memory,
            held: r.held(),
            loads_in_flight: self.loads_on(replica),
            loads: self.report_loads(r),
            holdings: r.entries.iter().map(holding).collect(),
            missing: missing.map(|v| self.report_missing(replica, *v)).collect(),
            making_room_for: r.making.as_ref().map(|m| m.version),
        })
    }

    fn report_loads(&self, r: &Replica) -> Vec<LoadReport> {
        let here = self.ops.iter().filter(|(_, o)| o.kind == OpKind::Load && o.server == r.spec.server);
        let load = |(op, o): (&Op, &InFlight)| LoadReport {
            version: o.version,
            since: o.since,
            overdue_since: self.is_overdue(*op).then_some(o.deadline),
            wanted: r.wanted.contains_key(&o.version),
        };
        here.map(load).collect()
    }

    fn report_missing(&self, replica: ReplicaIx, version: VersionIx) -> MissingReport {
        let known = self.replicas.get(&replica);
        let entry = known.and_then(|r| r.entries.get(&version));
        let wanted = known.is_some_and(|r| r.wanted.contains_key(&version));
        let Some(past) = self.history.get(&(replica, version)) else {
            let why = entry.and_then(|e| e.why.clone()).unwrap_or_default();
            return MissingReport { version, wanted, failures: 0, retry_at: None, why };
        };
        let why = match (entry.and_then(|e| e.why.clone()), past.failures) {
            (Some(why), _) => why,
            (None, 0) if past.too_large => "larger than the replica's memory".to_owned(),
            (None, 0) if past.no_room => "no room, and what is held may not be evicted for it".to_owned(),
            (None, 0) => String::new(),
            (None, _) => past.text.clone(),
        };
        let retry_at = (past.failures > 0).then_some(past.retry_at);
        MissingReport { version, wanted, failures: past.failures, retry_at, why }
    }
}
