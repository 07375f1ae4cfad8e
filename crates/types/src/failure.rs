//! The closed list of the ways in which a request can fail, and what each means to a client.
//!
//! A kind is a metric label and the value of `x-holdfast-error`, so the list is closed. The text beside it is for a person; it never holds
//! a secret, a payload or another tenant's data.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Who has to change something for the next attempt to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The request itself.
    Client,
    /// The gateway, its configuration or its capacity.
    Gateway,
    /// A model server.
    Upstream,
}

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FailureKind {
    /// Malformed, ambiguous or not understood.
    BadRequest,
    /// A head or body over its bound.
    TooLarge,
    /// Too many connections or attempts from one address or in all.
    ConnectionLimited,
    /// No credential, or one that proves nobody.
    Unauthenticated,
    /// A proved identity that may not do this.
    Forbidden,
    /// The keys or lists that identity is checked with are older than their stated age.
    IdentityStale,
    /// No such model.
    UnknownModel,
    /// The model exists, but this tenant pins no version of it.
    NotPinned,
    /// The version named is not allowed to this tenant.
    VersionNotAllowed,
    /// Over a limit of the tenant, user or connection.
    RateLimited,
    /// Over the capacity of the pool or the gateway.
    Overloaded,
    /// No replica of the subset holds the version, and none will within the request's budget.
    NoHolder,
    /// A model server broke the protocol, refused, or went away.
    UpstreamError,
    /// A model server did not answer within the request's budget.
    UpstreamTimeout,
    /// The answer names another model or version than was asked (PIN-1).
    WrongVersionServed,
    /// The gateway is shutting down.
    Draining,
}

impl FailureKind {
    /// All kinds, in the order of their discriminants: the label set of the error metric.
    pub const ALL: [Self; 16] = [
        Self::BadRequest,
        Self::TooLarge,
        Self::ConnectionLimited,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::IdentityStale,
        Self::UnknownModel,
        Self::NotPinned,
        Self::VersionNotAllowed,
        Self::RateLimited,
        Self::Overloaded,
        Self::NoHolder,
        Self::UpstreamError,
        Self::UpstreamTimeout,
        Self::WrongVersionServed,
        Self::Draining,
    ];

    /// The kind's name on the wire and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::TooLarge => "too_large",
            Self::ConnectionLimited => "connection_limited",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::IdentityStale => "identity_stale",
            Self::UnknownModel => "unknown_model",
            Self::NotPinned => "not_pinned",
            Self::VersionNotAllowed => "version_not_allowed",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::NoHolder => "no_holder",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::WrongVersionServed => "wrong_version_served",
            Self::Draining => "draining",
        }
    }

    /// The HTTP status that carries the kind (RFC 9110, RFC 6585).
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden | Self::VersionNotAllowed => 403,
            Self::UnknownModel | Self::NotPinned => 404,
            Self::TooLarge => 413,
            Self::ConnectionLimited | Self::RateLimited => 429,
            Self::UpstreamError | Self::WrongVersionServed => 502,
            Self::IdentityStale | Self::Overloaded | Self::NoHolder | Self::Draining => 503,
            Self::UpstreamTimeout => 504,
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn side(self) -> Side {
        match self {
            Self::BadRequest
            | Self::TooLarge
            | Self::ConnectionLimited
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::UnknownModel
            | Self::NotPinned
            | Self::VersionNotAllowed
            | Self::RateLimited => Side::Client,
            Self::IdentityStale | Self::Overloaded | Self::NoHolder | Self::Draining => Side::Gateway,
            Self::UpstreamError | Self::UpstreamTimeout | Self::WrongVersionServed => Side::Upstream,
        }
    }

    /// Whether answers of this kind carry `Retry-After`.
    #[must_use]
    pub const fn has_retry_after(self) -> bool {
        matches!(self.http_status(), 429 | 503)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed request: the kind, what a client may read, and when to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// What the client reads. No secrets, no payloads, no other tenant's data.
    pub detail: Cow<'static, str>,
    /// How long to wait, if it is known; [`Failure::retry_after_secs`] rounds it for the wire.
    pub retry_after: Option<Duration>,
    /// A status other than the kind's own (404 for an unknown path, 405, 431).
    pub status: Option<u16>,
}

impl Failure {
    /// A failure with the kind's own status and no known wait.
    pub fn new(kind: FailureKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), retry_after: None, status: None }
    }

    /// The same, with a known wait.
    #[must_use]
    pub fn retry_in(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The same, with another status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The status on the wire.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.kind.http_status())
    }

    /// The value of `Retry-After`: whole seconds, rounded up, at least 1 (RFC 9110 10.2.3). None where the kind has none.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.retry_after.unwrap_or(Duration::from_secs(1));
        self.kind.has_retry_after().then(|| wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_discriminant_order() {
        for (i, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i);
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_and_at_least_one() {
        let shed = |ms| Failure::new(FailureKind::NoHolder, "x").retry_in(Duration::from_millis(ms)).retry_after_secs();
        assert_eq!([shed(0), shed(1), shed(1000), shed(1001), shed(2000)].map(|s| s.unwrap_or(0)), [1, 1, 1, 2, 2]);
        assert_eq!(Failure::new(FailureKind::Overloaded, "x").retry_after_secs(), Some(1));
        assert_eq!(Failure::new(FailureKind::UpstreamError, "x").retry_after_secs(), None);
    }
}
