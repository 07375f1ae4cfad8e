//! Clients and their submissions, and the way of a request through a gateway: one decision, a holder or a wait, attempts within the subset.

use std::sync::Arc;

use holdfast_decide::{Ask as Asked, Route, decide};
use holdfast_placement::choose::{Candidate, Choice, choose};
use holdfast_placement::health::HealthEvent;
use holdfast_placement::residency::{Event, Outcome, ReplicaIx, WaiterId};
use holdfast_types::{Mono, Revision, Weight};

use super::company::Group;
use super::gateway::{Pair, Told, pair};
use super::server::Ask;
use super::world::{Ev, Process, World};
use super::{MS, Mistake, SECOND};

/// How often a request may find that the holder it waited for is gone again.
const WAITS: u32 = 4;
/// Attempts after the first, within a gateway.
const ATTEMPTS: u32 = 2;

/// What a client wants an answer to.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub(super) tenant: usize,
    begun: u64,
    tries: u32,
    /// The version that it names by itself.
    named: Option<u32>,
    /// The version of a refusal's stamp: who tries again insists on it.
    stamped: Option<u32>,
}

/// A submission in a gateway.
pub(super) struct Request {
    submission: u64,
    pub(super) route: Arc<Route>,
    pub(super) revision: Revision,
    pub(super) version: u32,
    pub(super) deadline: Mono,
    tried: Vec<usize>,
    waits: u32,
    attempts: u32,
    /// Where it is being served.
    at: Option<Pair>,
    /// It waits for a version: at whom it asks now, whom next, and the mildest refusal so far.
    pub(super) waiting: bool,
    pub(super) asked: Option<usize>,
    pub(super) groups: Vec<Group>,
    pub(super) all: Vec<ReplicaIx>,
    pub(super) refused: Option<u64>,
}

impl Request {
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting
    }
}

