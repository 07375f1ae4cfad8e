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
pub(super) const fn names() -> [HeaderName; 2] {
    [HeaderName::from_static("ratelimit-policy"), HeaderName::from_static("ratelimit")]
}

/// What those have who came before the draft: limit, remaining, seconds until it is worth to come again.
pub(super) const fn former_names() -> [HeaderName; 3] {
    [
        HeaderName::from_static("x-ratelimit-limit"),
        HeaderName::from_static("x-ratelimit-remaining"),
        HeaderName::from_static("x-ratelimit-reset"),
    ]
}

/// What clients of language models look for, of requests. The last one is a span with its unit.
pub(super) const fn names_of_requests() -> [HeaderName; 3] {
    [
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderName::from_static("x-ratelimit-reset-requests"),
    ]
}

/// The same of what they send, for which the gateway counts bytes.
pub(super) const fn names_of_tokens() -> [HeaderName; 3] {
    [
        HeaderName::from_static("x-ratelimit-limit-tokens"),
        HeaderName::from_static("x-ratelimit-remaining-tokens"),
        HeaderName::from_static("x-ratelimit-reset-tokens"),
    ]
}

/// Where waiting does not help there is still a number to be told, and one that keeps clients from asking at once.
const NEVER: Duration = Duration::from_secs(60);

/// The figures of a limit as clients are told them.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    pub(super) quota: u64,
    /// In whole seconds; None: of requests at once.
    pub(super) window: Option<u64>,
    pub(super) remaining: u64,
    /// What may remain at most.
    pub(super) burst: u64,
    /// In whole seconds, if nobody takes anything meanwhile. None: of requests at once, or never.
    pub(super) full_in: Option<u64>,
    pub(super) unit: &'static str,
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
            let left = on.available(now).unwrap_or(0);
            return limited(limits.connection).map(|limit| Figures::over_time(limit, left, self.what));
        }
        // How everybody together does is no single tenant's business.
        if self.scope == Scope::Global {
            return None;
        }
        let found = limits.book(self.scope)?.look(self.at?, |_, used| match used {
            // What the store has is none of a client's that it has just refused.
            Use::Leased(leased) => Some(Figures::over_time(leased.limit(), leased.holder.held(), self.what)),
            _ => Figures::of(used, self.user, now, self.what),
        });
        found.flatten()
    }
}

impl Figures {
    /// Of a limit in a book; of a user's for this user. None: there is no limit.
    pub(super) fn of(used: &Use, user: Option<u128>, now: Mono, what: What) -> Option<Self> {
        let rate = |allowance, left| limited(allowance).map(|limit| Self::over_time(limit, left, what));
        match used {
            Use::Rate(metered) => rate(metered.allowance(), metered.available(now).unwrap_or(0)),
            Use::Leased(leased) => Some(Self::over_time(leased.limit(), leased.holder.left(now), what)),
            Use::RateByUser(allowance, users) => {
                let limit = limited(*allowance)?;
                rate(*allowance, user.map_or(0, |user| users.available(limit, now, user)))
            }
            Use::AtOnce(Some(most), running) => Some(Self::at_once(*most, running.count())),
            Use::AtOnceByUser(Some(most), by_user) => {
                let running = user.and_then(|user| by_user.get(&user)).map_or(0, |running| running.count());
                Some(Self::at_once(*most, running))
            }
            Use::AtOnce(None, _) | Use::AtOnceByUser(None, _) => None,
        }
    }

    /// Quota and window of a rate. A window is in whole seconds, so what is given for less is told for as much as a second.
    pub(super) fn over_time(limit: Limit, remaining: u64, what: What) -> Self {
        let per = limit.rate.per();
        let window = whole_seconds(per).max(1);
        let quota = u128::from(limit.rate.tokens()) * u128::from(window) * 1_000_000_000 / per.as_nanos().max(1);
        let quota = u64::try_from(quota).unwrap_or(u64::MAX);
        let full_in = limit.rate.time_for(limit.burst.saturating_sub(remaining)).map(whole_seconds);
        let unit = if what == What::Bytes { "content-bytes" } else { "requests" };
        Self { quota, window: Some(window), remaining, burst: limit.burst, full_in, unit }
    }

    fn at_once(most: u32, running: u32) -> Self {
        let (remaining, quota) = (u64::from(most.saturating_sub(running)), u64::from(most));
        Self { quota, window: None, remaining, burst: quota, full_in: None, unit: "concurrent-requests" }
    }

    /// The three fields that clients of language models look for.
    pub(super) fn tell_model_clients(&self, names: [HeaderName; 3], reset: Option<u64>, fields: &mut HeaderMap) {
        let [limit, left, reset_name] = names;
        fields.insert(limit, self.quota.into());
        fields.insert(left, self.remaining.into());
        if let Some(Ok(span)) = reset.map(|seconds| HeaderValue::try_from(format!("{seconds}s"))) {
            fields.insert(reset_name, span);
        }
    }
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

fn limited(allowance: Allowance) -> Option<Limit> {
    if let Allowance::Limited(limit) = allowance { Some(limit) } else { None }
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
        let Figures { quota, window, remaining, unit, .. } = figures;
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
        match refusal.what {
            What::Requests => figures.tell_model_clients(names_of_requests(), retry, fields),
            What::Bytes => figures.tell_model_clients(names_of_tokens(), retry, fields),
            What::Running => {}
        }
    }
    if let Ok(name) = HeaderValue::try_from(name) {
        fields.insert(headers::LIMIT, name);
    }
}
