//! What the machine is told: configuration, observations of the replicas, requests that wait, and answers to its own effects.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_types::{Bytes, Mono};

/// A replica, as a small number that the driver gives and never uses for two replicas at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaIx(pub u32);

/// A model server, as a small number that the driver gives: one process at one address, under whatever names. Loads are bounded for each
/// server, so that a replica that is renamed, or removed and configured again, is not given more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerIx(pub u32);

/// One version of one model in one pool, as a small number that the driver gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionIx(pub u32);

/// A pool of replicas, as a small number. Only load times are averaged over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolIx(pub u32);

/// One waiting request. The driver never gives the same number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// One load, verification or unload that the driver was asked for. The answer carries it back, so that a late answer to an operation that
/// was given up is never taken for the answer to a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op(pub u64);

/// What may be evicted when memory is short (LOAD-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The pins fit. What is wanted on a replica is evicted only for something else that is wanted there, and the last holder of a pinned
    /// version never.
    #[default]
    Guaranteed,
    /// The pins do not fit. Least recent use among all, unwanted first, under the thrash guard.
    Overcommit,
}

/// Settings of the whole machine. All are bounds or times; `Default` has the documented values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most loads in flight over all replicas (LOAD-1). Default 8.
    pub fleet_loads: u32,
    /// After this time nobody waits for a load any more. It keeps its slot until it has ended: nobody knows what the server is doing. Default 5 min.
    pub load_timeout: Duration,
    /// After this time a verification or an unload has failed. Default 30 s.
    pub step_timeout: Duration,
    /// How long room may be in the making (victims draining and unloading) before it is given up. Default 30 s.
    pub room_timeout: Duration,
    /// A version that is evicted from a replica and wanted there again within this time thrashes. The longest of all pools'. Default 60 s.
    pub thrash_window: Duration,
    /// The wait after a first failed load of a version on a replica; it doubles with each failure. Default 1 s.
    pub backoff_base: Duration,
    /// The longest wait after failed loads, and the wait after a permanent failure. Default 60 s.
    pub backoff_max: Duration,
    /// The shortest `retry_after` of a shed. Default 1 s.
    pub retry_min: Duration,
    /// The longest `retry_after` of a shed. Default 60 s.
    pub retry_max: Duration,
    /// The most requests that wait at one time; one more is shed. Default 10,000.
    pub max_waiters: usize,
    /// After this many request-driven loads in a row a warm-up that could start goes first. Default 4.
    pub warm_every: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fleet_loads: 8,
            load_timeout: Duration::from_secs(300),
            step_timeout: Duration::from_secs(30),
            room_timeout: Duration::from_secs(30),
            thrash_window: Duration::from_secs(60),
            backoff_base: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(60),
            max_waiters: 10_000,
            warm_every: 4,
        }
    }
}

/// What one of several gateways may load on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The replicas whose servers it owns.
    pub replicas: BTreeSet<ReplicaIx>,
    /// From then on it starts nothing any more, until it is told otherwise.
    pub until: Mono,
    /// Its part of the fleet's bound.
    pub part: u32,
}

/// A word that a version is used no more ([`Event::Yield`]), by what is known of it. Messages overtake one another: what is said of an earlier word must
/// not end a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// By its number.
    Number(u64),
    /// One that was given before this.
    Before(Mono),
}

/// What is configured about a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSpec {
    /// Its pool.
    pub pool: PoolIx,
    /// The server behind it.
    pub server: ServerIx,
    /// The memory at the disposal of versions. None: not known, and nothing is ever evicted to make room.
    pub memory: Option<Bytes>,
    /// Whether the server can load and unload on request. False: it holds what it holds, and a request without a holder is shed.
    pub loads: bool,
    /// The most loads in flight on its server (LOAD-1). Zero: it is sent none.
    pub max_loads: u32,
    /// The pool's mode.
    pub mode: Mode,
    /// The pool's own time for a load. None: [`Settings::load_timeout`].
    pub load_timeout: Option<Duration>,
    /// The pool's own thrash window. None: [`Settings::thrash_window`].
    pub thrash_window: Option<Duration>,
}

/// What is configured about a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionSpec {
    /// Declared size. Holds until a load has measured it.
    pub size: Bytes,
    /// Whether some tenant pins it: its last holder is never evicted in guaranteed mode.
    pub pinned: bool,
}

/// Why a load failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// For a person; cut to [`MAX_TEXT`] bytes.
    pub text: String,
    /// Nothing will change soon by itself (no such artifact): waiters with no other candidate fail at once, and the next attempt comes only
    /// after [`Settings::backoff_max`].
    pub permanent: bool,
}

/// The longest text about a failure that is kept, in bytes.
pub const MAX_TEXT: usize = 512;

/// The most candidates of one request that are looked at; the rest are dropped.
pub const MAX_CANDIDATES: usize = 64;

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Digest and known answers are right: the replica may serve the version.
    Proven,
    /// They are wrong: the version is quarantined on the replica.
    Wrong(String),
    /// Nobody could be asked (time-out, transport): asked again after a back-off.
    Unknown(String),
}

/// What a server has of names that no version has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strange {
    /// How many it is loading: they take slots.
    pub loads: u32,
    /// What those take that it has loaded, as far as that is known.
    pub size: Bytes,
}

