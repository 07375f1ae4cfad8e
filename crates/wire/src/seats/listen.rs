//! A gateway answers other gateways.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::{Peer, words};
use crate::auth::{self, Renewed, Secret, ServerTls};
use crate::error::WireError;
use crate::incoming::secured;
use crate::proto;
use crate::proto::peers_server::{Peers, PeersServer};

/// Calls of one connection at once: loads are waited for.
const CALLS: u32 = 1_024;
/// A connection of which nothing is heard for so long is asked, and ended if it does not answer.
const QUIET: Duration = Duration::from_secs(5);

struct Service<P> {
    secrets: Vec<Secret>,
    peer: Arc<P>,
}

/// Answers for as long as the listener can be used.
///
/// # Errors
/// TLS cannot be set up, or the listener failed.
pub async fn listen<P: Peer>(
    listener: TcpListener,
    secrets: Vec<Secret>,
    tls: Option<Renewed<ServerTls>>,
    peer: Arc<P>,
) -> Result<(), WireError> {
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(QUIET))
        .http2_keepalive_timeout(Some(QUIET))
        .max_concurrent_streams(CALLS)
        .tcp_nodelay(true);
    let router = server.add_service(PeersServer::new(Service { secrets, peer }));
    let served = match tls {
        None => router.serve_with_incoming(TcpListenerStream::new(listener)).await,
        Some(tls) => router.serve_with_incoming(secured(listener, tls)?).await,
    };
    served.map_err(WireError::Serve)
}

#[tonic::async_trait]
impl<P: Peer> Peers for Service<P> {
    async fn vote(&self, ask: Request<proto::VoteRequest>) -> Result<Response<proto::VoteAnswer>, Status> {
        auth::check(&self.secrets, ask.metadata())?;
        let ballot = self.peer.vote(ask.into_inner().epoch);
        Ok(Response::new(proto::VoteAnswer { gateway: ballot.name.to_string(), home: ballot.home, yes: ballot.yes }))
    }

    async fn load(&self, ask: Request<proto::LoadRequest>) -> Result<Response<proto::LoadAnswer>, Status> {
        auth::check(&self.secrets, ask.metadata())?;
        let proto::LoadRequest { wish, within_ms, .. } = ask.into_inner();
        let wish =
            wish.and_then(words::wish_in).ok_or_else(|| Status::invalid_argument("no version that can be read"))?;
        let loaded = self.peer.load(wish, Duration::from_millis(within_ms)).await;
        Ok(Response::new(words::loaded_out(loaded)))
    }

    async fn reload(&self, ask: Request<proto::ReloadRequest>) -> Result<Response<proto::ReloadAnswer>, Status> {
        auth::check(&self.secrets, ask.metadata())?;
        let (artifact, server) = words::reload_in(ask.into_inner())
            .ok_or_else(|| Status::invalid_argument("no version that can be read"))?;
        self.peer.reloads(artifact, server);
        Ok(Response::new(proto::ReloadAnswer {}))
    }

    async fn r#yield(&self, ask: Request<proto::YieldRequest>) -> Result<Response<proto::YieldAnswer>, Status> {
        auth::check(&self.secrets, ask.metadata())?;
        let leave =
            words::leave_in(ask.into_inner()).ok_or_else(|| Status::invalid_argument("no version that can be read"))?;
        let yes = self.peer.leaves(leave).await;
        Ok(Response::new(proto::YieldAnswer { yes }))
    }
}
