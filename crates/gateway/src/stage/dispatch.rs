//! Dispatch: which replica serves the request? The least loaded of the subset that holds the version; if none does, one bounded load.
//!
//! Attempts after the first stay inside the subset and with the version. They are made only when the request cannot have been executed, or
//! when the model says that executing it twice is harmless; their number is bounded per request and by the pool's budget.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use holdfast_decide::Unavailable;
use holdfast_placement::choose::{Candidate, Choice, choose};
use holdfast_placement::residency::{Outcome, ReplicaIx, Shed};
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind, Mono};

use super::payload::Payload;
use super::send::{Attempt, CLOSED, Head, NOT_LOADED, Received, Sending, send};
use crate::exchange::Exchange;
use crate::fleet::{Cell, InFlight, NotIn};
use crate::pause::Pause;
use crate::route_state::RouteState;
use crate::worker::Worker;

/// How often a request may find that the holder it waited for is gone again.
const WAITS: u32 = 4;
/// How often one look at the replicas may come to nothing before that is what the request is told.
const LOOKS: u32 = 3;

enum Pick {
    Serve(InFlight, u64),
    Busy,
    /// Candidates that could load the version.
    NoHolder(Vec<ReplicaIx>),
}

/// What earlier attempts have taught.
struct Tried {
    /// One bit for each member of the route that was asked and may not be asked again.
    members: u64,
    last: Option<Failure>,
    retries: u32,
    waits: u32,
    /// A connection that was kept had been closed.
    met_close: bool,
}

impl Tried {
    const NOTHING: Self = Self { members: 0, last: None, retries: 0, waits: 0, met_close: false };
}

/// Gets the request served, or says why not.
///
/// # Errors
/// `no_holder`, `overloaded`, `upstream_error`, `upstream_timeout`, `wrong_version_served`, and what the client's own body did wrong.
///
/// # Cancel safety
/// Dropping the future ends the request at the replica and gives everything back.
pub async fn dispatch(
    exchange: &mut Exchange,
    worker: &Worker,
    head: &Head,
    payload: &mut Payload,
    deadline: Mono,
) -> Result<Received, Failure> {
    let mut tried = Tried::NOTHING;
    if let Some(resolution) = &exchange.resolution {
        resolution.state.pool.retries.request(exchange.begun);
    }
    loop {
        match pick(exchange, worker, tried.members) {
            Pick::Serve(in_flight, member) => {
                exchange.note(|journal| journal.tries(member));
                let sending = Sending { deadline, fresh: tried.met_close };
                let attempt = send(exchange, worker, head, payload, in_flight, sending).await;
                exchange.note(|journal| journal.ended(how(&attempt)));
                match attempt? {
                    Attempt::Received(received) => return Ok(received),
                    Attempt::Again { failure, reason } => {
                        again(exchange, payload, &mut tried, member, failure, reason)?;
                    }
                }
            }
            Pick::Busy => {
                let resolution = exchange.resolution.as_ref();
                let busy = || resolution.map_or_else(nobody, |r| busy(Some(&r.state), r.route.subset));
                return Err(tried.last.unwrap_or_else(busy));
            }
            Pick::NoHolder(candidates) => wait(exchange, candidates, &mut tried, deadline).await?,
        }
    }
}

/// What earlier attempts of something that lasts have taught.
#[derive(Default)]
pub struct Holding {
    tried: Option<Tried>,
    member: u64,
}

impl Holding {
    /// An attempt has failed before anything was sent. Another may be made.
    ///
    /// # Errors
    /// None may: the failure.
    pub fn failed(&mut self, exchange: &Exchange, failure: Failure) -> Result<(), Failure> {
        let Some(tried) = &mut self.tried else { return Err(failure) };
        again(exchange, &Payload::default(), tried, self.member, failure, "connect")
    }
}

/// Chooses a replica for something that lasts, such as a socket: the same choice, the same wait for a load. It is in flight there for as long as what is given.
///
/// # Errors
/// `no_holder`, `overloaded`; what the last attempt failed with.
///
/// # Cancel safety
/// Nothing is held before it returns.
pub async fn hold(
    exchange: &mut Exchange,
    worker: &Worker,
    holding: &mut Holding,
    deadline: Mono,
) -> Result<InFlight, Failure> {
    let tried = holding.tried.get_or_insert(Tried::NOTHING);
    loop {
        match pick(exchange, worker, tried.members) {
            Pick::Serve(in_flight, member) => {
                exchange.note(|journal| journal.tries(member));
                holding.member = member;
                return Ok(in_flight);
            }
            Pick::Busy => {
                let resolution = exchange.resolution.as_ref();
                let busy = || resolution.map_or_else(nobody, |r| busy(Some(&r.state), r.route.subset));
                return Err(tried.last.take().unwrap_or_else(busy));
            }
            Pick::NoHolder(candidates) => wait(exchange, candidates, tried, deadline).await?,
        }
    }
}

