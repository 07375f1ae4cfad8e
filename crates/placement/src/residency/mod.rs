//! Who holds which version, and what is done so that somebody does: loads, waits, evictions, warm-up.
//!
//! One machine for all pools of a gateway, because the bound on loads of the fleet is over all of them. It is synchronous and pure: the
//! driver calls [`Residency::apply`] with the time, an event and a view of what is in use, carries out the effects in order, and sends
//! `Tick` at [`Residency::next_deadline`].
//!
//! Invariants ([`crate::invariants`] has a predicate for each): loads in flight never pass their bounds (LOAD-1); what is unloaded is hidden
//! and drained, and in guaranteed mode never the last holder of a pinned version (LOAD-2); no load is started that does not fit; every
//! waiter gets exactly one answer, at or before its deadline.
//!
//! Not here: which replicas a key may use (`subset`), which of several holders serves (`choose`), health (`health`), any IO. A version other
//! than the one asked for is never an answer.
//!
//! The life of a version on a replica (an arrow from each to `Unknown`, when contact is lost, is left out):
//!
//! ```text
//!  Load -> Loading -> Unproven -> Verifying -> Held -> Hiding -> Unloading -> gone
//!                        ^            |  \       ^        |
//!   observed ------------+            |   \      +--------+  wanted again before it was drained
//!                        |  not asked |    +-> Quarantined -> Held  (released by a probe)
//!                        +------------+
//! ```

mod effect;
mod event;
mod forecast;
mod indexed;
mod observe;
mod ops;
mod outlook;
mod own;
mod pump;
mod report;
mod room;
mod setup;
mod state;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_types::{Bytes, Mono};

pub use effect::{Alarm, Effect, Outcome, Shed};
pub use event::{
    Event, LoadError, MAX_CANDIDATES, MAX_TEXT, Mode, Op, Own, PoolIx, Proof, ReplicaIx, ReplicaSpec, ServerIx,
    Settings, Strange, Turn, Usage, VersionIx, VersionSpec, WaiterId, Word,
};
pub use forecast::{Forecast, Prospect};
pub use report::{HoldingReport, LoadReport, MissingReport, QueuedReport, ReplicaReport, Report, State};

use state::{Cx, Demand, History, InFlight, OpKind, Phase, Replica, VersionInfo};

/// The machine. Cost of an event: logarithmic where nothing is to be started, else in proportion to the demands and replicas.
#[derive(Clone, Debug)]
pub struct Residency {
    settings: Settings,
    /// What this gateway may load on, if it is one of several.
    own: Option<Own>,
    /// The latest time seen; time never goes back.
    now: Mono,
    replicas: BTreeMap<ReplicaIx, Replica>,
    versions: BTreeMap<VersionIx, VersionInfo>,
    history: BTreeMap<(ReplicaIx, VersionIx), History>,
    ops: BTreeMap<Op, InFlight>,
    next_op: u64,
    /// Loads in flight by server: apart from `replicas`, because a load outlives the removal of its replica.
    loading: BTreeMap<ServerIx, u32>,
    /// Loads over their time that have not ended.
    overdue: BTreeSet<Op>,
    demands: BTreeMap<u64, Demand>,
    demand_of: BTreeMap<(VersionIx, Box<[ReplicaIx]>), u64>,
    next_demand: u64,
    waiters: BTreeMap<WaiterId, (u64, Mono)>,
    deadlines: BTreeSet<(Mono, WaiterId)>,
    pool_load_time: BTreeMap<PoolIx, Duration>,
    /// Request-driven loads since the last warm-up.
    streak: u32,
    warm_ups: u64,
    /// Hidden, and not yet reported as drained; apart from the entries, because requests may outlive one.
    undrained: BTreeSet<(ReplicaIx, VersionIx)>,
    /// Entries in `Phase::Hiding`.
    hiding: BTreeSet<(ReplicaIx, VersionIx)>,
    /// Verifications to be made again.
    reprove: BTreeSet<(Mono, ReplicaIx, VersionIx)>,
    /// Moments at which a back-off or a guard ends.
    look_again: BTreeSet<Mono>,
    /// When to look again at what is blocked by use, of which no event tells.
    recheck: Option<Mono>,
    pruned: Mono,
}

