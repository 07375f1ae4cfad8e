//! Who starts loads on which model server, over gRPC: a transport of [`holdfast_placement::seats`].
//!
//! * [`SeatsService`]: control planes answer gateways ([`Plane::sit`]). * [`Usher`]: a gateway asks its control planes. * [`Peer`], [`listen`]:
//!   a gateway answers others. * [`Phone`]: it asks them.
//!
//! Every call has a deadline, and an answer counts from when the question was sent. What cannot be read is passed over: a seating of which one seat
//! cannot be read is none.

#[cfg(test)]
mod golden;
mod listen;
mod phone;
mod usher;
mod words;

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};

use holdfast_decide::rollout::Artifact;
use holdfast_placement::seats::{Sit, Told};
use holdfast_plane::Wish;
use holdfast_types::{GatewayName, PoolName};

use crate::auth::{self, Secret};
use crate::proto;
use crate::proto::seats_server::{Seats, SeatsServer};
use crate::server::Plane;

pub use listen::listen;
pub use phone::{CallError, Phone};
pub use usher::{Unseated, Usher};

/// The most that one message may have in a list.
const MAX_LIST: usize = 1_024;

/// What a gateway asks its control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What it says of itself.
    pub sit: Sit,
    /// What it would have others load, and cannot ask them for.
    pub wishes: Vec<Wish>,
    /// Pools whose servers were seen to tell what they are loading.
    pub telling: Vec<PoolName>,
}

/// What it is answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// What it is told of seats.
    pub told: Told,
    /// What others would have loaded.
    pub wishes: Vec<Wish>,
    /// Pools whose servers any gateway saw to tell what they are loading.
    pub telling: Vec<PoolName>,
}

/// A gateway's answer to who asks for its vote.
#[derive(Clone, Debug)]
pub struct Ballot {
    /// Who answers.
    pub name: GatewayName,
    /// Where its promises are.
    pub home: u64,
    /// Whether it votes for the lease.
    pub yes: bool,
}

/// What became of a load that another gateway was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// This server has it.
    Ready(Box<str>),
    /// Not in the time that there was.
    Shed {
        /// When to ask again.
        retry: Duration,
        /// Why, as a word.
        why: String,
    },
    /// It cannot be loaded.
    Failed(String),
    /// None of the servers is the gateway's.
    NotOwner,
}

/// A version is about to be unloaded, or is not after all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// What.
    pub artifact: Artifact,
    /// Where.
    pub server: Box<str>,
    /// How long that may take.
    pub within: Duration,
    /// It stays.
    pub taken_back: bool,
    /// The number of the question; what is taken back is that one's.
    pub word: u64,
    /// The copy is wrong.
    pub renews: bool,
}

/// What a gateway answers other gateways.
#[tonic::async_trait]
pub trait Peer: Send + Sync + 'static {
    /// Whether it votes for a lease of this seating.
    fn vote(&self, epoch: u64) -> Ballot;

    /// Has a version loaded on a server that it owns. Dropped when the other gateway asks no more.
    async fn load(&self, wish: Wish, within: Duration) -> Loaded;

    /// Stops to use a version on a server. False: it is in use.
    async fn leaves(&self, leave: Leave) -> bool;

    /// The version is about to be loaded on the server: what was proved of a copy there says nothing of the one that comes.
    fn reloads(&self, artifact: Artifact, server: Box<str>);
}

/// See the module.
pub struct SeatsService {
    secrets: Vec<Secret>,
    plane: Arc<dyn Plane>,
}

impl SeatsService {
    pub(crate) fn server(secrets: Vec<Secret>, plane: Arc<dyn Plane>) -> SeatsServer<Self> {
        SeatsServer::new(Self { secrets, plane })
    }
}

#[tonic::async_trait]
impl Seats for SeatsService {
    async fn sit(&self, ask: Request<proto::SitRequest>) -> Result<Response<proto::SitAnswer>, Status> {
        auth::check(&self.secrets, ask.metadata())?;
        self.plane.takes().map_err(Status::unavailable)?;
        let asked =
            words::asked_in(ask.into_inner()).ok_or_else(|| Status::invalid_argument("no seat that can be read"))?;
        let answered = self.plane.sit(asked);
        let answered = answered.ok_or_else(|| Status::unavailable("this control plane gives no seats now"))?;
        Ok(Response::new(words::answered_out(&answered)))
    }
}
