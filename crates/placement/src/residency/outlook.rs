//! When could a candidate serve a version? What is known of each, and of all together.

use std::cmp::Reverse;
use std::time::Duration;

use holdfast_types::Mono;

use super::Residency;
use super::effect::Shed;
use super::event::{ReplicaIx, VersionIx};
use super::ops::{FAILURES_ALARM, RECHECK};
use super::room::Room;
use super::state::{Cx, InFlight, OpKind, Phase};

/// The most demands that are looked through to see how long the queue before one is.
const QUEUE_SCAN: usize = 256;

/// One candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It serves the version.
    Ready,
    /// A load or proof is on its way; expected in this time.
    Coming(Duration),
    /// A load could start now, after these have gone; expected in this time.
    Start(Vec<VersionIx>, Duration),
    /// Not now, because of a bound or a back-off; expected in this time.
    Later(Duration, Shed),
    /// Loads have failed so often in a row that a request does not wait for the next attempt, which is in this time.
    Failing(Duration),
    /// Not now, and nothing says when.
    Blocked,
    /// Not in any foreseeable time.
    Never { why: Shed, retry: Duration, permanent: bool },
}

/// All candidates of a demand together.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) ready: Option<ReplicaIx>,
    pub(super) coming: Option<Duration>,
    pub(super) start: Option<(ReplicaIx, Vec<VersionIx>, Duration)>,
    pub(super) later: Option<(Duration, Shed)>,
    pub(super) blocked: bool,
    /// The next attempt on a candidate where loads fail again and again.
    pub(super) failing: Option<Duration>,
    never: Option<(Shed, Duration)>,
    /// A candidate that failed for good, if all that cannot serve failed for good.
    pub(super) failed: Option<ReplicaIx>,
}

impl View {
    /// No candidate can serve in any foreseeable time: why, and when to ask again.
    pub(super) fn hopeless(&self) -> Option<(Shed, Duration)> {
        let hope = self.ready.is_some() || self.coming.is_some() || self.start.is_some() || self.later.is_some();
        if hope || self.blocked {
            return None;
        }
        let failing = self.failing.map(|retry| (Shed::Backoff, retry));
        Some(failing.or(self.never).unwrap_or((Shed::NoReplica, Duration::ZERO)))
    }

    /// The shortest time in which some candidate is expected to serve.
    pub(super) fn eta(&self) -> Option<Duration> {
        let start = self.start.as_ref().map(|(.., eta)| *eta);
        [self.coming, start, self.later.map(|(eta, _)| eta)].into_iter().flatten().min()
    }
}

impl Residency {
    pub(super) fn view(&self, cx: &Cx, demand: Option<u64>, version: VersionIx, candidates: &[ReplicaIx]) -> View {
        let mut view = View::default();
        let mut all_permanent = true;
        // (evictions, loads, requests) of the candidate that could start: the least loaded loads, without evicting if that can be.
        let mut rank = (usize::MAX, u32::MAX, u32::MAX);
        for replica in candidates.iter().copied() {
            match self.outlook(cx, demand, replica, version) {
                Outlook::Ready => {
                    let load = |r: ReplicaIx| cx.usage.replica_load(r);
                    view.ready = Some(view.ready.filter(|r| load(*r) <= load(replica)).unwrap_or(replica));
                }
                Outlook::Coming(eta) => view.coming = Some(view.coming.map_or(eta, |c| c.min(eta))),
                Outlook::Start(victims, eta) => {
                    let new = (victims.len(), self.loads_on(replica), cx.usage.replica_load(replica));
                    if new < rank {
                        rank = new;
                        view.start = Some((replica, victims, eta));
                    }
                }
                Outlook::Later(eta, why) => view.later = Some(view.later.filter(|l| l.0 <= eta).unwrap_or((eta, why))),
                Outlook::Failing(retry) => {
                    all_permanent = false;
                    view.failing = Some(view.failing.map_or(retry, |f| f.min(retry)));
                }
                Outlook::Blocked => view.blocked = true,
                Outlook::Never { why, retry, permanent } => {
                    all_permanent &= permanent;
                    view.failed = permanent.then_some(replica).or(view.failed);
                    view.never = Some(view.never.map_or((why, retry), |n| weightier(n, (why, retry))));
                }
            }
        }
        view.failed = view.failed.filter(|_| all_permanent);
        view
    }

    pub(super) fn outlook(&self, cx: &Cx, demand: Option<u64>, replica: ReplicaIx, version: VersionIx) -> Outlook {
        let never = |why| Outlook::Never { why, retry: Duration::ZERO, permanent: false };
        let Some(r) = self.replicas.get(&replica).filter(|r| r.up) else { return never(Shed::NoReplica) };
        let expected = self.expected_load(r.spec.pool, version);
        if let Some(entry) = r.entries.get(&version) {
            return match entry.phase {
                Phase::Held => Outlook::Ready,
                Phase::Loading(op) if self.is_overdue(op) => Outlook::Failing(self.next_attempt(cx, replica, version)),
                Phase::Loading(_) => Outlook::Coming(expected.saturating_sub(cx.now.since(entry.since))),
                Phase::Unproven | Phase::Verifying(_) if entry.unknown_proofs == 0 => Outlook::Coming(Duration::ZERO),
                Phase::Unproven | Phase::Verifying(_) | Phase::Unknown => Outlook::Blocked,
                Phase::Hiding(_) | Phase::Unloading(..) => Outlook::Blocked,
                Phase::Quarantined => never(Shed::Quarantined),
            };
        }
        if !r.spec.loads || r.spec.max_loads == 0 {
            return if r.observed { never(Shed::Static) } else { Outlook::Blocked };
        }
        // Its owner may load it at any time.
        if !r.observed || r.unseen || !self.owns(replica) {
            return Outlook::Blocked;
        }
        if r.making.is_some_and(|m| m.version == version) {
            return Outlook::Coming(expected);
        }
        if let Some(past) = self.history.get(&(replica, version)).filter(|h| h.retry_at > cx.now) {
            let retry = past.retry_at.since(cx.now);
            if past.permanent {
                return Outlook::Never { why: Shed::Backoff, retry, permanent: true };
            }
            if past.failures >= FAILURES_ALARM {
                return Outlook::Failing(retry);
            }
            return Outlook::Later(retry.saturating_add(expected), Shed::Backoff);
        }
        self.outlook_of_load(cx, demand, replica, version, expected)
    }

