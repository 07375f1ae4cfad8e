//! The data of the machine, and the few questions that one record answers by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_types::{Bytes, Mono};

use super::effect::Effect;
use super::event::{
    MAX_TEXT, Op, ReplicaIx, ReplicaSpec, ServerIx, Strange, Turn, Usage, VersionIx, VersionSpec, WaiterId,
};
use super::report::State;

/// What every step of one `apply` needs.
pub(super) struct Cx<'a> {
    pub(super) now: Mono,
    pub(super) usage: &'a dyn Usage,
    pub(super) out: &'a mut Vec<Effect>,
}

/// Why something leaves a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// To make room for this version.
    Room(VersionIx),
    /// It is no longer configured.
    Retire,
    /// It was wrong, and is to be loaded anew.
    Renew,
}

/// Where a version is in its life on a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Loading(Op),
    Unproven,
    Verifying(Op),
    Held,
    Unknown,
    Hiding(Aim),
    Unloading(Op, Aim),
    Quarantined,
}

/// One version on one replica.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) phase: Phase,
    /// When it entered the phase.
    pub(super) since: Mono,
    pub(super) size: Bytes,
    /// The last of `Show` and `Hide` was `Show`.
    pub(super) shown: bool,
    /// When it arrived, for the thrash guard and as a first use.
    pub(super) arrived: Mono,
    /// When its load began, until that has been measured.
    pub(super) load_began: Option<Mono>,
    /// Not evicted before this.
    pub(super) keep_until: Mono,
    /// Verifications in a row that could not be made.
    pub(super) unknown_proofs: u32,
    /// The phase that it hid from.
    pub(super) before: Phase,
    pub(super) why: Option<String>,
}

impl Entry {
    pub(super) fn new(phase: Phase, now: Mono, size: Bytes) -> Self {
        Self {
            phase,
            since: now,
            size,
            shown: false,
            arrived: now,
            load_began: None,
            keep_until: Mono::ZERO,
            unknown_proofs: 0,
            before: Phase::Unproven,
            why: None,
        }
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Mono) {
        self.phase = phase;
        self.since = now;
    }

    pub(super) fn leaving(&self) -> bool {
        matches!(self.phase, Phase::Hiding(_) | Phase::Unloading(..))
    }

    pub(super) fn state(&self) -> State {
        match self.phase {
            Phase::Loading(_) => State::Loading,
            Phase::Unproven => State::Unproven,
            Phase::Verifying(_) => State::Verifying,
            Phase::Held => State::Held,
            Phase::Unknown => State::Unknown,
            Phase::Hiding(_) => State::Hiding,
            Phase::Unloading(..) => State::Unloading,
            Phase::Quarantined => State::Quarantined,
        }
    }
}

/// Room in the making: the victims are the entries that leave for `version`. One at a time on a replica; it takes a load slot there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    pub(super) version: VersionIx,
    pub(super) demand: bool,
    pub(super) until: Mono,
}

#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) spec: ReplicaSpec,
    pub(super) up: bool,
    pub(super) observed: bool,
    /// Not looked at since it came: it may be loading whatever whoever was here before asked for.
    pub(super) unseen: bool,
    /// Only a poll that began then or later counts as a look.
    pub(super) unseen_since: Mono,
    /// Nor does one before this.
    pub(super) hold_until: Mono,
    pub(super) entries: BTreeMap<VersionIx, Entry>,
    pub(super) wanted: BTreeMap<VersionIx, Turn>,
    /// Served here until others hold them.
    pub(super) kept: BTreeSet<VersionIx>,
    /// What the last poll showed beside what is configured.
    pub(super) strange: Strange,
    pub(super) making: Option<Making>,
    pub(super) over_memory: bool,
    /// The number of the last warm-up that began here: who warmed longest ago comes first.
    pub(super) last_warm: u64,
}