/// When a version that should be warm is loaded, of all that are missing on one replica. The order is that of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Requests are judged by it now.
    Pinned,
    /// A pin is on its way to it, and this is its place among those that come. A lower place takes the room of a higher one, and never the other way
    /// round, so that two that each hold the other's last room cannot wait for one another. 0: it gives its room to none of them.
    Coming(u32),
    /// It is kept at hand, for a way back.
    Retained,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Event {
    /// New settings. A bound that is lowered stops new loads; it ends none.
    SetSettings(Settings),
    /// What this gateway may load on. None: on everything; it is alone. Replaces what was said before.
    SetOwn(Option<Own>),
    /// The owners have changed: others may have begun loads on this replica, and it gets none before a poll that began after this has shown
    /// them, and not before `until`.
    Unsettled { replica: ReplicaIx, until: Mono },
    /// Its owner is about to unload the version: it is hidden at once, and polls that show it are not believed before `until`. `word` is the number of
    /// the question to which that is the answer.
    Yield { replica: ReplicaIx, version: VersionIx, until: Mono, word: u64 },
    /// Polls that show it are believed again, if it is this word that was given last.
    TakeUp { replica: ReplicaIx, version: VersionIx, over: Word },
    /// Its owner is about to load the version: what is proved of it here is of another copy. A word that it is used no more is over.
    Reloads { replica: ReplicaIx, version: VersionIx },
    /// A new replica, or a change of one. A new replica is up, and nothing is known about what it holds until the first `Observed`.
    SetReplica { replica: ReplicaIx, spec: ReplicaSpec },
    /// The replica is no longer configured. Its waiters go to their next candidate.
    RemoveReplica { replica: ReplicaIx },
    /// A new version, or a change of one.
    SetVersion { version: VersionIx, spec: VersionSpec },
    /// The version is no longer configured: its waiters fail; it is hidden, drained and unloaded wherever it is held.
    RemoveVersion { version: VersionIx },
    /// The versions that should be warm on this replica, and when it is whose turn (replaces the earlier set). Unknown versions are left out.
    SetWanted { replica: ReplicaIx, versions: Vec<(VersionIx, Turn)> },
    /// The versions that the replica serves until others hold them (replaces the earlier set): they are not loaded here, they are evicted only for
    /// what may evict what is wanted, and nothing relies on this copy: it is about to go.
    SetKept { replica: ReplicaIx, versions: Vec<VersionIx> },
    /// Somebody asks for the version on this replica anew: what failed before puts no attempt off, and failures count from here.
    Afresh { replica: ReplicaIx, version: VersionIx },
    /// Health: the replica answers again. It gets no load before the next `Observed`.
    ReplicaUp { replica: ReplicaIx },
    /// Health: the replica is down. What it held is hidden and must be observed and verified again.
    ReplicaDown { replica: ReplicaIx },
    /// A complete poll, started at `started`: exactly these known versions are loaded, and these are being loaded, as far as the server tells.
    /// Whatever changed after `started` is left as it is. Ignored while the replica is down.
    Observed { replica: ReplicaIx, started: Mono, held: Vec<VersionIx>, loading: Vec<VersionIx>, strange: Strange },
    /// The replica answered a request by "not loaded": it does not hold this version, whatever it said before. Not for a version that is being loaded.
    Missing { replica: ReplicaIx, version: VersionIx },
    /// It is no longer known what the replica holds (polls failed for too long): it counts as holding nothing.
    ObservationLost { replica: ReplicaIx },
    /// A request found no holder. Answered by exactly one `Wake`, at or before `deadline`, unless cancelled.
    Want { waiter: WaiterId, version: VersionIx, candidates: Vec<ReplicaIx>, deadline: Mono },
    /// The request is gone. No `Wake` follows. A load that has begun goes on.
    Cancel { waiter: WaiterId },
    /// The answer to `Effect::Load`. `Ok` holds the measured size, if the server tells it.
    LoadDone { op: Op, result: Result<Option<Bytes>, LoadError> },
    /// The answer to `Effect::Verify`.
    Verified { op: Op, proof: Proof },
    /// After `Effect::Hide`: nothing is in use any more. Checked against [`Usage::in_flight`].
    Drained { replica: ReplicaIx, version: VersionIx },
    /// The answer to `Effect::Unload`.
    UnloadDone { op: Op, result: Result<(), String> },
    /// A wrong answer was seen in service (PIN-1): the version is hidden on this replica until `Released`.
    Quarantine { replica: ReplicaIx, version: VersionIx, why: String },
    /// A probe with a known answer succeeded: the quarantine is over and the version is shown again.
    Released { replica: ReplicaIx, version: VersionIx },
    /// There is no known answer to ask for: a quarantined copy is unloaded, so that it is loaded anew where it is wanted. On a replica that
    /// cannot unload it stays quarantined.
    Renew { replica: ReplicaIx, version: VersionIx },
    /// Time has passed: to be sent at or soon after [`super::Residency::next_deadline`].
    Tick,
}

/// What the driver counts where requests are sent. Read during `apply`, so it must not block.
pub trait Usage {
    /// Requests in flight to this version on this replica.
    fn in_flight(&self, replica: ReplicaIx, version: VersionIx) -> u32;
    /// When the version was last used on the replica. None: never.
    fn last_used(&self, replica: ReplicaIx, version: VersionIx) -> Option<Mono>;
    /// Requests in flight to the replica over all versions: the least-loaded candidate loads.
    fn replica_load(&self, replica: ReplicaIx) -> u32;
}
