//! The model server's side of a socket that is passed through: a replica that holds the tenant's version, and a handshake with it before the client gets its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, HOST, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use holdfast_codec::ws::accept_key;
use holdfast_config::StreamRoute;
use holdfast_net::{Checkout, Seat, Socket};
use holdfast_placement::health::HealthEvent;
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind, Mono};

use super::handshake::Home;
use crate::exchange::Exchange;
use crate::fleet::{InFlight, Replica};
use crate::headers;
use crate::settings::Settings;
use crate::stage::dispatch::{Holding, hold};
use crate::until::until;
use crate::upstream_body::UpstreamBody;

/// The most bytes of a model server's head.
const HEAD: usize = 16 * 1024;

/// A socket of a model server.
pub struct Upstream {
    /// Its bytes.
    pub socket: Socket,
    /// It counts among the replica's connections.
    pub seat: Seat<UpstreamBody>,
    /// Keeps the version from being unloaded.
    pub in_flight: InFlight,
    /// The subprotocol that it chose.
    pub protocol: Option<HeaderValue>,
}

/// Opens a socket at a replica that holds the version; at another one if it cannot be reached, as often as a request may be sent again.
///
/// # Errors
/// `no_holder`, `overloaded`, `upstream_error`, `upstream_timeout`.
///
/// # Cancel safety
/// Dropping the future closes what was opened and gives everything back.
pub async fn open(
    exchange: &mut Exchange,
    home: &Home,
    route: &StreamRoute,
    fields: &HeaderMap,
    settings: &Settings,
    deadline: Mono,
) -> Result<Upstream, Failure> {
    let mut holding = Holding::default();
    loop {
        let in_flight = hold(exchange, &home.worker, &mut holding, deadline).await?;
        let replica = in_flight.cell().replica.clone();
        exchange.replica = Some(replica.clone());
        let Some((request, key)) = request(exchange, route, &replica, fields, settings) else {
            return Err(Failure::new(FailureKind::UpstreamError, "the handshake cannot be written"));
        };
        let most = exchange.resolution.as_ref().map_or(Duration::ZERO, |r| r.state.pool.config.connections.connect);
        let seat = seat(exchange, home, &replica, deadline).await;
        let seat = match seat {
            Ok(seat) => seat,
            Err(failed) => {
                fail(exchange, &replica, &mut holding, failed)?;
                continue;
            }
        };
        exchange.sending(Clock::now());
        let opened = until(Clock::instant(deadline), shake(&replica, home, request, &key, most)).await;
        match opened {
            Ok(Ok((socket, protocol))) => {
                count(exchange, "ok");
                return Ok(Upstream { socket, seat, in_flight, protocol });
            }
            Ok(Err(failed)) => fail(exchange, &replica, &mut holding, failed)?,
            Err(_) => {
                count(exchange, "timeout");
                let why = "the model server did not answer the handshake in time";
                return Err(Failure::new(FailureKind::UpstreamTimeout, why));
            }
        }
    }
}

fn fail(exchange: &mut Exchange, replica: &Arc<Replica>, holding: &mut Holding, failed: Failed) -> Result<(), Failure> {
    count(exchange, failed.label);
    if failed.is_transport {
        exchange.gateway().driver.seen(replica, HealthEvent::TransportError);
        replica.set_error(Some(failed.failure.detail.to_string()));
    }
    holding.failed(exchange, failed.failure)
}

/// A socket is a connection like any other: where as many are open as may be, it waits for its turn.
async fn seat(
    exchange: &Exchange,
    home: &Home,
    replica: &Replica,
    deadline: Mono,
) -> Result<Seat<UpstreamBody>, Failed> {
    let times = exchange.resolution.as_ref().map(|resolution| resolution.state.pool.config.connections.clone());
    let pool = replica.connections(home.worker.index).zip(times);
    let Some((pool, times)) = pool else { return Err(Failed::transport("there is no worker for it")) };
    let full = || {
        let why = "no connection to the replica came free within the request's budget";
        let failure = Failure::new(FailureKind::Overloaded, why).retry_in(Duration::from_secs(1));
        Failed { failure, label: "overloaded", is_transport: false }
    };
    match until(Clock::instant(deadline), Box::pin(pool.seat(times.idle, times.connect))).await {
        Ok(Ok(seat)) => Ok(seat),
        Ok(Err(Checkout::Full)) | Err(_) => Err(full()),
        Ok(Err(Checkout::Connect(why))) => Err(Failed::transport(format!("no connection: {why}"))),
    }
}

