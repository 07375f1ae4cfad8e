//! Versions that served or proved wrong on a replica: kept out until a probe with a known answer succeeds, and for longer each time.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use holdfast_placement::residency::{Alarm, Event, Outcome, ReplicaIx, Shed, VersionIx};
use holdfast_telemetry::Clock;
use holdfast_types::{Invariant, Mono};

use super::Driver;
use crate::fleet::FleetChange;

const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(600);
/// Quarantines that are this long past are forgotten.
const MEMORY: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy)]
struct Entry {
    times: u32,
    /// Not asked before this. None: released, kept to remember how often.
    until: Option<Mono>,
    last: Mono,
    /// It began under a former name of the replica's server.
    inherited: bool,
}

/// At most one entry for each version that a replica holds.
#[derive(Default)]
pub(super) struct Quarantines(Mutex<HashMap<(ReplicaIx, VersionIx), Entry>>);

impl Quarantines {
    pub(super) fn begin(&self, replica: ReplicaIx, version: VersionIx) {
        let now = Clock::now();
        let mut all = self.0.lock();
        all.retain(|_, e| e.until.is_some() || now.since(e.last) < MEMORY);
        let entry =
            all.entry((replica, version)).or_insert(Entry { times: 0, until: None, last: now, inherited: false });
        if entry.until.is_none() {
            entry.times = entry.times.saturating_add(1);
        }
        let wait = FIRST.saturating_mul(1 << entry.times.saturating_sub(1).min(10)).min(LONGEST);
        entry.until = Some(now.after(wait));
        entry.last = now;
    }

    /// A server keeps its quarantines under another name.
    pub(super) fn inherit(&self, change: &FleetChange) {
        let mut all = self.0.lock();
        for new in &change.added {
            for old in change.removed.iter().filter(|old| old.server == new.server) {
                let of_old = all.iter().filter(|((r, _), e)| *r == old.ix && e.until.is_some());
                let kept = of_old.map(|((_, v), e)| ((new.ix, *v), Entry { inherited: true, ..*e }));
                let kept: Vec<_> = kept.collect();
                all.extend(kept);
            }
        }
    }

    /// Whether the version may not even be proved: it is quarantined since before the server had this name.
    pub(super) fn is_inherited(&self, replica: ReplicaIx, version: VersionIx) -> bool {
        let now = Clock::now();
        let all = self.0.lock();
        all.get(&(replica, version)).is_some_and(|e| e.inherited && e.until.is_some_and(|until| until > now))
    }

    /// What proves a version has changed: it is asked for at once.
    pub(super) fn hasten(&self, replica: ReplicaIx) {
        let now = Clock::now();
        for (_, entry) in self.0.lock().iter_mut().filter(|((r, _), e)| *r == replica && e.until.is_some()) {
            entry.until = Some(now);
        }
    }

    /// Forgets replicas that are gone.
    pub(super) fn forget(&self, change: &FleetChange) {
        self.0.lock().retain(|(replica, _), _| !change.removed.iter().any(|gone| gone.ix == *replica));
    }

    fn due(&self, replica: ReplicaIx) -> Vec<VersionIx> {
        let now = Clock::now();
        let all = self.0.lock();
        let due = |e: &Entry| e.until.is_some_and(|at| at <= now);
        all.iter().filter(|((r, _), e)| *r == replica && due(e)).map(|((_, v), _)| *v).collect()
    }

    /// How long until the next of these replicas is asked for a proof again. None: the version is quarantined on none of them.
    pub(super) fn next_proof(&self, version: VersionIx, replicas: &[ReplicaIx]) -> Option<Duration> {
        let all = self.0.lock();
        let next = replicas.iter().filter_map(|replica| all.get(&(*replica, version))?.until).min()?;
        Some(next.since(Clock::now()))
    }

    fn asked(&self, replica: ReplicaIx, version: VersionIx, proven: bool) -> bool {
        let now = Clock::now();
        let mut all = self.0.lock();
        let Some(entry) = all.get_mut(&(replica, version)) else { return false };
        entry.until = if proven { None } else { Some(now.after(FIRST)) };
        entry.inherited = false;
        entry.last = now;
        proven
    }
}

impl Driver {
    /// A replica answered for another version than it was asked for (PIN-1): the version is kept out there, and a person is told.
    pub fn quarantine(&self, replica: ReplicaIx, version: VersionIx, why: String) {
        self.metrics.invariant_violated(Invariant::Pin1);
        if let Some(target) = self.fleet.replica(replica) {
            self.metrics.wrong_version.get([target.pool.as_str(), target.name.as_str()]).inc();
        }
        self.quarantines.begin(replica, version);
        self.alarms.note(&self.fleet, "wrong_version_served", replica, Some(version), why.clone());
        self.apply(Event::Quarantine { replica, version, why });
    }

    /// A version in service turned out not to be what it is said to be.
    pub(super) fn disproved(&self, replica: ReplicaIx, version: VersionIx, why: String) {
        self.quarantines.begin(replica, version);
        self.apply(Event::Quarantine { replica, version, why: why.clone() });
        self.alarms.raise(&self.fleet, &Alarm::VerificationFailed { replica, version, why });
    }

    /// Puts in when a quarantine may end: the machine does not know, as it is told of the release alone.
    pub(super) fn until_release(&self, outcome: Outcome, version: VersionIx, candidates: &[ReplicaIx]) -> Outcome {
        let Outcome::Shed { retry_after, why: Shed::Quarantined } = outcome else { return outcome };
        let next = self.quarantines.next_proof(version, candidates).unwrap_or_default();
        Outcome::Shed { retry_after: next.max(retry_after), why: Shed::Quarantined }
    }

    pub(super) fn due_for_release(&self, replica: ReplicaIx) -> Vec<VersionIx> {
        self.quarantines.due(replica)
    }

    pub(super) fn quarantine_asked(&self, replica: ReplicaIx, version: VersionIx, proven: bool) -> bool {
        self.quarantines.asked(replica, version, proven)
    }
}
