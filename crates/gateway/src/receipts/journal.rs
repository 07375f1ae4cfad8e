//! What is noted while a request is on its way: moments and numbers, cheap to write down and bounded. Texts are made when somebody asks.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use holdfast_decide::Cause;
use holdfast_placement::choose::Candidate;
use holdfast_placement::residency::Outcome;
use holdfast_quota::scopes::Scope;
use holdfast_types::{Failure, FailureKind, Mono};

use crate::limits::What;

/// The most bytes of a client's own text.
const MOST: usize = 128;
/// The most attempts and waits that are noted one by one. Configuration and the dispatcher allow fewer.
const STEPS: usize = 32;

/// One member of the subset, as the choice among them saw it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Its place among the route's members.
    pub member: u8,
    /// It held the version, proven.
    pub holds: bool,
    /// It was up, and not asked before.
    pub usable: bool,
    /// It had asked for a pause.
    pub cooling: bool,
    /// Requests in flight there.
    pub in_flight: u32,
}

/// One attempt at a member.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// Its place among the route's members.
    pub member: u8,
    /// When the request was handed to a connection. None: there was none.
    pub sent: Option<Mono>,
    /// How it ended: a word. None: the request ended first.
    pub ended: Option<&'static str>,
}

/// One wait, in which the request could not be sent.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// For what: `table`, `holder` or `connection`.
    pub what: &'static str,
    /// Since when.
    pub from: Mono,
    /// Until when, and how it ended. None: the request ended first.
    pub ended: Option<(Mono, &'static str)>,
}

/// What limits said of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limited {
    /// Whether it was let pass.
    pub admitted: bool,
    /// The limit that refused it, or would have.
    pub over: Option<(Scope, What)>,
}

/// Whom and what a refused request named, by the client's own words.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The tenant.
    pub tenant: Option<Box<str>>,
    /// The model.
    pub model: Option<Box<str>>,
    /// The version.
    pub version: Option<Box<str>>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// When it had its route.
    pub resolved: Option<Mono>,
    /// By what its submission is known: `first`, `key`, `route token`, `unledgered`.
    pub submission: Option<&'static str>,
    /// The arm or rule that chose its version, if one did.
    pub cause: Option<Arc<Cause>>,
    /// What limits said of it. None: it has none, or was refused before.
    pub limits: Option<Limited>,
    /// When its body had been read, or so much of it that the rest streams through.
    pub read: Option<Mono>,
    /// When the beginning of a long answer was passed on.
    pub passing: Option<Mono>,
    /// How often a replica was looked for.
    pub picks: u32,
    /// What was seen at the last time.
    pub looks: SmallVec<[Look; 4]>,
    /// In order.
    pub tried: SmallVec<[Tried; 1]>,
    /// In order.
    pub waits: SmallVec<[Waited; 1]>,
    /// Of a request that was refused before it had a route.
    pub asked: Option<Box<Asked>>,
    /// What a failed request's client read, if the words are the gateway's own.
    pub detail: Option<Cow<'static, str>>,
}

impl Journal {
    /// Notes what limits said.
    pub fn admitted(&mut self, admitted: bool, over: Option<(Scope, What)>) {
        self.limits = Some(Limited { admitted, over });
    }

    /// Notes what the choice among the members saw.
    pub fn looked(&mut self, members: &[usize], candidates: &[Candidate]) {
        self.picks = self.picks.saturating_add(1);
        self.looks.clear();
        self.looks.extend(members.iter().zip(candidates).map(|(member, candidate)| Look {
            member: u8::try_from(*member).unwrap_or(u8::MAX),
            holds: candidate.holds,
            usable: candidate.usable,
            cooling: candidate.cooling,
            in_flight: candidate.in_flight,
        }));
    }

    /// Notes that a member is tried; `bit` is its bit among the members.
    pub fn tries(&mut self, bit: u64) {
        if self.tried.len() < STEPS {
            let member = u8::try_from(bit.trailing_zeros()).unwrap_or(u8::MAX);
            self.tried.push(Tried { member, sent: None, ended: None });
        }
    }

    /// Notes that the request is handed to a connection.
    pub fn sent(&mut self, now: Mono) {
        if let Some(last) = self.tried.last_mut() {
            last.sent = Some(now);
        }
    }

    /// Notes how the last attempt ended.
    pub fn ended(&mut self, how: &'static str) {
        if let Some(last) = self.tried.last_mut() {
            last.ended = Some(how);
        }
    }

    /// Notes that something is waited for.
    pub fn waits(&mut self, what: &'static str, now: Mono) {
        if self.waits.len() < STEPS {
            self.waits.push(Waited { what, from: now, ended: None });
        }
    }

    /// Notes how the wait ended.
    pub fn waited(&mut self, now: Mono, how: &'static str) {
        if let Some(last) = self.waits.last_mut() {
            last.ended = Some((now, how));
        }
    }

    /// Notes how the wait for a holder ended.
    pub fn held(&mut self, now: Mono, outcome: Option<&Outcome>) {
        self.waited(
            now,
            match outcome {
                Some(Outcome::Ready(_)) => "ready",
                Some(Outcome::Shed { why, .. }) => why.as_str(),
                Some(Outcome::Failed { .. }) => "failed",
                None => "unknown",
            },
        );
    }

    /// Notes a wait for a connection that was not there yet, or not free.
    pub fn connected(&mut self, from: Mono, now: Mono, got: bool) {
        if self.waits.len() < STEPS {
            let how = if got { "ready" } else { "failed" };
            self.waits.push(Waited { what: "connection", from, ended: Some((now, how)) });
        }
    }

    /// Notes what a request named that is refused.
    pub fn asks(&mut self, tenant: Option<&str>, model: &str, version: Option<&str>) {
        let cut = |text: &str| Box::from(text.get(..text.floor_char_boundary(MOST)).unwrap_or_default());
        self.asked =
            Some(Box::new(Asked { tenant: tenant.map(cut), model: Some(cut(model)), version: version.map(cut) }));
    }

    /// Notes what the client is told. What a model server said is left out: it may repeat the request.
    pub fn failed(&mut self, failure: &Failure) {
        let is_own = matches!(failure.detail, Cow::Borrowed(_)) || failure.kind != FailureKind::UpstreamError;
        self.detail = is_own.then(|| failure.detail.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_and_servers_say_is_bounded_and_left_out() {
        let mut journal = Journal::default();
        journal.asks(Some("acme"), &"\u{e9}".repeat(100), None);
        let asked = journal.asked.as_deref().unwrap();
        assert_eq!((asked.model.as_deref().unwrap().len(), asked.tenant.as_deref()), (128, Some("acme")));
        let detail = |kind, detail: Cow<'static, str>| {
            let mut journal = Journal::default();
            journal.failed(&Failure::new(kind, detail));
            journal.detail
        };
        assert!(detail(FailureKind::UpstreamError, "the replica broke the connection".into()).is_some());
        assert!(
            detail(FailureKind::UpstreamError, "the model server answered 500: SECRET".to_owned().into()).is_none()
        );
        assert!(detail(FailureKind::NoHolder, "in words of the gateway".to_owned().into()).is_some());
    }

    #[test]
    fn steps_are_bounded() {
        let mut journal = Journal::default();
        for _ in 0..1_000 {
            journal.tries(2);
            journal.waits("holder", Mono::ZERO);
        }
        assert_eq!((journal.tried.len(), journal.waits.len(), journal.tried[0].member), (STEPS, STEPS, 1));
    }
}
