//! The control plane's side: a listener, and a link to each gateway that comes.

mod hub;
mod link;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

use holdfast_plane::{GatewayEnd, View};
use holdfast_types::GatewayName;

use crate::auth::{self, Renewed, Secret, ServerTls};
use crate::error::WireError;
use crate::held::Stamp;
use crate::incoming::secured;
use crate::proto::control_server::{Control, ControlServer};
use crate::proto::{self, from_control, from_gateway};
use crate::seats::{Answered, Asked, SeatsService};
use crate::{MAX_MESSAGE_BYTES, words};
use hub::Hub;
use link::Link;

/// Messages to a gateway that wait to be written.
const WAITING: usize = 4;
/// Tables that are sent at once because a gateway asked for them.
const FETCHES: usize = 64;
/// Calls of one connection at once.
const CALLS: u32 = 16;

/// What a control plane tells, and whom it hears.
pub trait Plane: Send + Sync + 'static {
    /// What this gateway is to be told now.
    fn view(&self, gateway: &GatewayName) -> View;

    /// Whether gateways are taken at all now; an error says in words why not, and sends the gateway on to the next control plane.
    ///
    /// # Errors
    /// The words.
    fn takes(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// What a gateway is told that asks for a seat. None: this control plane gives none now.
    fn sit(&self, _asked: Asked) -> Option<Answered> {
        None
    }

    /// Whether what is told is known to be in force now; an error says in words why not. Gateways are told within a keep-alive, serve on, and look
    /// for a control plane that can.
    ///
    /// # Errors
    /// The words.
    fn vouches(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Becomes ready when what `vouches` says may have changed since this call, so that gateways hear it at once.
    fn turned(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }

    /// A gateway has come. What is put into the end's `view` is sent to it; its `status` is marked as changed also by a heartbeat, and
    /// closes when the gateway is gone. Dropping the end ends the link. One that came before under the same name has been told to go.
    fn attach(&self, end: GatewayEnd);
}

/// How a control plane serves its gateways.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Any of these opens. None: there is no secret.
    pub secrets: Vec<Secret>,
    /// TLS. None: cleartext.
    pub tls: Option<Renewed<ServerTls>>,
    /// Whether neither a secret nor a certificate of the gateway is needed. Otherwise it is an error to ask for neither.
    pub open: bool,
    /// What the control plane calls its release.
    pub release: String,
    /// A gateway of which nothing is heard for so long is gone.
    pub dead_after: Duration,
    /// A gateway that does not take a message for so long is let go.
    pub read_within: Duration,
    /// How often a link that has nothing to tell says so.
    pub keep_alive: Duration,
    /// Gateways at once.
    pub max_gateways: usize,
    /// Tables of the past that a gateway which comes back may have, and gets a delta from.
    pub remembered: usize,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            tls: None,
            open: false,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            dead_after: Duration::from_secs(10),
            read_within: Duration::from_secs(10),
            keep_alive: Duration::from_secs(1),
            max_gateways: 4_096,
            remembered: 64,
        }
    }
}

/// Serves gateways on this listener until `stop`, then lets all of them go.
///
/// # Errors
/// Settings that cannot be used, or a listener that failed.
pub async fn serve(
    listener: TcpListener,
    settings: ServerSettings,
    plane: Arc<dyn Plane>,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), WireError> {
    let certified = settings.tls.as_ref().is_some_and(|tls| tls.current().clients.is_some());
    if settings.secrets.is_empty() && !certified && !settings.open {
        return Err(WireError::Open);
    }
    let hub = Arc::new(Hub::new(settings.max_gateways, settings.remembered));
    // A ping after half of the time and its answer within the other half.
    let half = settings.dead_after / 2;
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(half))
        .http2_keepalive_timeout(Some(half))
        .max_concurrent_streams(CALLS)
        .tcp_nodelay(true);
    let tls = settings.tls.clone();
    let fetches = Arc::new(tokio::sync::Semaphore::new(FETCHES));
    let grace = settings.read_within;
    let seats = SeatsService::server(settings.secrets.clone(), plane.clone());
    let service = ControlServer::new(Service { settings, plane, hub: hub.clone(), fetches })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let (stopped, mut grace_begins) = tokio::sync::oneshot::channel();
    let router = server.add_service(service).add_service(seats);
    let stopping = async {
        stop.await;
        hub.close();
        let _ = stopped.send(());
    };
    let serving: Serving<'_> = match tls {
        None => Box::pin(router.serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopping)),
        Some(tls) => Box::pin(router.serve_with_incoming_shutdown(secured(listener, tls)?, stopping)),
    };
    let late = async {
        // An error: serving has ended without being asked to.
        if (&mut grace_begins).await.is_ok() {
            tokio::time::sleep(grace).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        served = serving => served.map_err(WireError::Serve),
        () = late => Ok(()),
    }
}

