//! What would happen to a request that found no holder now? Asked of a copy of the machine, so that the answer is the one that the request
//! would get, and nothing is changed by asking.

use std::time::Duration;

use holdfast_types::Mono;

use super::Residency;
use super::effect::{Effect, Outcome, Shed};
use super::event::{Event, ReplicaIx, Usage, VersionIx, WaiterId};
use super::outlook::Outlook;
use super::report::State;
use super::state::Cx;

/// The driver counts waiters from below and never comes here.
const NOBODY: WaiterId = WaiterId(u64::MAX);

/// What would become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The answer that it would get at once. None: it would wait.
    pub answer: Option<Outcome>,
    /// Where it would begin a load, or begin to make room for one.
    pub begins: Option<ReplicaIx>,
    /// The shortest time in which some candidate is expected to serve. Zero also if nothing is known of load times; None if nothing says when.
    pub eta: Option<Duration>,
}

/// How a version stands on one candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Its state there. None: it is not there.
    pub state: Option<State>,
    /// Why the candidate cannot serve it, and cannot begin to load it now.
    pub hindered: Option<Shed>,
    /// Loads that failed there in a row.
    pub failures: u32,
    /// The last failure, or why it is quarantined or was not proven; empty if there is nothing to tell.
    pub why: String,
    /// How long until what hinders it ends, if that is known; for a back-off, until the next attempt.
    pub retry: Option<Duration>,
}

impl Residency {
    /// What a [`Event::Want`] with this budget would bring about. Cost: a copy of the machine; not for the request path.
    #[must_use]
    pub fn forecast(
        &self,
        now: Mono,
        version: VersionIx,
        candidates: &[ReplicaIx],
        budget: Duration,
        usage: &dyn Usage,
    ) -> Forecast {
        let mut trial = self.clone();
        let mut effects = Vec::new();
        trial.apply(now, Event::Tick, usage, &mut effects);
        effects.clear();
        let making =
            |m: &Self, r: ReplicaIx| m.replicas.get(&r).and_then(|r| r.making).is_some_and(|m| m.version == version);
        let made: Vec<ReplicaIx> = candidates.iter().copied().filter(|r| making(&trial, *r)).collect();
        let deadline = trial.now.after(budget);
        let want = Event::Want { waiter: NOBODY, version, candidates: candidates.to_vec(), deadline };
        trial.apply(now, want, usage, &mut effects);
        let answer = effects.iter().find_map(|e| match e {
            Effect::Wake { waiter: NOBODY, outcome } => Some(outcome.clone()),
            _ => None,
        });
        let loads = effects.iter().find_map(|e| match e {
            Effect::Load { replica, version: v, .. } if *v == version => Some(*replica),
            _ => None,
        });
        let makes = || candidates.iter().copied().find(|r| !made.contains(r) && making(&trial, *r));
        let begins = loads.or_else(makes);
        let eta = trial.view(&Cx { now: trial.now, usage, out: &mut effects }, None, version, candidates).eta();
        Forecast { answer, begins, eta }
    }

    /// How the version stands on a replica. Not for the request path.
    #[must_use]
    pub fn prospect(&self, now: Mono, replica: ReplicaIx, version: VersionIx, usage: &dyn Usage) -> Prospect {
        let now = self.now.max(now);
        let entry = self.replicas.get(&replica).and_then(|r| r.entries.get(&version));
        let past = self.history.get(&(replica, version)).filter(|h| h.failures > 0);
        let why = entry.map_or_else(|| past.map(|h| h.text.clone()), |e| e.why.clone());
        let known = |wait: Duration| Some(wait).filter(|w| !w.is_zero());
        let backoff = past.map(|h| h.retry_at.since(now));
        let outlook = self.outlook(&Cx { now, usage, out: &mut Vec::new() }, None, replica, version);
        let (hindered, retry) = match outlook {
            Outlook::Ready | Outlook::Coming(_) | Outlook::Start(..) | Outlook::Blocked => (None, None),
            Outlook::Failing(retry) => (Some(Shed::Backoff), known(retry)),
            Outlook::Later(_, Shed::Backoff) => (Some(Shed::Backoff), backoff.and_then(known)),
            // Only its turn has not come.
            Outlook::Later(..) => (None, None),
            Outlook::Never { why, retry, .. } => (Some(why), known(retry)),
        };
        Prospect {
            state: entry.map(|e| e.state()),
            hindered,
            failures: past.map_or(0, |h| h.failures),
            why: why.unwrap_or_default(),
            retry,
        }
    }
}