fn count(exchange: &Exchange, outcome: &'static str) {
    if let Some(resolution) = &exchange.resolution {
        resolution.state.attempts.count(outcome);
    }
}

struct Failed {
    failure: Failure,
    label: &'static str,
    is_transport: bool,
}

impl Failed {
    fn transport(why: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        let failure = Failure::new(FailureKind::UpstreamError, why);
        Self { failure, label: "connect_error", is_transport: true }
    }
}

fn request(
    exchange: &Exchange,
    route: &StreamRoute,
    replica: &Replica,
    fields: &HeaderMap,
    settings: &Settings,
) -> Option<(Request<Empty<Bytes>>, String)> {
    let resolution = exchange.resolution.as_ref()?;
    let path = route.upstream.replace("{model}", resolution.route.model.as_str());
    let path = path.replace("{version}", resolution.route.version.as_str());
    let mut client = fields.clone();
    for name in [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_VERSION] {
        client.remove(name);
    }
    let own = [
        (HOST, replica.authority.clone()),
        (headers::TENANT, resolution.state.tenant_header.clone()),
        (headers::REQUEST_ID, exchange.id.header.clone()),
    ];
    let mut made = headers::for_upstream(&client, settings.credential.as_ref(), own);
    let key = key();
    made.insert(UPGRADE, HeaderValue::from_static("websocket"));
    made.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    made.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    made.insert(SEC_WEBSOCKET_KEY, HeaderValue::try_from(&key).ok()?);
    let mut request = Request::get(path).body(Empty::new()).ok()?;
    *request.headers_mut() = made;
    Some((request, key))
}

/// 16 random bytes in base64: of the last digit two bits count.
fn key() -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = crate::random::Random::new();
    let mut digit = |of: &[u8]| char::from(of[(random.next() >> 32) as usize % of.len()]);
    let mut key: String = (0..21).map(|_| digit(DIGITS)).collect();
    key.push(digit(b"AQgw"));
    key + "=="
}

async fn shake(
    replica: &Arc<Replica>,
    home: &Home,
    request: Request<Empty<Bytes>>,
    key: &str,
    most: Duration,
) -> Result<(Socket, Option<HeaderValue>), Failed> {
    let stream = replica.connect(most).await.map_err(|why| Failed::transport(format!("no connection: {why}")))?;
    let broken = |_| Failed::transport("the replica broke the handshake off");
    let (mut sender, conn) = http1::Builder::new()
        .max_buf_size(HEAD)
        .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    home.tasks.spawn(async move { drop(conn.with_upgrades().await) });
    let response = sender.send_request(request).await.map_err(broken)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let why = format!("the model server answered the handshake with {}", response.status().as_u16());
        let failure = Failure::new(FailureKind::UpstreamError, why);
        return Err(Failed { failure, label: "client_error", is_transport: false });
    }
    let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).and_then(|value| value.to_str().ok());
    if accepted.map(str::to_owned) != accept_key(key) {
        return Err(Failed::transport("the model server's handshake is not one"));
    }
    let protocol = response.headers().get(SEC_WEBSOCKET_PROTOCOL).cloned();
    let upgraded = hyper::upgrade::on(response).await.map_err(broken)?;
    let parts = upgraded.downcast::<TokioIo<TcpStream>>().map_err(|_| Failed::transport("the socket is lost"))?;
    Ok((Socket::of_tcp(parts.io.into_inner(), parts.read_buf), protocol))
}
