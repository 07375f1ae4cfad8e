//! The promises of residency as predicates, for tests, simulation and production alike.
//!
//! A [`Witness`] sees what the driver sees, events and effects, and keeps its own books from them. So it does not repeat the machine's own
//! accounting but checks it. Feed it every event before `apply` and every batch of effects after it.
//!
//! # LOAD-1 of one of several gateways
//!
//! Two things it leaves to [`crate::seats::promises`], which looks at what servers are doing:
//!
//! - *The bound of the fleet.* What others load it sees with its polls, late and in part, so a sum of what it has seen proves nothing: two polls may show
//!   loads of which the first had ended when the second began. It holds the gateway to its part; that all parts and what former owners have left
//!   are within the bound is looked at over all servers whenever a load begins.
//! - *A load on a replica that is down, once its call was answered or its time is over.* Nothing more is heard of it, and for the fleet it is not waited
//!   for (or a server that hangs would keep all others from loading); on its own server it counts. Over all servers such a load is left
//!   out exactly as long: while the gateway that asked for it does not count it ([`Witness::counts`]), or, if that process is gone, while somebody
//!   who may start loads does not reach the server. The bound of the server is looked at with every load, heard of or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use holdfast_types::{Invariant, Mono};

use crate::residency::{
    Effect, Event, Mode, Op, Outcome, Own, Proof, ReplicaIx, ReplicaSpec, Residency, ServerIx, Settings, Turn, Usage,
    VersionIx, VersionSpec, WaiterId,
};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub invariant: Invariant,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

impl std::error::Error for Violation {}

fn hold(condition: bool, invariant: Invariant, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(Violation { invariant, what: what() }) }
}

type Pair = (ReplicaIx, VersionIx);

#[derive(Clone, Debug)]
struct Waiter {
    version: VersionIx,
    candidates: Vec<ReplicaIx>,
    deadline: Mono,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    /// None: nobody here asked for it.
    op: Option<Op>,
    pair: Pair,
    server: ServerIx,
    deadline: Mono,
    heard: Heard,
    /// The server's index has shown it.
    listed: bool,
}

/// Who tells that a load has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Its answer.
    Answer,
    /// Polls from this very moment on, which `effects` tells.
    Index,
    /// Polls that begin at this moment or later.
    IndexSince(Mono),
}

/// Books kept from events and effects alone.
#[derive(Clone, Debug)]
pub struct Witness {
    settings: Settings,
    /// What the gateway may load on, if it is one of several.
    own: Option<Own>,
    replicas: BTreeMap<ReplicaIx, ReplicaSpec>,
    versions: BTreeMap<VersionIx, VersionSpec>,
    waiters: BTreeMap<WaiterId, Waiter>,
    /// Where a request or a wanted set ever asked for a version.
    asked: BTreeSet<Pair>,
    loads: Vec<Load>,
    /// The places of what pins are on their way to, on each replica.
    coming: BTreeMap<ReplicaIx, BTreeMap<VersionIx, u32>>,
    /// Loads of names that no version has.
    strange: BTreeMap<ReplicaIx, u32>,
    verifications: BTreeMap<Op, Pair>,
    /// Copies that answered or proved wrong, and have not been shown since: they serve nobody, so they are no holders.
    wrong: BTreeSet<Pair>,
    /// Configured and not down.
    up: BTreeSet<ReplicaIx>,
    shown: BTreeSet<Pair>,
    /// Shown once, hidden since, and not yet reported as drained.
    undrained: BTreeSet<Pair>,
}