/// Every holder is at its bound or left alone.
pub(crate) fn busy(state: Option<&RouteState>, subset: u8) -> Failure {
    let left = state.map(|state| state.pause_left(subset, Clock::now())).unwrap_or_default();
    Failure::new(FailureKind::Overloaded, "every replica that holds the version is at its bound or asked for a pause")
        .retry_in(left.max(Duration::from_secs(1)))
}

/// Of two replicas that ask for a pause, the one whose pause is shorter says when to come back.
fn sooner(before: Option<&Failure>, failure: Failure) -> Failure {
    match before.and_then(|before| before.retry_after) {
        Some(wait) if failure.kind == FailureKind::Overloaded => {
            let wait = failure.retry_after.map_or(wait, |other| other.min(wait));
            failure.retry_in(wait)
        }
        _ => failure,
    }
}

/// An attempt's end in a word.
fn how(attempt: &Result<Attempt, Failure>) -> &'static str {
    match attempt {
        Ok(Attempt::Received(_)) => "answered",
        Ok(Attempt::Again { reason, .. }) => reason,
        Err(failure) => failure.kind.as_str(),
    }
}

/// Takes another attempt out of the bounds, or ends with the failure.
fn again(
    exchange: &Exchange,
    payload: &Payload,
    tried: &mut Tried,
    member: u64,
    failure: Failure,
    reason: &'static str,
) -> Result<(), Failure> {
    match reason {
        // Who does not hold the version any more is not chosen before it does again, but may be asked to load it.
        NOT_LOADED => {}
        // It may be well, and even the only one. From here on only fresh connections are used, so this comes once.
        CLOSED => tried.met_close = true,
        _ => tried.members |= member,
    }
    let failure = sooner(tried.last.as_ref(), failure);
    let Some(resolution) = &exchange.resolution else { return Err(failure) };
    let pool = &resolution.state.pool;
    let metrics = &exchange.gateway().metrics;
    if tried.retries >= pool.config.retries.attempts || !payload.is_left() {
        return Err(failure);
    }
    if !pool.retries.retry(Clock::now()) {
        metrics.retry_budget_exhausted.get([pool.name.as_str()]).inc();
        return Err(failure);
    }
    metrics.retries.get([pool.name.as_str(), reason]).inc();
    tried.retries += 1;
    tried.last = Some(failure);
    Ok(())
}

fn pick(exchange: &mut Exchange, worker: &Worker, tried: u64) -> Pick {
    let Some(resolution) = &exchange.resolution else { return Pick::NoHolder(Vec::new()) };
    let (route, state) = (&resolution.route, &resolution.state);
    let mut missed = NotIn::Hidden;
    // Between the look and the step a holder may be hidden, or its last place taken by another worker.
    for _ in 0..LOOKS {
        let mut members: SmallVec<[usize; 8]> = SmallVec::new();
        let mut candidates: SmallVec<[Candidate; 8]> = SmallVec::new();
        for (member, cell) in state.cells.iter().enumerate() {
            if members.len() >= usize::from(route.subset) {
                break;
            }
            if !cell.replica.in_service() {
                continue;
            }
            members.push(member);
            let mut candidate = cell.replica.candidate(cell.holds());
            candidate.usable &= tried & bit(member) == 0;
            candidate.cooling |= state.pauses.get(member).is_some_and(Pause::is_on);
            candidates.push(candidate);
        }
        add_leavers(state, tried, &mut members, &mut candidates);
        if let Some(journal) = &mut exchange.journal {
            journal.looked(&members, &candidates);
        }
        match choose(&candidates, worker.random()) {
            Choice::Serve(at) => {
                let Some(member) = members.get(at).copied() else { break };
                let Some(cell) = cell(state, member) else { break };
                match cell.enter(exchange.begun) {
                    Ok(in_flight) => return Pick::Serve(in_flight, bit(member)),
                    Err(why) => missed = why,
                }
            }
            Choice::Busy => return Pick::Busy,
            Choice::NoHolder => {
                let left = members.iter().filter(|m| tried & bit(**m) == 0);
                return Pick::NoHolder(left.filter_map(|m| Some(state.cells.get(*m)?.replica.ix)).collect());
            }
        }
    }
    match missed {
        NotIn::Full => Pick::Busy,
        NotIn::Hidden => {
            Pick::NoHolder(state.cells.iter().map(|c| c.replica.ix).take(usize::from(route.subset)).collect())
        }
    }
}

