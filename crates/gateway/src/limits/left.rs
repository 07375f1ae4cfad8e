//! What the client of an admitted request is told: how much is left of each limit that it came under.
//!
//! The figures are looked at when the answer begins, so what the request itself has taken is gone from them. Of the common limit nothing is told, and nothing
//! at all where limits only count (`mode: shadow`): nobody is to slow down for a limit that refuses nothing.

use std::fmt::Write;

use http::{HeaderMap, HeaderValue};

use holdfast_quota::limit::Allowance;
use holdfast_quota::scopes::Scope;
use holdfast_types::Mono;

use super::admit::{OnConnection, RouteLimits, Taken};
use super::terms::What;
use super::told::{Figures, former_names, names, names_of_requests, names_of_tokens};

/// The figures of one request's limits.
#[derive(Default)]
struct Left {
    state: String,
    /// None: the policies are known already.
    policy: Option<String>,
    /// Of all rates, of those of requests, of those of bytes, the one of which the least part is left.
    tightest: [Option<Figures>; 3],
}

impl Left {
    fn add(&mut self, scope: Scope, what: What, figures: Figures) {
        let name = (scope.as_str(), what.as_str());
        write_state(&mut self.state, name, &figures);
        if let Some(policy) = &mut self.policy {
            write_policy(policy, name, &figures);
        }
        let kind = match what {
            What::Requests => 1,
            What::Bytes => 2,
            What::Running => return,
        };
        for at in [0, kind] {
            if let Some(known) = self.tightest.get_mut(at)
                && known.is_none_or(|known| figures.part() < known.part())
            {
                *known = Some(figures);
            }
        }
    }
}

// Writing to a text cannot fail.
fn write_state(text: &mut String, (scope, what): (&str, &str), figures: &Figures) {
    let next = if text.is_empty() { "" } else { ", " };
    let _ = write!(text, "{next}\"{scope}-{what}\";r={}", figures.remaining);
    if let Some(seconds) = figures.full_in {
        let _ = write!(text, ";t={seconds}");
    }
}

fn write_policy(text: &mut String, (scope, what): (&str, &str), figures: &Figures) {
    let next = if text.is_empty() { "" } else { ", " };
    let _ = write!(text, "{next}\"{scope}-{what}\";q={}", figures.quota);
    if let Some(window) = figures.window {
        let _ = write!(text, ";w={window}");
    }
    let _ = write!(text, ";qu=\"{}\"", figures.unit);
}

fn value(text: String) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).ok()
}

/// Adds to the fields of an answer what is left of the limits that its request was admitted under.
pub fn tell_left(limits: &RouteLimits, taken: &Taken, on: &OnConnection, now: Mono, fields: &mut HeaderMap) {
    if !limits.tells || limits.is_shadow() {
        return;
    }
    let Some((scoped, user)) = limits.held(taken).find(|(scoped, _)| !limits.is_global(scoped)) else { return };
    let known = scoped.policy(taken.endpoint, user.is_some());
    let mut left = Left { policy: known.get().is_none().then(String::new), ..Left::default() };
    if let Allowance::Limited(limit) = limits.connection {
        let figures = Figures::over_time(limit, on.available(now).unwrap_or(0), What::Requests);
        left.add(Scope::Connection, What::Requests, figures);
    }
    let gates = scoped.of(taken.endpoint, user.is_some());
    scoped.book.look_at(gates, |key, used| {
        if let Some(figures) = Figures::of(used, user, now, key.what) {
            left.add(key.scope, key.what, figures);
        }
    });
    let Left { state, policy, tightest } = left;
    if state.is_empty() {
        return;
    }
    let policy = match policy.and_then(value) {
        Some(policy) => Some(known.get_or_init(|| policy)),
        None => known.get(),
    };
    let [policy_name, state_name] = names();
    if let (Some(policy), Some(state)) = (policy, value(state)) {
        fields.insert(policy_name, policy.clone());
        fields.insert(state_name, state);
    }
    let [all, requests, bytes] = tightest;
    if let Some(figures) = all {
        let [limit, remaining, reset] = former_names();
        fields.insert(limit, figures.quota.into());
        fields.insert(remaining, figures.remaining.into());
        if let Some(seconds) = figures.full_in {
            fields.insert(reset, seconds.into());
        }
    }
    for (figures, names) in [(requests, names_of_requests()), (bytes, names_of_tokens())] {
        if let Some(figures) = figures {
            figures.tell_model_clients(names, figures.full_in, fields);
        }
    }
}

impl Figures {
    /// Which part is left, in millionths of the burst.
    fn part(&self) -> u128 {
        u128::from(self.remaining) * 1_000_000 / u128::from(self.burst.max(1))
    }
}
