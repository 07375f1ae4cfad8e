//! What a client that is refused is told: the failure, and the fields that say which limit it was and when to come back.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use holdfast_quota::bucket::Wait;
use holdfast_quota::limit::{Allowance, Limit};
use holdfast_quota::scopes::Scope;
use holdfast_types::{Failure, FailureKind, Mono};

use super::admit::{OnConnection, Refusal, RouteLimits};
use super::book::Use;
use super::terms::What;
use crate::headers;

/// The names of the fields. The draft (draft-ietf-httpapi-ratelimit-headers-11) may change them once more.
const fn names() -> [HeaderName; 2] {
    [HeaderName::from_static("ratelimit-policy"), HeaderName::from_static("ratelimit")]
}

/// What those have who came before the draft: limit, remaining, seconds until it is worth to come again.
const fn former_names() -> [HeaderName; 3] {
    [
        HeaderName::from_static("x-ratelimit-limit"),
        HeaderName::from_static("x-ratelimit-remaining"),
        HeaderName::from_static("x-ratelimit-reset"),
    ]
}

/// Where waiting does not help there is still a number to be told, and one that keeps clients from asking at once.
const NEVER: Duration = Duration::from_secs(60);

/// The figures of a limit as clients are told them.
struct Figures {
    quota: u64,
    /// In whole seconds; None: of requests at once.
    window: Option<u64>,
    remaining: u64,
    unit: &'static str,
}

impl Refusal {
    /// The limit's name, such as `user-requests`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.scope.as_str(), self.what.as_str())
    }

    /// The failure that the client is told.
    #[must_use]
    pub fn failure(&self, limits: &RouteLimits) -> Failure {
        let whose = match self.scope {
            Scope::Connection => "this connection's",
            Scope::User => "the user's",
            Scope::Tenant => "the tenant's",
            Scope::Global => "the gateway's common",
        };
        let what = match self.what {
            What::Requests => "limit of requests",
            What::Bytes => "limit of bytes",
            What::Running => "limit of requests at once",
        };
        match self.wait {
            Wait::For(wait) => Failure::new(FailureKind::RateLimited, format!("over {whose} {what}"))
                .retry_in(wait.max(Duration::from_nanos(1))),
            Wait::Never if self.what == What::Bytes && self.allowance(limits).is_some() => Failure::new(
                FailureKind::TooLarge,
                format!("the body is larger than {whose} {what} ever lets pass at once"),
            ),
            Wait::Never => {
                Failure::new(FailureKind::RateLimited, format!("{whose} {what} allows none")).retry_in(NEVER)
            }
        }
    }

    /// The rate that refused. None: it was a count.
    pub fn allowance(&self, limits: &RouteLimits) -> Option<Limit> {
        if self.scope == Scope::Connection {
            return limited(limits.connection);
        }
        let found = limits.book(self.scope)?.look(self.at?, |_, used| match used {
            Use::Rate(metered) => limited(metered.allowance()),
            Use::Leased(leased) => Some(leased.limit()),
            Use::RateByUser(allowance, _) => limited(*allowance),
            Use::AtOnce(..) | Use::AtOnceByUser(..) => None,
        });
        found.flatten()
    }

    fn figures(&self, limits: &RouteLimits, on: &OnConnection, now: Mono) -> Option<Figures> {
        if self.scope == Scope::Connection {
            return limited(limits.connection).map(|limit| over_time(limit, on.available(now).unwrap_or(0), self.what));
        }
        // How everybody together does is no single tenant's business.
        if self.scope == Scope::Global {
            return None;
        }
        let found = limits.book(self.scope)?.look(self.at?, |_, used| match used {
            Use::Rate(metered) => limited(metered.allowance())
                .map(|limit| over_time(limit, metered.available(now).unwrap_or(0), self.what)),
            // What other gateways hold is not known here.
            Use::Leased(leased) => Some(over_time(leased.limit(), leased.holder.held(), self.what)),
            Use::RateByUser(allowance, users) => {
                let limit = limited(*allowance)?;
                let left = self.user.map_or(0, |user| users.available(limit, now, user));
                Some(over_time(limit, left, self.what))
            }
            Use::AtOnce(Some(most), running) => Some(at_once(*most, running.count())),
            Use::AtOnceByUser(Some(most), by_user) => {
                let running = self.user.and_then(|user| by_user.get(&user)).map_or(0, |running| running.count());
                Some(at_once(*most, running))
            }
            Use::AtOnce(None, _) | Use::AtOnceByUser(None, _) => None,
        });
        found.flatten()
    }
}

fn limited(allowance: Allowance) -> Option<Limit> {
    if let Allowance::Limited(limit) = allowance { Some(limit) } else { None }
}

/// Quota and window of a rate. A window is in whole seconds, so what is given for less is told for as much as a second.
fn over_time(limit: Limit, remaining: u64, what: What) -> Figures {
    let per = limit.rate.per();
    let window = (per.as_secs() + u64::from(per.subsec_nanos() > 0)).max(1);
    let quota = u128::from(limit.rate.tokens()) * u128::from(window) * 1_000_000_000 / per.as_nanos().max(1);
    let unit = if what == What::Bytes { "content-bytes" } else { "requests" };
    Figures { quota: u64::try_from(quota).unwrap_or(u64::MAX), window: Some(window), remaining, unit }
}

fn at_once(most: u32, running: u32) -> Figures {
    let remaining = u64::from(most.saturating_sub(running));
    Figures { quota: u64::from(most), window: None, remaining, unit: "concurrent-requests" }
}

/// Adds what a refused client is told to the fields of its answer. `retry` is what `Retry-After` says.
pub fn tell(
    refusal: &Refusal,
    limits: &RouteLimits,
    on: &OnConnection,
    now: Mono,
    retry: Option<u64>,
    fields: &mut HeaderMap,
) {
    let name = refusal.name();
    let mut put = |field: HeaderName, text: String| {
        if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(text)) {
            fields.insert(field, value);
        }
    };
    if let Some(figures) = refusal.figures(limits, on, now) {
        let Figures { quota, window, remaining, unit } = figures;
        let window = window.map(|window| format!(";w={window}")).unwrap_or_default();
        let until = retry.map(|seconds| format!(";t={seconds}")).unwrap_or_default();
        let [policy, state] = names();
        put(policy, format!("\"{name}\";q={quota}{window};qu=\"{unit}\""));
        put(state, format!("\"{name}\";r={remaining}{until}"));
        let [limit, left, reset] = former_names();
        put(limit, quota.to_string());
        put(left, remaining.to_string());
        if let Some(seconds) = retry {
            put(reset, seconds.to_string());
        }
    }
    put(headers::LIMIT, name);
}
