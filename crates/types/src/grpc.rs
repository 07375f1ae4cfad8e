//! What a failure is over gRPC: the status code, and the delay of a `google.rpc.RetryInfo`.
//!
//! A client's library retries `UNAVAILABLE` by itself, so that is only for what has not been executed. What may have been, such as a model server that went
//! away in the middle, is `INTERNAL`.

use std::time::Duration;

use crate::{Failure, FailureKind};

/// A status code (`google.rpc.Code`), of those that the gateway gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GrpcCode {
    /// The request is at fault, whatever the state.
    InvalidArgument = 3,
    /// The time is over; it may have been executed.
    DeadlineExceeded = 4,
    /// There is no such thing.
    NotFound = 5,
    /// Somebody who is known may not.
    PermissionDenied = 7,
    /// Over a limit; with a delay where waiting helps.
    ResourceExhausted = 8,
    /// The server's side broke a promise.
    Internal = 13,
    /// Not executed, and worth another attempt.
    Unavailable = 14,
    /// Nobody is proved.
    Unauthenticated = 16,
}

impl FailureKind {
    /// The gRPC status that carries the kind.
    #[must_use]
    pub const fn grpc_code(self) -> GrpcCode {
        match self {
            Self::BadRequest => GrpcCode::InvalidArgument,
            Self::Unauthenticated => GrpcCode::Unauthenticated,
            Self::Forbidden | Self::VersionNotAllowed => GrpcCode::PermissionDenied,
            Self::UnknownModel | Self::NotPinned => GrpcCode::NotFound,
            // gRPC's own libraries say so of a message over their bound.
            Self::TooLarge | Self::ConnectionLimited | Self::RateLimited => GrpcCode::ResourceExhausted,
            Self::IdentityStale | Self::Overloaded | Self::NoHolder | Self::Draining => GrpcCode::Unavailable,
            Self::UpstreamError | Self::WrongVersionServed => GrpcCode::Internal,
            Self::UpstreamTimeout => GrpcCode::DeadlineExceeded,
        }
    }
}

impl Failure {
    /// The `retry_delay` of a `RetryInfo`: as exact as it is known, and where `Retry-After` would be. None: there is no `RetryInfo`.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        let least = Duration::from_millis(1);
        self.kind.has_retry_after().then(|| self.retry_after.unwrap_or(Duration::from_secs(1)).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, HTTP, gRPC, whether there is a delay.
    const GOLDEN: &str = "\
bad_request 400 3 no
too_large 413 8 no
connection_limited 429 8 yes
unauthenticated 401 16 no
forbidden 403 7 no
identity_stale 503 14 yes
unknown_model 404 5 no
not_pinned 404 5 no
version_not_allowed 403 7 no
rate_limited 429 8 yes
overloaded 503 14 yes
no_holder 503 14 yes
upstream_error 502 13 no
upstream_timeout 504 4 no
wrong_version_served 502 13 no
draining 503 14 yes
";

    #[test]
    fn every_kind_has_its_status() {
        let row = |kind: FailureKind| {
            let delay = if Failure::new(kind, "x").retry_delay().is_some() { "yes" } else { "no" };
            format!("{kind} {} {} {delay}\n", kind.http_status(), kind.grpc_code() as u8)
        };
        assert_eq!(FailureKind::ALL.map(row).concat(), GOLDEN);
    }

    #[test]
    fn a_delay_is_as_exact_as_it_is_known_and_never_none_at_all() {
        let delay = |wait| Failure::new(FailureKind::RateLimited, "x").retry_in(wait).retry_delay();
        assert_eq!(delay(Duration::from_millis(1_250)), Some(Duration::from_millis(1_250)));
        assert_eq!(delay(Duration::ZERO), Some(Duration::from_millis(1)));
    }
}