impl Replica {
    pub(super) fn new(spec: ReplicaSpec) -> Self {
        Self {
            spec,
            up: true,
            observed: false,
            unseen: true,
            unseen_since: Mono::ZERO,
            hold_until: Mono::ZERO,
            entries: BTreeMap::new(),
            wanted: BTreeMap::new(),
            kept: BTreeSet::new(),
            strange: Strange::NONE,
            making: None,
            over_memory: false,
            last_warm: 0,
        }
    }

    /// The sizes of all entries, whatever their phase, and of what is there beside them.
    pub(super) fn held(&self) -> Bytes {
        Bytes(self.entries.values().fold(self.strange.size.0, |sum, e| sum.saturating_add(e.size.0)))
    }

    /// The sizes of the entries that leave.
    pub(super) fn leaving(&self) -> u64 {
        self.entries.values().filter(|e| e.leaving()).fold(0, |sum, e| sum.saturating_add(e.size.0))
    }

    /// May be asked to load now, slots and room aside.
    pub(super) fn can_load(&self) -> bool {
        self.up && self.observed && !self.unseen && self.spec.loads && self.spec.max_loads > 0
    }
}

#[derive(Clone, Debug)]
pub(super) struct VersionInfo {
    pub(super) spec: VersionSpec,
    pub(super) measured: Option<Bytes>,
    /// Moving average of the times from `Load` to `Show`.
    pub(super) load_time: Option<Duration>,
    pub(super) removed: bool,
}

impl VersionInfo {
    pub(super) fn size(&self) -> Bytes {
        self.measured.unwrap_or(self.spec.size)
    }
}

/// What is remembered of a version on a replica that does not hold it.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Failed loads in a row.
    pub(super) failures: u32,
    pub(super) retry_at: Mono,
    pub(super) permanent: bool,
    pub(super) text: String,
    /// Requests that found it missing although it was shown, each within twice the longest back-off of the one before.
    pub(super) misses: u32,
    pub(super) missed_at: Option<Mono>,
    /// When an unload of it last ended.
    pub(super) left_at: Option<Mono>,
    /// When it was last evicted to make room.
    pub(super) evicted_at: Option<Mono>,
    /// Until then the thrash guard is on.
    pub(super) thrash_until: Mono,
    /// Its owner unloads it: polls that show it before this are not believed.
    pub(super) yielded_until: Mono,
    /// The number of that word, and when it was given.
    pub(super) word: (u64, Mono),
    /// Alarms that were raised and still stand.
    pub(super) too_large: bool,
    pub(super) no_room: bool,
}

impl History {
    /// Nothing in it matters any more.
    pub(super) fn stale(&self, now: Mono, window: Duration, backoff_max: Duration) -> bool {
        let past = |t: Option<Mono>| t.is_none_or(|t| now > t.after(window));
        let failed = self.failures > 0 && now <= self.retry_at.after(backoff_max);
        let missed = self.missed_at.is_some_and(|at| now <= at.after(backoff_max.saturating_mul(2)));
        !failed
            && !missed
            && !self.too_large
            && !self.no_room
            && past(self.left_at)
            && past(self.evicted_at)
            && now > self.thrash_until
            && now > self.yielded_until
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    Load,
    Verify,
    Unload,
}

/// An operation that the driver was asked for and has not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) kind: OpKind,
    pub(super) replica: ReplicaIx,
    pub(super) server: ServerIx,
    pub(super) version: VersionIx,
    pub(super) since: Mono,
    pub(super) deadline: Mono,
    /// A load of which only polls that began after this tell any more.
    pub(super) answered: Option<Mono>,
    /// A load that a poll has listed: the server tells when it ends.
    pub(super) listed: bool,
    /// This machine has begun it.
    pub(super) ours: bool,
    /// It was in flight when owners changed.
    pub(super) lingers: bool,
}

/// All that wait for one version on one list of candidates.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub(super) version: VersionIx,
    pub(super) candidates: Box<[ReplicaIx]>,
    pub(super) waiters: BTreeSet<WaiterId>,
    /// Kept without waiters until then, so that a request that was shed finds the version at its next attempt.
    pub(super) linger: Mono,
}

/// Cuts a text to [`MAX_TEXT`] bytes, at a character's boundary.
pub(super) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}
