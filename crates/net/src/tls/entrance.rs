//! What a listener does with a new connection.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::peer::Peer;
use super::server::Certificates;
use super::stream::Secured;

/// In the clear, or over TLS. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Entrance(Option<Arc<Certificates>>);

impl Entrance {
    /// Over TLS with these certificates.
    #[must_use]
    pub const fn over(certificates: Arc<Certificates>) -> Self {
        Self(Some(certificates))
    }

    /// The certificates, if it is over TLS.
    #[must_use]
    pub const fn certificates(&self) -> Option<&Arc<Certificates>> {
        self.0.as_ref()
    }

    /// Lets a connection in, and tells who comes if it has proved that. `None`: it is not let in, and why is its own business: whoever holds the
    /// port open to strangers would fill the log with their words.
    ///
    /// Takes 10 s at most.
    pub async fn enter(&self, stream: TcpStream) -> Option<(Secured, Option<Arc<Peer>>)> {
        let Some(certificates) = &self.0 else { return Some((Secured::Plain(stream), None)) };
        match certificates.accept(stream).await {
            Ok((stream, peer)) => Some((Secured::Tls(Box::new(stream.into())), peer.map(Arc::new))),
            Err(error) => {
                tracing::debug!(%error, "a connection was not let in");
                None
            }
        }
    }
}
