//! What gateways ask one another: to load a version on a replica of theirs, and to let go of one that is about to be unloaded.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_placement::residency::{Event, Op, Outcome, ReplicaIx, Usage, VersionIx, WaiterId, Word};
use holdfast_types::Mono;

use super::gateway::{Gateway, Pair, Told, pair};
use super::reloads::Telling;
use super::server::Ask;
use super::world::{Ev, Process, World};
use super::{MS, Mistake, SECOND};

/// How long others may take to answer whether a version may go.
const MAY_GO: u64 = 2 * SECOND;
/// What was used this short a while ago is in use.
const IN_USE: u64 = SECOND;
/// How long a wish is told, and how long the one that it is told to works at it.
const WISH: u64 = 5 * SECOND;
/// Who is asked by others is given numbers of its own, apart from those of requests.
const OF_OTHERS: u64 = 1 << 62;

/// A version, and the replicas of which one is to load it.
pub(super) type Wished = (u32, Vec<usize>);
/// The candidates of one owner. None: nobody's.
pub(super) type Group = (Option<usize>, Vec<ReplicaIx>);

/// What became of a load that another gateway was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afar {
    Ready(usize),
    /// When to come again.
    Refused(u64),
    NotOwner,
    Silent,
}

/// One question to an owner, for all requests that wait for its answer.
struct Question {
    number: u64,
    since: Mono,
    requests: Vec<u64>,
}

/// An unload that others have to agree to.
struct Leaving {
    parting: Parting,
    asked: u64,
    silent: BTreeSet<usize>,
    gave: Vec<Process>,
    all: bool,
    others: Vec<usize>,
}

/// A version that is about to be unloaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parting {
    pub(super) from: Process,
    pub(super) op: Op,
    pub(super) pair: Pair,
    /// Numbers the question.
    word: u64,
    renews: bool,
}

/// Who said that it uses something no more, and what is to be unloaded.
#[derive(Clone, Debug, Default)]
pub(super) struct Consent {
    pub(super) gave: Vec<Process>,
    pub(super) decided: u64,
    /// The copy is wrong by the account of its owner: it is no holder.
    pub(super) renews: bool,
}

/// What a gateway has asked others, and they it.
#[derive(Default)]
pub(super) struct Company {
    questions: BTreeMap<(u32, usize), Question>,
    for_others: BTreeMap<u64, (Process, u64)>,
    leaving: BTreeMap<Op, Leaving>,
    wishes: BTreeMap<Wished, u64>,
    granting: BTreeMap<Wished, u64>,
    pub(super) telling: BTreeMap<Op, Telling>,
}