impl Witness {
    /// A witness of a machine with these settings, from its start.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            own: None,
            replicas: BTreeMap::new(),
            versions: BTreeMap::new(),
            waiters: BTreeMap::new(),
            asked: BTreeSet::new(),
            loads: Vec::new(),
            coming: BTreeMap::new(),
            strange: BTreeMap::new(),
            verifications: BTreeMap::new(),
            wrong: BTreeSet::new(),
            up: BTreeSet::new(),
            shown: BTreeSet::new(),
            undrained: BTreeSet::new(),
        }
    }

    /// The flag "holds" of a version on a replica, as the effects have set it.
    #[must_use]
    pub fn shows(&self, replica: ReplicaIx, version: VersionIx) -> bool {
        self.shown.contains(&(replica, version))
    }

    /// Requests that have no answer yet.
    pub fn waiting(&self) -> impl Iterator<Item = WaiterId> {
        self.waiters.keys().copied()
    }

    /// Whether a load that this machine has asked for takes something of its part: whoever adds up what a fleet loads counts it for as long.
    #[must_use]
    pub fn counts(&self, now: Mono, op: Op) -> bool {
        self.loads.iter().any(|load| load.op == Some(op) && self.is_heard_of(now, load))
    }

    /// Takes an event in, before the machine does.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::SetSettings(settings) => self.settings = settings.clone(),
            Event::SetOwn(own) => self.own.clone_from(own),
            Event::SetReplica { replica, spec } => {
                let known = self.replicas.insert(*replica, spec.clone());
                self.up.extend(known.is_none().then_some(*replica));
            }
            Event::RemoveReplica { replica } => {
                self.replicas.remove(replica);
                self.up.remove(replica);
                self.strange.remove(replica);
                self.hand_on(|l| l.pair.0 == *replica && l.heard != Heard::Answer);
            }
            Event::ReplicaUp { replica } if self.replicas.contains_key(replica) => drop(self.up.insert(*replica)),
            Event::ReplicaDown { replica } => drop(self.up.remove(replica)),
            Event::Observed { replica, started, held, loading, strange } if self.up.contains(replica) => {
                self.observed((*replica, *started), held, loading);
                self.strange.insert(*replica, strange.loads);
            }
            Event::SetVersion { version, spec } => drop(self.versions.insert(*version, spec.clone())),
            Event::RemoveVersion { version } => drop(self.versions.remove(version)),
            Event::SetWanted { replica, versions } => {
                self.asked.extend(versions.iter().map(|(v, _)| (*replica, *v)));
                let place = |(version, turn): &(VersionIx, Turn)| match turn {
                    Turn::Coming(place) => Some((*version, *place)),
                    Turn::Pinned | Turn::Retained => None,
                };
                self.coming.insert(*replica, versions.iter().filter_map(place).collect());
            }
            Event::Want { waiter, version, candidates, deadline } => {
                self.asked.extend(candidates.iter().map(|r| (*r, *version)));
                let new = Waiter { version: *version, candidates: candidates.clone(), deadline: *deadline };
                self.waiters.entry(*waiter).or_insert(new);
            }
            Event::Cancel { waiter } => drop(self.waiters.remove(waiter)),
            Event::Quarantine { replica, version, .. } => drop(self.wrong.insert((*replica, *version))),
            Event::Verified { op, proof } => {
                let pair = self.verifications.remove(op);
                self.wrong.extend(pair.filter(|_| matches!(proof, Proof::Wrong(_))));
            }
            Event::LoadDone { op, result: Ok(_) } => {
                self.loads.retain(|l| l.op != Some(*op) || l.heard != Heard::Answer);
            }
            Event::LoadDone { op, result: Err(_) } => self.refused(*op),
            Event::Drained { replica, version } => drop(self.undrained.remove(&(*replica, *version))),
            _ => {}
        }
    }

    /// A load over its time has ended when a poll that began later shows the version; one that was answered, when it is not listed. What is listed as being
    /// loaded is, whatever else the poll says of it.
    fn observed(&mut self, (replica, started): (ReplicaIx, Mono), held: &[VersionIx], loading: &[VersionIx]) {
        self.loads.iter_mut().filter(|l| l.pair.0 == replica).for_each(|l| l.listed |= loading.contains(&l.pair.1));
        self.loads.retain(|l| match l.heard {
            _ if l.pair.0 != replica => true,
            Heard::Answer => {
                let (is_held, listed) = (held.contains(&l.pair.1), loading.contains(&l.pair.1));
                l.deadline > started || listed || !(is_held || l.listed)
            }
            Heard::Index => true,
            Heard::IndexSince(at) => at > started || loading.contains(&l.pair.1),
        });
        let Some(server) = self.replicas.get(&replica).map(|s| s.server) else { return };
        for version in loading.iter().copied() {
            if !self.loads.iter().any(|l| l.server == server && l.pair.1 == version) {
                let heard = Heard::IndexSince(started);
                self.loads.push(Load {
                    op: None,
                    pair: (replica, version),
                    server,
                    deadline: started,
                    heard,
                    listed: true,
                });
            }
        }
    }

    /// The answer to a load was an error: the index tells when it has ended.
    fn refused(&mut self, op: Op) {
        for load in self.loads.iter_mut().filter(|l| l.op == Some(op) && l.heard == Heard::Answer) {
            load.heard = Heard::Index;
        }
        let known: BTreeSet<ReplicaIx> = self.replicas.keys().copied().collect();
        self.hand_on(|l| l.op == Some(op) && !known.contains(&l.pair.0));
    }

    /// Of loads on a replica that is gone its server's next name is asked, if there is one.
    fn hand_on(&mut self, concerns: impl Fn(&Load) -> bool) {
        let Self { loads, replicas, .. } = self;
        loads.retain_mut(|load| {
            if !concerns(load) {
                return true;
            }
            let heir = replicas.iter().find(|(_, s)| s.server == load.server).map(|(ix, _)| *ix);
            load.pair.0 = heir.unwrap_or(load.pair.0);
            heir.is_some()
        });
    }

    /// Checks the effects of one `apply` at `now`, in order.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn effects(
        &mut self,
        now: Mono,
        effects: &[Effect],
        after: &Residency,
        usage: &dyn Usage,
    ) -> Result<(), Violation> {
        for load in self.loads.iter_mut().filter(|l| l.heard == Heard::Index) {
            load.heard = Heard::IndexSince(now);
        }
        for effect in effects {
            match effect {
                Effect::Load { op, replica, version, deadline } => {
                    let server = self.replicas.get(replica).map_or(ServerIx(u32::MAX), |s| s.server);
                    let (pair, deadline, heard) = ((*replica, *version), *deadline, Heard::Answer);
                    self.loads.push(Load { op: Some(*op), pair, server, deadline, heard, listed: false });
                    self.load(now, *replica, *version, after)?;
                }
                Effect::Show { replica, version } => {
                    self.shown.insert((*replica, *version));
                    self.wrong.remove(&(*replica, *version));
                }
                Effect::Hide { replica, version } => {
                    if self.shown.remove(&(*replica, *version)) {
                        self.undrained.insert((*replica, *version));
                    }
                }
                Effect::Unload { replica, version, .. } => self.unload(*replica, *version, after, usage)?,
                Effect::Wake { waiter, outcome } => self.wake(now, *waiter, outcome)?,
                Effect::Verify { op, replica, version, .. } => {
                    self.verifications.insert(*op, (*replica, *version));
                }
                Effect::Alarm(_) => {}
            }
        }
        // Nothing is asked of a replica that is no longer configured, and nothing is expected of it.
        self.undrained.retain(|(r, _)| self.replicas.contains_key(r));
        self.waits(now, after)
    }

    /// LOAD-1, and a load is only where somebody asked for it, where it is not in service already, and where it fits.
    fn load(&self, now: Mono, replica: ReplicaIx, version: VersionIx, after: &Residency) -> Result<(), Violation> {
        let spec = self.replicas.get(&replica);
        let here = self.loads.iter().filter(|l| spec.is_some_and(|s| s.server == l.server)).count();
        let here = here + self.strange.get(&replica).map_or(0, |n| *n as usize);
        let bound = spec.map_or(0, |s| s.max_loads) as usize;
        hold(here <= bound, Invariant::Load1, || format!("{here} loads on {replica:?}, the bound is {bound}"))?;
        let (all, fleet) = (self.in_flight(now), self.settings.fleet_loads as usize);
        // One of several sees what others load with its polls, and late; its own part is looked at below, and the sum of all by who sees all
        // ([`crate::seats::promises`]).
        let alone = self.own.is_none();
        hold(!alone || all <= fleet, Invariant::Load1, || format!("{all} loads in the fleet, the bound is {fleet}"))?;
        self.owned(now, replica)?;
        let asked = self.asked.contains(&(replica, version)) && spec.is_some_and(|s| s.loads);
        hold(asked, Invariant::Load1, || format!("{version:?} loads on {replica:?}, where nobody may use it"))?;
        let serves = self.shown.contains(&(replica, version));
        hold(!serves, Invariant::Load2, || format!("{version:?} loads on {replica:?} while it is in service there"))?;
        let (held, memory) = (after.held(replica), spec.and_then(|s| s.memory));
        hold(memory.is_none_or(|m| held <= m), Invariant::Load2, || {
            format!("{replica:?} is to hold {held} of {memory:?}")
        })
    }

    /// One of several gateways loads on its own servers alone, while its lease lasts, and within its part.
    fn owned(&self, now: Mono, replica: ReplicaIx) -> Result<(), Violation> {
        let Some(own) = &self.own else { return Ok(()) };
        let holds = own.replicas.contains(&replica) && now < own.until;
        hold(holds, Invariant::Load1, || format!("a load on {replica:?}, which is not this gateway's to load on"))?;
        let ours = self.loads.iter().filter(|l| l.op.is_some() && self.is_heard_of(now, l)).count();
        hold(ours <= own.part as usize, Invariant::Load1, || {
            format!("{ours} loads, the gateway's part is {}", own.part)
        })
    }

    /// Loads that count for the fleet: all, but for those on a replica that is down or gone that are over their time or were answered.
    fn in_flight(&self, now: Mono) -> usize {
        let strange = self.strange.iter().filter(|(r, _)| self.up.contains(r)).map(|(_, n)| *n as usize);
        self.loads.iter().filter(|l| self.is_heard_of(now, l)).count() + strange.sum::<usize>()
    }

    fn is_heard_of(&self, now: Mono, load: &Load) -> bool {
        (load.heard == Heard::Answer && load.deadline > now) || self.up.contains(&load.pair.0)
    }

    /// LOAD-2.
    fn unload(
        &self,
        replica: ReplicaIx,
        version: VersionIx,
        after: &Residency,
        usage: &dyn Usage,
    ) -> Result<(), Violation> {
        let pair = (replica, version);
        let idle = !self.shown.contains(&pair) && !self.undrained.contains(&pair);
        hold(idle, Invariant::Load2, || format!("{version:?} leaves {replica:?} before it is hidden and drained"))?;
        let users = usage.in_flight(replica, version);
        hold(users == 0, Invariant::Load2, || {
            format!("{version:?} leaves {replica:?} with {users} requests in flight")
        })?;
        let guaranteed = self.replicas.get(&replica).is_some_and(|s| s.mode == Mode::Guaranteed);
        let pinned = self.versions.get(&version).is_some_and(|s| s.pinned);
        let others = after.holders(version).any(|r| r != replica);
        let what = || format!("the last holder {replica:?} of the pinned {version:?} unloads it");
        let kept = guaranteed && pinned && !self.gives_way(pair);
        hold(!kept || others || !self.may_hold(pair), Invariant::Load2, what)
    }

    /// It is in no pin in force yet, and one that comes before it is to be loaded on the replica.
    fn gives_way(&self, (replica, version): Pair) -> bool {
        let coming = self.coming.get(&replica);
        let place = coming.and_then(|all| all.get(&version)).copied().unwrap_or_default();
        place > 0 && coming.is_some_and(|all| all.values().any(|other| *other < place))
    }

    /// A copy that was never shown serves nobody, so it is no holder.
    fn may_hold(&self, pair: Pair) -> bool {
        self.asked.contains(&pair) && !self.wrong.contains(&pair)
    }

    fn wake(&mut self, now: Mono, waiter: WaiterId, outcome: &Outcome) -> Result<(), Violation> {
        let Some(asked) = self.waiters.remove(&waiter) else {
            return Err(Violation {
                invariant: Invariant::Acct1,
                what: format!("{waiter:?} is answered, but does not wait"),
            });
        };
        hold(now <= asked.deadline || asked.deadline == Mono::ZERO, Invariant::Acct1, || {
            format!("{waiter:?} is answered {:?} after its deadline", now.since(asked.deadline))
        })?;
        let Outcome::Ready(replica) = outcome else { return Ok(()) };
        let holds = asked.candidates.contains(replica) && self.shown.contains(&(*replica, asked.version));
        hold(holds, Invariant::Pin1, || {
            format!("{waiter:?} is sent to {replica:?}, which does not hold {:?}", asked.version)
        })
    }

    /// Everybody who waits is known, and no deadline passes without a tick.
    fn waits(&self, now: Mono, after: &Residency) -> Result<(), Violation> {
        let (ours, theirs) = (self.waiters.len(), after.waiting());
        hold(ours == theirs, Invariant::Acct1, || format!("{ours} requests wait, the machine knows {theirs}"))?;
        let first = self.waiters.values().map(|w| w.deadline).min();
        let tick = after.next_deadline();
        hold(first.is_none() || tick.is_some_and(|t| Some(t) <= first), Invariant::Acct1, || {
            format!("the next tick is {tick:?}, the next deadline {first:?}")
        })?;
        hold(tick.is_none_or(|t| t > now), Invariant::Acct1, || format!("the tick at {now:?} left work for {tick:?}"))?;
        let (ours, theirs) = (self.in_flight(now), after.loads_in_flight() as usize);
        // Of several gateways each counts for the fleet what takes something of its part.
        let agree = if self.own.is_some() { theirs <= ours } else { ours == theirs };
        hold(agree, Invariant::Acct1, || format!("{ours} loads are in flight, the machine counts {theirs}"))
    }
}