    /// How long the back-off of a version on a replica lasts.
    fn next_attempt(&self, cx: &Cx, replica: ReplicaIx, version: VersionIx) -> Duration {
        self.history.get(&(replica, version)).map_or(Duration::ZERO, |h| h.retry_at.since(cx.now))
    }

    fn outlook_of_load(
        &self,
        cx: &Cx,
        demand: Option<u64>,
        replica: ReplicaIx,
        version: VersionIx,
        expected: Duration,
    ) -> Outlook {
        let never = |why, retry| Outlook::Never { why, retry, permanent: false };
        let room = self.plan_room(cx, replica, version, true);
        let victims = match room {
            Room::TooLarge | Room::Protected => return never(Shed::NoRoom, Duration::ZERO),
            Room::Guarded(until) => return never(Shed::Thrashing, until.since(cx.now)),
            Room::InUse => return Outlook::Blocked,
            Room::Free => Vec::new(),
            Room::Evict(victims) => victims,
            Room::Coming => {
                return Outlook::Later(self.slot_wait(cx, demand, replica).saturating_add(expected), Shed::Budget);
            }
        };
        if self.slot_free(replica) && self.fleet_free() {
            return Outlook::Start(victims, expected);
        }
        Outlook::Later(self.slot_wait(cx, demand, replica).saturating_add(expected), Shed::Budget)
    }

    /// A load may begin on the replica (LOAD-1). Room in the making takes a slot.
    pub(super) fn slot_free(&self, replica: ReplicaIx) -> bool {
        let Some(r) = self.replicas.get(&replica) else { return false };
        let taken = self.loads_on(replica).saturating_add(u32::from(r.making.is_some()));
        self.owns(replica) && taken < r.spec.max_loads
    }

    /// A load may begin anywhere (LOAD-1).
    pub(super) fn fleet_free(&self) -> bool {
        self.loads_in_flight().saturating_add(self.unseen_loads()) < self.bound()
    }

    /// Loads that may be in flight on replicas that have not been looked at yet: as many as each may have. One that is down counts no more.
    fn unseen_loads(&self) -> u32 {
        let unseen = self.replicas.iter().filter(|(_, r)| r.unseen && r.up && r.spec.loads);
        unseen.fold(0, |sum, (ix, r)| sum.saturating_add(r.spec.max_loads.saturating_sub(self.counted_on(*ix))))
    }

    /// How long until a slot is expected: until the next load ends, and as many mean loads as stand before this one in the queue.
    fn slot_wait(&self, cx: &Cx, demand: Option<u64>, replica: ReplicaIx) -> Duration {
        let Some(r) = self.replicas.get(&replica) else { return Duration::ZERO };
        let mean = self.pool_load_time.get(&r.spec.pool).copied().unwrap_or(Duration::ZERO);
        let fleet_full = !self.fleet_free();
        let here = |o: &InFlight| fleet_full || o.server == r.spec.server;
        let loads = self.ops.iter().filter(|(op, o)| o.kind == OpKind::Load && here(o) && !self.is_overdue(**op));
        let remaining = |began: Mono, of: ReplicaIx, v: VersionIx| {
            let pool = self.replicas.get(&of).map_or(r.spec.pool, |r| r.spec.pool);
            self.expected_load(pool, v).saturating_sub(cx.now.since(began))
        };
        let next = loads.map(|(_, o)| remaining(o.since, o.replica, o.version)).min().unwrap_or(Duration::ZERO);
        let before = self.demands.range(..demand.unwrap_or(u64::MAX)).take(QUEUE_SCAN);
        let ahead = before.filter(|(_, d)| {
            (fleet_full || d.candidates.contains(&replica)) && !self.on_its_way(d.version, &d.candidates)
        });
        let ahead = u32::try_from(ahead.count()).unwrap_or(u32::MAX);
        let servers = if fleet_full { self.bound() } else { r.spec.max_loads };
        next.saturating_add(mean.saturating_mul(ahead) / servers.max(1))
    }

    /// Some candidate loads or proves the version, or makes room for it.
    pub(super) fn on_its_way(&self, version: VersionIx, candidates: &[ReplicaIx]) -> bool {
        candidates.iter().filter_map(|c| self.replicas.get(c)).filter(|r| r.up).any(|r| {
            let making = r.making.is_some_and(|m| m.version == version);
            making
                || r.entries.get(&version).is_some_and(|e| match e.phase {
                    Phase::Loading(op) => !self.is_overdue(op),
                    Phase::Held => true,
                    Phase::Unproven | Phase::Verifying(_) => e.unknown_proofs == 0,
                    _ => false,
                })
        })
    }

    /// What is blocked by use is looked at again soon, since no event tells when the use ends.
    pub(super) fn recheck_soon(&mut self, now: Mono) {
        self.recheck_at(now.after(RECHECK));
    }
}

/// The reason that says more; of one reason, what ends first.
fn weightier(a: (Shed, Duration), b: (Shed, Duration)) -> (Shed, Duration) {
    if (a.0, Reverse(a.1)) >= (b.0, Reverse(b.1)) { a } else { b }
}
