//! What is known of a request once it has ended: the plain facts that metrics, accounts and the access record share.

use std::time::Duration;

use holdfast_types::FailureKind;

/// What a request asked for: a closed list, since it is a metric label. Never the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Endpoint {
    /// Inference by a model.
    Infer,
    /// Whether a model is ready.
    ModelReady,
    /// A model's metadata.
    ModelMetadata,
    /// The gateway's own metadata.
    ServerMetadata,
    /// `/livez`, `/readyz` and the protocol's server health.
    Health,
    /// Anything else, unknown paths included.
    Other,
}

impl Endpoint {
    /// All endpoints in the order of their discriminants.
    pub const ALL: [Self; 6] =
        [Self::Infer, Self::ModelReady, Self::ModelMetadata, Self::ServerMetadata, Self::Health, Self::Other];

    /// The label's value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::ModelReady => "model_ready",
            Self::ModelMetadata => "model_metadata",
            Self::ServerMetadata => "server_metadata",
            Self::Health => "health",
            Self::Other => "other",
        }
    }
}

/// Where a request's time went. `upstream` and `wait` are parts of `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From the first byte of the head to the last byte of the answer, or to the abort.
    pub total: Duration,
    /// Waiting for a turn or for a cold load: time in which the request could not have been sent.
    pub wait: Duration,
    /// From dispatch to the end of the model server's answer, over all attempts. None if nothing was dispatched.
    pub upstream: Option<Duration>,
}

impl Timing {
    /// What the gateway itself took: the total without waiting and without the model server. Zero rather than negative.
    #[must_use]
    pub fn gateway(&self) -> Duration {
        self.total.saturating_sub(self.wait).saturating_sub(self.upstream.unwrap_or(Duration::ZERO))
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was asked for.
    pub endpoint: Endpoint,
    /// The status that the client was sent; 499 for a client that left before a status was sent.
    pub status: u16,
    /// The kind of failure, if it was one.
    pub error: Option<FailureKind>,
    /// How many times it was sent to a model server.
    pub attempts: u32,
    /// Bytes of request body read from the client.
    pub bytes_in: u64,
    /// Bytes of answer body sent to the client.
    pub bytes_out: u64,
    /// Where the time went.
    pub timing: Timing,
}

impl Outcome {
    /// Whether the request failed: a failure kind, or a status of 400 and above.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        self.error.is_some() || self.status >= 400
    }
}