impl World<'_> {
    /// A new submission, and the time of the next one.
    pub(super) fn arrives(&mut self) {
        if self.now < self.traffic_ends {
            let mean = SECOND / self.setup.rate.max(1);
            let at = self.now + self.chance.exponential(mean);
            self.queue.put(at, Ev::Arrives);
            self.submit();
        }
    }

    fn submit(&mut self) {
        let number = self.number();
        let tenant = usize::try_from(self.chance.below(self.setup.tenants as u64)).unwrap_or(0);
        let names = self.setup.names > 0 && self.now < self.calm_from && self.chance.one_in(self.setup.names);
        let named = names.then(|| u32::try_from(self.chance.below(u64::from(self.setup.versions))).unwrap_or(0));
        self.submissions.insert(number, Submission { tenant, begun: self.now, tries: 0, named, stamped: named });
        self.second().offered += 1;
        self.goes_to_a_gateway(number);
    }

    pub(super) fn goes_to_a_gateway(&mut self, submission: u64) {
        let up: Vec<usize> = (0..self.gateways.len()).filter(|ix| self.gateways[*ix].up).collect();
        if up.is_empty() {
            return self.comes_again(submission, SECOND);
        }
        let ix = up[usize::try_from(self.chance.below(up.len() as u64)).unwrap_or(0)];
        let (to, at) = (self.process_of(ix), self.after_delay());
        self.queue.put(at, Ev::Asks { to, submission });
    }

    /// The connection broke before the client was told anything: it cannot know what was resolved, so it begins anew.
    pub(super) fn client_broke(&mut self, submission: u64) {
        if self.submissions.contains_key(&submission) {
            self.gives_up(submission);
            if self.now < self.traffic_ends {
                self.submit();
            }
        }
    }

    fn comes_again(&mut self, submission: u64, wait: u64) {
        let retries = self.setup.retries;
        let Some(known) = self.submissions.get_mut(&submission) else { return };
        known.tries += 1;
        if known.tries > retries {
            return self.gives_up(submission);
        }
        self.second().retried += 1;
        self.queue.put(self.now + wait.max(SECOND), Ev::Again(submission));
    }

    pub(super) fn gives_up(&mut self, submission: u64) {
        self.submissions.remove(&submission);
        self.paths.ended(submission);
        self.second().failed += 1;
    }

    /// A submission reaches a gateway, and is resolved there: once.
    pub(super) fn asks(&mut self, ix: usize, submission: u64) {
        let Some(known) = self.submissions.get(&submission) else { return };
        let forgets = self.setup.mistake == Some(Mistake::ResolvesAgain);
        let stamped = if forgets { known.named } else { known.stamped };
        let version = stamped.and_then(|v| self.names.versions.get(v as usize).cloned());
        let name = submission.to_le_bytes();
        let asked = Asked {
            tenant: self.names.tenants[known.tenant].as_str(),
            model: self.names.model.as_str(),
            version: version.as_ref().map(|v| v.as_str()),
            submission: &name,
        };
        let Ok(decision) = decide(&self.gateways[ix].table, &asked) else { return self.gives_up(submission) };
        let checked = self.paths.resolved(submission, ix as u64, &decision);
        let (route, revision) = (decision.route.clone(), decision.revision);
        self.checked(checked);
        let Some(version) = self.names.version(&route.version) else { return };
        let deadline = Mono(self.local(ix).0 + self.setup.budget);
        let number = self.number();
        let request = Request {
            submission,
            route,
            revision,
            version,
            deadline,
            tried: Vec::new(),
            waits: 0,
            attempts: 0,
            at: None,
            waiting: false,
            asked: None,
            groups: Vec::new(),
            all: Vec::new(),
            refused: None,
        };
        self.gateways[ix].requests.insert(number, request);
        if self.setup.leaves > 0 && self.chance.one_in(self.setup.leaves) {
            let at = self.now + self.chance.exponential(SECOND);
            self.queue.put(at, Ev::Leaves { gateway: self.process_of(ix), request: number });
        }
        self.dispatch(ix, number);
    }

    fn dispatch(&mut self, ix: usize, number: u64) {
        let local = self.local(ix);
        let g = &self.gateways[ix];
        let Some(request) = g.requests.get(&number) else { return };
        let (version, members) = (request.version, self.members(ix, &request.route));
        let candidate = |at: &usize| {
            let (replica, v) = pair(*at, version);
            let usage: &dyn holdfast_placement::residency::Usage = &g.counts;
            let seen = &g.replicas[*at];
            Candidate {
                holds: g.witness.shows(replica, v),
                usable: seen.health.usable() && !request.tried.contains(at),
                cooling: false,
                in_flight: usage.replica_load(replica),
                reported: 0,
                weight: Weight(1),
                concurrency: None,
                ease: seen.health.ease(local),
            }
        };
        let candidates: Vec<Candidate> = members.iter().map(candidate).collect();
        let untried: Vec<ReplicaIx> =
            members.iter().filter(|m| !request.tried.contains(m)).map(|m| pair(*m, 0).0).collect();
        match choose(&candidates, self.chance.draw()) {
            Choice::Serve(at) => self.serve(ix, number, members[at]),
            Choice::Busy => self.refused(ix, number, SECOND),
            Choice::NoHolder => self.waits(ix, number, untried),
        }
    }

    fn members(&self, ix: usize, route: &Route) -> Vec<usize> {
        let order = route.order.iter().map(|r| *r as usize);
        let in_service = |r: &usize| self.gateways[ix].replicas.get(*r).is_some_and(|s| s.in_service);
        order.filter(in_service).take(usize::from(route.subset)).collect()
    }

    fn serve(&mut self, ix: usize, number: u64, replica: usize) {
        let local = self.local(ix);
        let g = &mut self.gateways[ix];
        let Some(request) = g.requests.get_mut(&number) else { return };
        let place = pair(replica, request.version);
        request.at = Some(place);
        let version = request.version;
        g.counts.enter(place, local);
        self.ask(ix, replica, Ask::Infer { request: number, version });
    }

    fn waits(&mut self, ix: usize, number: u64, candidates: Vec<ReplicaIx>) {
        let Some(request) = self.gateways[ix].requests.get_mut(&number) else { return };
        request.waits += 1;
        if candidates.is_empty() || request.waits > WAITS {
            return self.refused(ix, number, SECOND);
        }
        self.wants_of_all(ix, number, &candidates);
    }

    pub(super) fn woken(&mut self, ix: usize, waiter: WaiterId, outcome: Outcome) {
        if self.woken_for_others(ix, waiter, &outcome) {
            return;
        }
        let Some(request) = self.gateways[ix].requests.get_mut(&waiter.0) else { return };
        request.waiting = false;
        let wait = match outcome {
            Outcome::Ready(_) => return self.dispatch(ix, waiter.0),
            Outcome::Shed { retry_after, .. } => {
                u64::try_from(retry_after.as_nanos()).unwrap_or(u64::MAX).min(10 * SECOND)
            }
            Outcome::Failed { .. } => 5 * SECOND,
        };
        request.refused = Some(request.refused.map_or(wait, |known| known.min(wait)));
        self.next_group(ix, waiter.0);
    }

    /// The client is told no, and the version that it was resolved to.
    pub(super) fn refused(&mut self, ix: usize, number: u64, retry_after: u64) {
        let Some(request) = self.ends(ix, number) else { return };
        if let Some(known) = self.submissions.get_mut(&request.submission) {
            known.stamped = Some(request.version);
        }
        self.comes_again(request.submission, retry_after);
    }

    /// A request leaves the gateway; whatever it has counted goes with it.
    fn ends(&mut self, ix: usize, number: u64) -> Option<Request> {
        let request = self.gateways[ix].requests.remove(&number)?;
        if let Some(place) = request.at {
            self.leave(ix, place);
        }
        Some(request)
    }

    /// A client goes away in the middle.
    pub(super) fn leaves(&mut self, ix: usize, number: u64) {
        let Some(request) = self.ends(ix, number) else { return };
        if request.at.is_none() {
            self.machine(ix, Event::Cancel { waiter: WaiterId(number) });
        }
        self.gives_up(request.submission);
    }

    /// What a replica made of a request.
    pub(super) fn served(&mut self, ix: usize, told: Told) {
        let (Told::Inferred { request: number, replica, .. }
        | Told::NotLoaded { request: number, replica }
        | Told::Broke { request: number, replica }) = told
        else {
            return;
        };
        let Some(request) = self.gateways[ix].requests.get_mut(&number) else {
            return self.learn(ix, replica, None, &told);
        };
        let (version, place, late) = (request.version, request.at.take(), request.deadline);
        if let Some(place) = place {
            self.leave(ix, place);
        }
        if let Told::Inferred { named, weights, .. } = told
            && (named == version || self.setup.mistake == Some(Mistake::TrustsAnswers))
        {
            let served = if named == version { self.judged_by(ix, pair(replica, version), weights) } else { named };
            self.health(ix, replica, HealthEvent::AnswerOk);
            if self.local(ix) > late {
                return self.refused(ix, number, SECOND);
            }
            return self.answered(ix, number, served);
        }
        self.learn(ix, replica, Some(version), &told);
        self.tries_again(ix, number, replica, !matches!(told, Told::NotLoaded { .. }));
    }

    /// What a bad answer says of the replica.
    fn learn(&mut self, ix: usize, replica: usize, version: Option<u32>, told: &Told) {
        match (told, version) {
            (Told::Inferred { named, .. }, Some(version)) if *named != version => {
                self.tally.wrong += 1;
                self.quarantine(ix, pair(replica, version));
            }
            (Told::NotLoaded { .. }, Some(version)) => {
                let (number, v) = pair(replica, version);
                self.machine(ix, Event::Missing { replica: number, version: v });
                self.poll(ix, replica);
            }
            (Told::Broke { .. }, _) => {
                self.health(ix, replica, HealthEvent::TransportError);
                self.poll(ix, replica);
            }
            _ => {}
        }
    }

    fn tries_again(&mut self, ix: usize, number: u64, replica: usize, elsewhere: bool) {
        let local = self.local(ix);
        let Some(request) = self.gateways[ix].requests.get_mut(&number) else { return };
        request.attempts += 1;
        if elsewhere {
            request.tried.push(replica);
        }
        if request.attempts > ATTEMPTS || local.0 + 10 * MS > request.deadline.0 {
            return self.refused(ix, number, SECOND);
        }
        self.dispatch(ix, number);
    }

    fn answered(&mut self, ix: usize, number: u64, served: u32) {
        let Some(request) = self.gateways[ix].requests.remove(&number) else { return };
        let Some(version) = self.names.versions.get(served as usize) else { return };
        let checked = self.paths.answered(request.submission, ix as u64, version, request.revision);
        self.checked(checked);
        let Some(known) = self.submissions.remove(&request.submission) else { return };
        let newest = self.pin_of(&self.store.table, known.tenant) == Some(served);
        let took = self.now - known.begun;
        let second = self.second();
        second.answered += 1;
        second.newest += u64::from(newest);
        second.slowest = second.slowest.max(took);
    }

    /// A gateway's process is gone, and all connections to it.
    pub(super) fn gateway_dies(&mut self, ix: usize) {
        if !self.gateways[ix].up {
            return;
        }
        self.gateways[ix].up = false;
        self.note(|| format!("gateway {ix} dies"));
        let requests = std::mem::take(&mut self.gateways[ix].requests);
        for request in requests.into_values() {
            self.client_broke(request.submission);
        }
        let process: Process = self.process_of(ix);
        self.unlinked(process);
    }
}