/// While no member of the subset holds the version, those that held it before the key's replicas changed are asked. Their numbers follow those of
/// the route's members.
fn add_leavers(
    state: &RouteState,
    tried: u64,
    members: &mut SmallVec<[usize; 8]>,
    candidates: &mut SmallVec<[Candidate; 8]>,
) {
    let Some(leaving) = state.leaving.as_ref().filter(|_| !candidates.iter().any(|c| c.holds)) else { return };
    for (at, cell) in leaving.serving(Clock::now(), false) {
        let member = state.cells.len() + at;
        members.push(member);
        candidates.push(leaver(cell, tried & bit(member) == 0));
    }
}

/// A former holder as a candidate.
pub(crate) fn leaver(cell: &Cell, untried: bool) -> Candidate {
    let mut candidate = cell.replica.candidate(cell.holds());
    candidate.usable &= untried;
    candidate
}

fn cell(state: &RouteState, member: usize) -> Option<&Arc<Cell>> {
    let leaving = || state.leaving.as_ref()?.cell(member.checked_sub(state.cells.len())?);
    state.cells.get(member).or_else(leaving)
}

fn bit(member: usize) -> u64 {
    1u64.checked_shl(u32::try_from(member).unwrap_or(u32::MAX)).unwrap_or(0)
}

/// Waits for a holder, or ends with the reason why there will be none in time.
async fn wait(
    exchange: &mut Exchange,
    candidates: Vec<ReplicaIx>,
    tried: &mut Tried,
    deadline: Mono,
) -> Result<(), Failure> {
    tried.waits += 1;
    if candidates.is_empty() || tried.waits > WAITS {
        return Err(tried.last.take().unwrap_or_else(nobody));
    }
    let Some(resolution) = &exchange.resolution else { return Err(nobody()) };
    let (version, unavailable) = (resolution.state.version, resolution.route.unavailable);
    let begun = Clock::now();
    let until = match unavailable {
        Unavailable::Wait => deadline,
        Unavailable::Shed => begun,
    };
    let gateway = exchange.gateway().clone();
    exchange.note(|journal| journal.waits("holder", begun));
    let waiting = gateway.metrics.waiting_requests.track();
    let outcome = gateway.driver.want(version, candidates, until).await;
    drop(waiting);
    let now = Clock::now();
    exchange.wait += now.since(begun);
    exchange.note(|journal| journal.held(now, outcome.as_ref()));
    match outcome.map(|outcome| refusal(outcome, unavailable)) {
        Some(None) => Ok(()),
        Some(Some(failure)) => Err(failure),
        None => Err(nobody()),
    }
}

pub(crate) fn nobody() -> Failure {
    Failure::new(FailureKind::NoHolder, "no replica of the subset can serve the version")
        .retry_in(Duration::from_secs(1))
}

/// What a client is told after a wait. None: there is a holder.
pub(crate) fn refusal(outcome: Outcome, unavailable: Unavailable) -> Option<Failure> {
    let failure = |detail: String, retry| Some(Failure::new(FailureKind::NoHolder, detail).retry_in(retry));
    match outcome {
        Outcome::Ready(_) => None,
        Outcome::Shed { retry_after, why } => {
            let why = match (unavailable, why) {
                // It had no time because its tenant will not wait, not because it brought too little.
                (Unavailable::Shed, Shed::Budget | Shed::Deadline) => "shed",
                _ => why.as_str(),
            };
            failure(
                format!("no replica of the subset holds the version within the request's budget ({why})"),
                retry_after,
            )
        }
        Outcome::Failed { .. } => failure("the version cannot be loaded at present".to_owned(), Duration::from_secs(5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_of_two_pauses_is_told() {
        let pause = |kind, seconds| Failure::new(kind, "x").retry_in(Duration::from_secs(seconds));
        let overloaded = |seconds| pause(FailureKind::Overloaded, seconds);
        let told = |before: Option<Failure>, failure| sooner(before.as_ref(), failure).retry_after_secs();
        assert_eq!(told(None, overloaded(60)), Some(60));
        assert_eq!(told(Some(overloaded(5)), overloaded(60)), Some(5));
        assert_eq!(told(Some(overloaded(60)), overloaded(5)), Some(5));
        assert_eq!(told(Some(Failure::new(FailureKind::UpstreamError, "x")), overloaded(5)), Some(5));
        assert_eq!(told(Some(overloaded(60)), pause(FailureKind::NoHolder, 1)), Some(1));
    }
}
