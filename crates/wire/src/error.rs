//! What keeps a side from starting. Whatever happens later is tried again and told of.

/// Settings that cannot be used, or a listener that failed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Anybody could be a gateway.
    #[error("neither a shared secret nor certificates of gateways are asked for")]
    Open,
    /// A certificate or a key cannot be used.
    #[error("TLS cannot be set up: {}", chain(.0))]
    Tls(#[source] tonic::transport::Error),
    /// A certificate or a key cannot be used.
    #[error("TLS cannot be set up: {0}")]
    Certificates(String),
    /// The listener failed.
    #[error("gateways cannot be served: {}", chain(.0))]
    Serve(#[source] tonic::transport::Error),
    /// Not the URL of a control plane.
    #[error("{url} is not the URL of a control plane: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A gateway needs one at least.
    #[error("no control plane is named")]
    NoUrl,
}

/// An error and what led to it: outer words alone say little.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        words = format!("{words}: {inner}");
        source = inner.source();
    }
    words
}
