//! A gateway asks others. A connection is made when it is needed and kept.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use holdfast_decide::rollout::Artifact;
use holdfast_placement::seats::Seat;
use holdfast_plane::Wish;
use holdfast_types::GatewayName;

use super::{Ballot, Leave, Loaded, words};
use crate::auth::{self, ClientTls, Renewed, Secret};
use crate::proto;
use crate::proto::peers_client::PeersClient;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// A peer of which nothing is heard for so long is gone.
const QUIET: Duration = Duration::from_secs(3);

/// The other gateway gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CallError(String);

/// See the module.
pub struct Phone {
    me: GatewayName,
    secret: Option<Secret>,
    tls: Option<Renewed<ClientTls>>,
    /// Each with the number of the certificates that it was made with.
    channels: Mutex<HashMap<Box<str>, (u64, Channel)>>,
    /// Where connections live: whoever calls may be on a busy thread, or end.
    runtime: Handle,
}

impl Phone {
    /// Nobody has been called yet. In a runtime of Tokio, in which connections are kept.
    #[must_use]
    pub fn new(me: GatewayName, secret: Option<Secret>, tls: Option<Renewed<ClientTls>>) -> Self {
        Self { me, secret, tls, channels: Mutex::default(), runtime: Handle::current() }
    }

    /// Lets go of connections to gateways that have no seat any more.
    pub fn keep(&self, seats: &[Seat]) {
        let sits = |peer: &str| seats.iter().any(|seat| seat.peer.as_deref() == Some(peer));
        self.channels.lock().retain(|peer, _| sits(peer));
    }

    /// Asks for a vote.
    ///
    /// # Errors
    /// No answer within the time.
    pub async fn vote(&self, peer: &str, epoch: u64, within: Duration) -> Result<Ballot, CallError> {
        let ask = self.ask(proto::VoteRequest { gateway: self.me.to_string(), epoch });
        let mut client = self.client(peer)?;
        let answer = answer(within, client.vote(ask)).await?;
        let name = GatewayName::parse(&answer.gateway).map_err(|e| CallError(e.to_string()))?;
        Ok(Ballot { name, home: answer.home, yes: answer.yes })
    }

    /// Has a version loaded.
    ///
    /// # Errors
    /// No answer within the time and a moment more.
    ///
    /// # Cancel safety
    /// Cancel safe: the other gateway is told that nobody waits any more.
    pub async fn load(&self, peer: &str, wish: &Wish, within: Duration) -> Result<Loaded, CallError> {
        let (gateway, within_ms) = (self.me.to_string(), words::millis(within));
        let ask = self.ask(proto::LoadRequest { gateway, wish: Some(words::wish_out(wish)), within_ms });
        let mut client = self.client(peer)?;
        Ok(words::loaded_in(answer(within + QUIET, client.load(ask)).await?))
    }

    /// Asks that a version be used no more.
    ///
    /// # Errors
    /// No answer within the time.
    pub async fn leaves(&self, peer: &str, leave: &Leave, within: Duration) -> Result<bool, CallError> {
        let ask = self.ask(words::leave_out(&self.me, leave));
        let mut client = self.client(peer)?;
        Ok(answer(within, client.r#yield(ask)).await?.yes)
    }

    /// Tells that a version is about to be loaded on a server.
    ///
    /// # Errors
    /// No answer within the time; a gateway of an earlier release knows no such message.
    pub async fn reloads(
        &self,
        peer: &str,
        artifact: &Artifact,
        server: &str,
        within: Duration,
    ) -> Result<(), CallError> {
        let ask = self.ask(words::reload_out(&self.me, artifact, server));
        let mut client = self.client(peer)?;
        answer(within, client.reload(ask)).await.map(drop)
    }

    fn ask<T>(&self, message: T) -> Request<T> {
        let mut ask = Request::new(message);
        auth::sign(self.secret.as_ref(), ask.metadata_mut());
        ask
    }

    fn client(&self, peer: &str) -> Result<PeersClient<Channel>, CallError> {
        let mut channels = self.channels.lock();
        let number = self.tls.as_ref().map_or(0, Renewed::number);
        if let Some((_, channel)) = channels.get(peer).filter(|(of, _)| *of == number) {
            return Ok(PeersClient::new(channel.clone()));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{peer}")).map_err(|e| CallError(e.to_string()))?;
        let mut endpoint = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(QUIET)
            .keep_alive_timeout(QUIET)
            .keep_alive_while_idle(false);
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.current().config()).map_err(|e| CallError(e.to_string()))?;
        }
        let _there = self.runtime.enter();
        let channel = endpoint.connect_lazy();
        channels.insert(peer.into(), (number, channel.clone()));
        Ok(PeersClient::new(channel))
    }
}

async fn answer<T>(
    within: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, CallError> {
    match timeout(within, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(CallError(format!("{:?}: {}", status.code(), status.message()))),
        Err(_) => Err(CallError("no answer in time".to_owned())),
    }
}