impl World<'_> {
    /// A request waits for a version: those candidates first that belong to whoever has the first one.
    pub(super) fn wants_of_all(&mut self, ix: usize, number: u64, candidates: &[ReplicaIx]) {
        let owners = &self.gateways[ix].seat.owners;
        let mut groups: Vec<Group> = Vec::new();
        for replica in candidates {
            let owner = owners.get(replica.0 as usize).copied().flatten();
            match groups.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, members)) => members.push(*replica),
                None => groups.push((owner, vec![*replica])),
            }
        }
        groups.reverse();
        if let Some(request) = self.gateways[ix].requests.get_mut(&number) {
            (request.groups, request.all, request.refused) = (groups, candidates.to_vec(), None);
        }
        self.next_group(ix, number);
    }

    pub(super) fn next_group(&mut self, ix: usize, number: u64) {
        let local = self.local(ix);
        let Some(request) = self.gateways[ix].requests.get_mut(&number) else { return };
        let (version, deadline) = (request.version, request.deadline);
        let group = if local < deadline { request.groups.pop() } else { None };
        let (owner, members) = match (group, request.refused) {
            (Some(group), _) => group,
            (None, Some(wait)) => return self.refused(ix, number, wait),
            // No owner could be asked; it may have been told otherwise.
            (None, None) => (None, std::mem::take(&mut request.all)),
        };
        if members.is_empty() {
            return self.refused(ix, number, SECOND);
        }
        let owner = owner.filter(|owner| *owner != ix);
        (request.asked, request.waiting) = (owner, true);
        self.machine(
            ix,
            Event::Want {
                waiter: WaiterId(number),
                version: VersionIx(version),
                candidates: members.clone(),
                deadline,
            },
        );
        // It may have been answered at once.
        let waits = |r: &super::client::Request| r.asked == owner && r.is_waiting();
        let Some(owner) = owner.filter(|_| self.gateways[ix].requests.get(&number).is_some_and(waits)) else { return };
        let replicas: Vec<usize> = members.iter().map(|r| r.0 as usize).collect();
        if !self.setup.peers {
            self.gateways[ix].company.wishes.insert((version, replicas), self.now + WISH);
            return self.afar(ix, number, owner, Afar::NotOwner);
        }
        self.asks_owner(ix, number, owner, (version, replicas), deadline);
    }

    fn asks_owner(&mut self, ix: usize, request: u64, owner: usize, wish: Wished, deadline: Mono) {
        let (key, from, within) = ((wish.0, owner), self.process_of(ix), deadline.0 - self.local(ix).0);
        if let Some(known) = self.gateways[ix].company.questions.get_mut(&key) {
            return known.requests.push(request);
        }
        let (number, since) = (self.number(), self.local(ix));
        self.gateways[ix].company.questions.insert(key, Question { number, since, requests: vec![request] });
        self.calls(ix, owner, Told::Load { from, number, wish, within });
        let what = Told::Answer { owner, number, afar: Afar::Silent };
        self.queue.put(self.now + within + 50 * MS, Ev::Gateway { to: from, what });
    }

    /// An owner has answered, or its time is over.
    pub(super) fn owner_answers(&mut self, ix: usize, owner: usize, number: u64, afar: Afar) {
        let questions = &mut self.gateways[ix].company.questions;
        let Some(key) = questions.iter().find(|(_, q)| q.number == number).map(|(key, _)| *key) else { return };
        let Some(question) = questions.remove(&key) else { return };
        if let Afar::Ready(replica) = afar {
            let (replica, version) = pair(replica, key.0);
            self.machine(ix, Event::TakeUp { replica, version, over: Word::Before(question.since) });
            self.poll(ix, replica.0 as usize);
        }
        for request in question.requests {
            self.afar(ix, request, owner, afar);
        }
    }

    /// What a request makes of it, if it still waits for that.
    fn afar(&mut self, ix: usize, number: u64, owner: usize, afar: Afar) {
        let Some(request) = self.gateways[ix].requests.get_mut(&number) else { return };
        if request.asked != Some(owner) || !request.is_waiting() {
            return;
        }
        match afar {
            Afar::Ready(_) => return,
            Afar::Refused(wait) => request.refused = Some(request.refused.map_or(wait, |known| known.min(wait))),
            Afar::NotOwner | Afar::Silent => {}
        }
        request.waiting = false;
        self.machine(ix, Event::Cancel { waiter: WaiterId(number) });
        self.next_group(ix, number);
    }

    /// Another gateway would have a version loaded here.
    pub(super) fn loads_for(&mut self, ix: usize, from: Process, number: u64, wish: &Wished, within: u64) {
        let local = self.local(ix);
        let mine = |r: &usize| self.gateways[ix].machine.owns_at(local, pair(*r, 0).0);
        let candidates: Vec<ReplicaIx> = wish.1.iter().copied().filter(mine).map(|r| pair(r, 0).0).collect();
        if candidates.is_empty() {
            return self.answers(ix, from, number, Afar::NotOwner);
        }
        let waiter = OF_OTHERS + self.number();
        self.gateways[ix].company.for_others.insert(waiter, (from, number));
        let (waiter, version, deadline) = (WaiterId(waiter), VersionIx(wish.0), Mono(local.0 + within));
        self.machine(ix, Event::Want { waiter, version, candidates, deadline });
    }

    fn answers(&mut self, ix: usize, to: Process, number: u64, afar: Afar) {
        if !self.cut_peers(ix, to.ix) {
            self.tell_gateway(to, Told::Answer { owner: ix, number, afar });
        }
    }

    /// Whether this was somebody else's wait: then that one is answered.
    pub(super) fn woken_for_others(&mut self, ix: usize, waiter: WaiterId, outcome: &Outcome) -> bool {
        let Some((to, number)) = self.gateways[ix].company.for_others.remove(&waiter.0) else { return false };
        let afar = match outcome {
            Outcome::Ready(replica) => Afar::Ready(replica.0 as usize),
            Outcome::Shed { retry_after, .. } => {
                Afar::Refused(u64::try_from(retry_after.as_nanos()).unwrap_or(u64::MAX).min(10 * SECOND))
            }
            Outcome::Failed { .. } => Afar::Refused(5 * SECOND),
        };
        // Nobody waits for what was only wished.
        if number > 0 {
            self.answers(ix, to, number, afar);
        }
        true
    }

    /// What a gateway would have others load, and cannot ask them for.
    pub(super) fn wishes(&mut self, ix: usize) -> Vec<Wished> {
        let (now, wishes) = (self.now, &mut self.gateways[ix].company.wishes);
        wishes.retain(|_, until| *until > now);
        wishes.keys().cloned().collect()
    }

    /// Others wish for these, as a control plane says again and again.
    pub(super) fn grants(&mut self, ix: usize, wishes: Vec<Wished>) {
        for wish in wishes {
            let now = self.now;
            let granting = &mut self.gateways[ix].company.granting;
            granting.retain(|_, until| *until > now);
            if granting.insert(wish.clone(), now + WISH).is_none() {
                let me = self.process_of(ix);
                self.loads_for(ix, me, 0, &wish, WISH);
            }
        }
    }

    /// A version is to be unloaded: all others are asked first.
    pub(super) fn asks_to_let_go(&mut self, ix: usize, op: Op, place: Pair) {
        let (local, from) = (self.local(ix), self.process_of(ix));
        let peers = self.gateways[ix].seat.holder.peers().map(|seat| seat.name.clone());
        let others: Vec<usize> = peers.filter_map(|name| self.names.gateways.binary_search(&name).ok()).collect();
        let renews = self.gateways[ix].machine.renews(place.0, place.1);
        let parting = Parting { from, op, pair: place, word: self.number(), renews };
        let leaving = Leaving {
            parting,
            asked: local.0,
            silent: others.iter().copied().collect(),
            gave: Vec::new(),
            all: true,
            others: others.clone(),
        };
        self.gateways[ix].company.leaving.insert(op, leaving);
        for other in others {
            self.calls(ix, other, Told::Leave { parting, back: false });
        }
        self.queue.put(self.now + MAY_GO, Ev::Gateway { to: from, what: Told::LeaveOver(op) });
        self.lets_go(ix, op, false);
    }

    /// The owner of a replica is about to unload a version there, or does not do so after all.
    pub(super) fn leaves_for(&mut self, ix: usize, parting: Parting, back: bool) {
        let local = self.local(ix);
        let Parting { from, op, pair: (replica, version), word, renews } = parting;
        if back {
            self.machine(ix, Event::TakeUp { replica, version, over: Word::Number(word) });
            return self.poll(ix, replica.0 as usize);
        }
        let g = &self.gateways[ix];
        let used: &dyn Usage = &g.counts;
        let lately = used.last_used(replica, version).is_some_and(|at| local.0.saturating_sub(at.0) < IN_USE);
        let relies = !renews && g.machine.relies_on(replica, version);
        let breaks = self.setup.mistake == Some(Mistake::BreaksItsWord);
        let yes = breaks || (used.in_flight(replica, version) == 0 && !lately && !relies);
        if yes && !breaks {
            let until = Mono(local.0 + Gateway::STEP);
            self.machine(ix, Event::Yield { replica, version, until, word });
        }
        self.note(|| {
            let (number, says) = (version.0 + 1, if yes { "lets go of" } else { "uses" });
            format!("gateway {ix} {says} version {number} on replica {}", replica.0)
        });
        if !self.cut_peers(ix, from.ix) {
            let by = self.process_of(ix);
            self.tell_gateway(from, Told::Left { op, by, yes });
        }
    }

    /// Another gateway has answered whether a version may go.
    pub(super) fn hears_of_leaving(&mut self, ix: usize, op: Op, by: Process, yes: bool) {
        let Some(leaving) = self.gateways[ix].company.leaving.get_mut(&op) else { return };
        if leaving.silent.remove(&by.ix) {
            leaving.all &= yes;
            leaving.gave.extend(yes.then_some(by));
        }
        self.lets_go(ix, op, false);
    }

    /// Unloads what all have let go of.
    pub(super) fn lets_go(&mut self, ix: usize, op: Op, over: bool) {
        let local = self.local(ix);
        let leaving = &mut self.gateways[ix].company.leaving;
        if leaving.get(&op).is_none_or(|l| !l.silent.is_empty() && !over) {
            return;
        }
        let Some(Leaving { parting, asked, silent, gave, all, others }) = leaving.remove(&op) else { return };
        let place = parting.pair;
        // A word is good for a while; who stood still does not know for how long it has been.
        let all = all && silent.is_empty() && local.0.saturating_sub(asked) <= MAY_GO;
        if all && self.gateways[ix].machine.owns_at(local, place.0) {
            let decided = self.now;
            self.consents.insert((self.process_of(ix), op), Consent { gave, decided, renews: parting.renews });
            return self.ask(ix, place.0.0 as usize, Ask::Unload { op, version: place.1.0 });
        }
        for other in others {
            self.calls(ix, other, Told::Leave { parting, back: true });
        }
        self.machine(ix, Event::UnloadDone { op, result: Err("another gateway uses it".to_owned()) });
    }
}