type Serving<'a> = Pin<Box<dyn Future<Output = Result<(), tonic::transport::Error>> + Send + 'a>>;

struct Service {
    settings: ServerSettings,
    plane: Arc<dyn Plane>,
    hub: Arc<Hub>,
    fetches: Arc<tokio::sync::Semaphore>,
}

type Outbound = Pin<Box<ReceiverStream<Result<proto::FromControl, Status>>>>;

#[tonic::async_trait]
impl Control for Service {
    type FollowStream = Outbound;
    type FetchStream = Outbound;

    async fn follow(&self, ask: Request<Streaming<proto::FromGateway>>) -> Result<Response<Outbound>, Status> {
        auth::check(&self.settings.secrets, ask.metadata())?;
        self.plane.takes().map_err(Status::unavailable)?;
        let peer = ask.remote_addr();
        let mut inbound = ask.into_inner();
        let (gateway, has) = self.hello(&mut inbound, peer).await?;
        let seat = self.hub.sit(gateway.clone(), peer).await?;
        let (out, outbound) = mpsc::channel(WAITING);
        let link = Link {
            gateway,
            has,
            release: self.settings.release.clone(),
            read_within: self.settings.read_within,
            dead_after: self.settings.dead_after,
            keep_alive: self.settings.keep_alive,
            plane: self.plane.clone(),
            hub: self.hub.clone(),
            out,
        };
        // Ends with its seat, its streams, or the hub: it outlives none of them.
        tokio::spawn(link.run(inbound, seat));
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }

    async fn fetch(&self, ask: Request<proto::FetchRequest>) -> Result<Response<Outbound>, Status> {
        auth::check(&self.settings.secrets, ask.metadata())?;
        self.plane.takes().map_err(Status::unavailable)?;
        let ask = ask.into_inner();
        let gateway = name(&ask.gateway)?;
        let permit = self.fetches.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Status::resource_exhausted("too many tables are being fetched"))?;
        let view = self.plane.view(&gateway);
        let (has, current) = (Stamp::read(ask.has.as_ref()), Stamp::of(&view.table));
        let welcome = link::welcome(&self.settings.release, current, self.plane.vouches());
        let newer = current.filter(|current| has.is_none_or(|has| current.revision > has.revision));
        let (base, hub) = (has.and_then(|has| self.hub.table(has)), &self.hub);
        hub.remember(&view.table);
        let orders = Some(words::orders_out(&view.orders));
        let parts = newer.and_then(|_| crate::parts::parts(base.as_deref(), &view.table, orders));
        let (out, outbound) = mpsc::channel(WAITING);
        let within = self.settings.read_within;
        tokio::spawn(async move {
            let _permit = permit;
            let tables = parts.into_iter().flatten().map(|part| link::says(from_control::What::Table(part)));
            for message in std::iter::once(welcome).chain(tables) {
                match timeout(within, out.send(Ok(message))).await {
                    Ok(Ok(())) => {}
                    _ => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }
}

impl Service {
    /// What a link begins with.
    async fn hello(
        &self,
        inbound: &mut Streaming<proto::FromGateway>,
        peer: Option<SocketAddr>,
    ) -> Result<(GatewayName, Option<Stamp>), Status> {
        let first = timeout(self.settings.dead_after, inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("the gateway does not say who it is"))??;
        let Some(from_gateway::What::Hello(hello)) = first.and_then(|message| message.what) else {
            return Err(Status::invalid_argument("a link begins with a hello"));
        };
        let from = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        let gateway =
            name(&hello.gateway).inspect_err(|e| warn!(peer = from, "a gateway is refused: {}", e.message()))?;
        let has = Stamp::read(hello.has.as_ref());
        info!(%gateway, peer = from, release = hello.release, revision = has.map(|s| s.revision.0), "a gateway has come");
        Ok((gateway, has))
    }
}

fn name(text: &str) -> Result<GatewayName, Status> {
    GatewayName::parse(text).map_err(|e| Status::invalid_argument(format!("the gateway's name {e}")))
}