impl Residency {
    /// An empty machine.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            own: None,
            now: Mono::ZERO,
            replicas: BTreeMap::new(),
            versions: BTreeMap::new(),
            history: BTreeMap::new(),
            ops: BTreeMap::new(),
            next_op: 0,
            loading: BTreeMap::new(),
            overdue: BTreeSet::new(),
            demands: BTreeMap::new(),
            demand_of: BTreeMap::new(),
            next_demand: 0,
            waiters: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            pool_load_time: BTreeMap::new(),
            streak: 0,
            warm_ups: 0,
            undrained: BTreeSet::new(),
            hiding: BTreeSet::new(),
            reprove: BTreeSet::new(),
            look_again: BTreeSet::new(),
            recheck: None,
            pruned: Mono::ZERO,
        }
    }

    /// Takes an event in and appends what is to be done to `out`, in the order in which it is to be done.
    pub fn apply(&mut self, now: Mono, event: Event, usage: &dyn Usage, out: &mut Vec<Effect>) {
        self.apply_all(now, [event], usage, out);
    }

    /// Takes several events in at one moment. What can be started is looked for once, after the last: a configuration is many events.
    pub fn apply_all(
        &mut self,
        now: Mono,
        events: impl IntoIterator<Item = Event>,
        usage: &dyn Usage,
        out: &mut Vec<Effect>,
    ) {
        self.now = self.now.max(now);
        let cx = &mut Cx { now: self.now, usage, out };
        let mut changed = false;
        for event in events {
            changed |= self.take_in(cx, event);
        }
        let due = self.expire(cx);
        if changed || due {
            self.pump(cx);
        }
    }

    /// Carries the event into the state. True: something may be startable or hopeless that was not before.
    fn take_in(&mut self, cx: &mut Cx, event: Event) -> bool {
        match event {
            Event::SetSettings(settings) => self.settings = settings,
            Event::SetOwn(own) => self.set_own(own),
            Event::Unsettled { replica, until } => self.unsettle(cx.now, replica, until),
            Event::Yield { replica, version, until, word } => self.yield_up(cx, (replica, version), until, word),
            Event::TakeUp { replica, version, over } => self.take_up(replica, version, over),
            Event::Reloads { replica, version } => self.reloads(cx, replica, version),
            Event::SetReplica { replica, spec } => self.set_replica(replica, spec),
            Event::RemoveReplica { replica } => self.remove_replica(cx, replica),
            Event::SetVersion { version, spec } => self.set_version(cx, version, spec),
            Event::RemoveVersion { version } => self.remove_version(cx, version),
            Event::SetWanted { replica, versions } => self.set_wanted(replica, versions),
            Event::SetKept { replica, versions } => self.set_kept(replica, versions),
            Event::Afresh { replica, version } => self.afresh(replica, version),
            Event::ReplicaUp { replica } => self.set_up(replica),
            Event::ReplicaDown { replica } => self.lose(cx, replica, false),
            Event::ObservationLost { replica } => self.lose(cx, replica, true),
            Event::Observed { replica, started, held, loading, strange } => {
                self.observed(cx, (replica, started), &held, &loading, strange);
            }
            Event::Missing { replica, version } => self.missing(cx, replica, version),
            Event::Want { waiter, version, candidates, deadline } => {
                return self.want(cx, waiter, version, candidates, deadline);
            }
            Event::Cancel { waiter } => return self.cancel(waiter),
            Event::LoadDone { op, result } => return self.load_done(cx, op, result),
            Event::Verified { op, proof } => return self.verified(cx, op, proof),
            Event::Drained { replica, version } => return self.drained(replica, version),
            Event::UnloadDone { op, result } => return self.unload_done(cx, op, result),
            Event::Quarantine { replica, version, why } => self.quarantine(cx, replica, version, why),
            Event::Released { replica, version } => self.released(cx, replica, version),
            Event::Renew { replica, version } => self.renew(cx, replica, version),
            Event::Tick => return false,
        }
        true
    }

    /// Ends what is over its time. True: something ended.
    fn expire(&mut self, cx: &mut Cx) -> bool {
        let mut due = self.expire_ops(cx);
        due |= self.expire_waiters(cx);
        while let Some((at, replica, version)) = self.reprove.first().copied().filter(|(at, ..)| *at <= cx.now) {
            self.reprove.remove(&(at, replica, version));
            self.verify(cx, replica, version);
        }
        while self.look_again.first().is_some_and(|at| *at <= cx.now) {
            self.look_again.pop_first();
            due = true;
        }
        if self.recheck.is_some_and(|at| at <= cx.now) {
            self.recheck = None;
            due = true;
        }
        self.prune(cx.now);
        due
    }

    /// The next moment at which `Tick` has something to do. A tick before it is harmless.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let makings = self.replicas.values().filter_map(|r| r.making.as_ref().map(|m| m.until));
        let ops = self.ops.iter().filter(|(op, _)| !self.overdue.contains(op)).map(|(_, o)| o.deadline);
        let waiter = self.deadlines.first().map(|(at, _)| *at);
        let reprove = self.reprove.first().map(|(at, ..)| *at);
        let single = [waiter, reprove, self.look_again.first().copied(), self.recheck];
        makings.chain(ops).chain(single.into_iter().flatten()).min()
    }

    /// The replicas that are up and show the version.
    pub fn holders(&self, version: VersionIx) -> impl Iterator<Item = ReplicaIx> {
        let shows = move |r: &Replica| r.entries.get(&version).is_some_and(|e| e.phase == Phase::Held);
        self.replicas.iter().filter(move |(_, r)| r.up && shows(r)).map(|(ix, _)| *ix)
    }

    /// The holders that are to stay: a copy that is kept only until others hold the version is none to rely on.
    pub(crate) fn lasting_holders(&self, version: VersionIx) -> impl Iterator<Item = ReplicaIx> {
        let lasts = move |r: &ReplicaIx| self.replicas.get(r).is_some_and(|r| !r.kept.contains(&version));
        self.holders(version).filter(lasts)
    }

    /// Whether the version is configured, or held or worked on somewhere although it is not.
    #[must_use]
    pub fn knows(&self, version: VersionIx) -> bool {
        self.versions.contains_key(&version)
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Loads in flight over all servers, whoever asked for them, but for those on a replica that is down or gone of which nothing is heard: servers
    /// that hang must not keep all others from loading.
    #[must_use]
    pub fn loads_in_flight(&self) -> u32 {
        if self.own.is_some() {
            let counted =
                self.ops.iter().filter(|(op, o)| o.kind == OpKind::Load && self.counts(o) && !self.is_lost(**op, o));
            return u32::try_from(counted.count()).unwrap_or(u32::MAX).saturating_add(self.strange_loads());
        }
        let all = self.loading.values().fold(0u32, |sum, n| sum.saturating_add(*n));
        all.saturating_sub(self.lost_loads()).saturating_add(self.strange_loads())
    }

    /// Loads in flight on the server of a replica.
    #[must_use]
    pub fn loads_on(&self, replica: ReplicaIx) -> u32 {
        self.replicas.get(&replica).map_or(0, |r| self.loads_of(r.spec.server).saturating_add(r.strange.loads))
    }

    /// Loads in flight on a server, under whatever name they were begun.
    #[must_use]
    pub fn loads_of(&self, server: ServerIx) -> u32 {
        self.loading.get(&server).copied().unwrap_or(0)
    }

    /// The sizes of all that a replica holds by the machine's account, what is loading or leaving included.
    #[must_use]
    pub fn held(&self, replica: ReplicaIx) -> Bytes {
        self.replicas.get(&replica).map_or(Bytes(0), Replica::held)
    }

    /// The time that a load of the version is expected to take in the pool: measured, else the pool's mean, else zero (optimistic: nothing
    /// is known that would justify a shed).
    #[must_use]
    pub fn expected_load(&self, pool: PoolIx, version: VersionIx) -> Duration {
        let own = self.versions.get(&version).and_then(|v| v.load_time);
        own.or_else(|| self.pool_load_time.get(&pool).copied()).unwrap_or(Duration::ZERO)
    }

    fn begin_op(&mut self, kind: OpKind, replica: ReplicaIx, version: VersionIx, limit: Duration) -> (Op, Mono) {
        let op = Op(self.next_op);
        self.next_op = self.next_op.wrapping_add(1);
        let deadline = self.now.after(limit);
        let server = self.replicas.get(&replica).map_or(ServerIx(u32::MAX), |r| r.spec.server);
        self.ops.insert(
            op,
            InFlight {
                kind,
                replica,
                server,
                version,
                since: self.now,
                deadline,
                answered: None,
                listed: false,
                ours: true,
                lingers: false,
            },
        );
        if kind == OpKind::Load {
            let count = self.loading.entry(server).or_default();
            *count = count.saturating_add(1);
        }
        (op, deadline)
    }

    fn end_op(&mut self, op: Op, kind: OpKind) -> Option<InFlight> {
        let done = *self.ops.get(&op).filter(|o| o.kind == kind)?;
        self.ops.remove(&op);
        if kind == OpKind::Load {
            self.overdue.remove(&op);
            let left = self.loads_of(done.server).saturating_sub(1);
            if left == 0 {
                self.loading.remove(&done.server);
            } else {
                self.loading.insert(done.server, left);
            }
        }
        Some(done)
    }

    /// Forgets what no longer matters, at most once in a thrash window.
    fn prune(&mut self, now: Mono) {
        let (window, backoff) = (self.settings.thrash_window, self.settings.backoff_max);
        if now.since(self.pruned) < window {
            return;
        }
        self.pruned = now;
        self.history.retain(|_, h| !h.stale(now, window, backoff));
    }
}
