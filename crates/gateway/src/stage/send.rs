//! One attempt: the request goes to one replica, and what comes back is judged before any of it is passed on.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use holdfast_codec::oip::{self, ModelOp};
use holdfast_net::{Checkout, ReplicaConn};
use holdfast_placement::health::HealthEvent;
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind, ModelName, Mono};

use super::payload::Payload;
use crate::answer::{Fault, Passing, Reading, join};
use crate::exchange::Exchange;
use crate::fleet::{InFlight, Replica};
use crate::headers;
use crate::residency::words;
use crate::server::Worker;
use crate::upstream_body::UpstreamBody;

/// What is sent beside the body. The same for every attempt.
pub struct Head {
    /// The method.
    pub method: Method,
    /// What is asked of the model.
    pub op: ModelOp,
    /// The client's fields, not yet made fit for a replica.
    pub fields: HeaderMap,
    /// The field that named the tenant.
    pub trusted: Option<http::HeaderName>,
    /// The query, to be passed on.
    pub query: Option<String>,
    /// How much of an answer is held.
    pub answer_head: usize,
    /// The default budget: a replica that does not answer within it is at fault.
    pub patience: Duration,
}

/// An answer that may be passed on.
pub struct Received {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, made fit for the client.
    pub fields: HeaderMap,
    /// Its body.
    pub body: ReceivedBody,
}

/// The body of an answer.
pub enum ReceivedBody {
    /// All of it.
    Whole(Bytes),
    /// The beginning has been checked, the rest will be as it comes.
    Passing(Box<Passing>),
}

/// How an attempt ended, short of a failure that ends the request.
pub enum Attempt {
    /// With an answer.
    Received(Received),
    /// Another attempt may be made; if none can be, this is the failure.
    Again {
        /// The failure.
        failure: Failure,
        /// Why, as a metric label.
        reason: &'static str,
    },
}

/// The reason of another attempt where the replica did not hold what it was believed to hold.
pub const NOT_LOADED: &str = "not_loaded";
/// The largest error answer that is read.
const ERROR_BODY: usize = 64 * 1024;

/// Sends the request once.
///
/// # Errors
/// A failure that no other attempt may mend.
pub async fn send(
    exchange: &mut Exchange,
    worker: &Worker,
    head: &Head,
    payload: &mut Payload,
    in_flight: InFlight,
    deadline: Mono,
) -> Result<Attempt, Failure> {
    let until = Clock::instant(deadline);
    let mut one = One { exchange, worker, head, in_flight, until };
    let conn = match one.connect().await {
        Ok(conn) => conn,
        Err(attempt) => return attempt,
    };
    one.exchange_with(conn, payload).await
}

struct One<'a> {
    exchange: &'a mut Exchange,
    worker: &'a Worker,
    head: &'a Head,
    in_flight: InFlight,
    until: Instant,
}

impl One<'_> {
    /// An idle connection at once, or a new one.
    async fn connect(&mut self) -> Result<ReplicaConn<UpstreamBody>, Result<Attempt, Failure>> {
        let replica = self.in_flight.cell().replica.clone();
        self.exchange.replica = Some(replica.clone());
        let Some(resolution) = &self.exchange.resolution else { return Err(Err(overdue())) };
        let times = &resolution.state.pool.config.connections;
        let Some(pool) = replica.connections(self.worker.index) else { return Err(Err(overdue())) };
        if let Some(conn) = pool.take_idle(times.idle) {
            return Ok(conn);
        }
        // Boxed: it is rare, and would make the future of every request larger.
        match Box::pin(timeout_at(self.until, pool.open(times.connect))).await {
            Ok(Ok(conn)) => Ok(conn),
            Ok(Err(why)) => Err(Ok(self.not_connected(&replica, &why))),
            Err(_) => Err(Err(overdue())),
        }
    }

    fn not_connected(&self, replica: &Replica, why: &Checkout) -> Attempt {
        if matches!(why, Checkout::Full) {
            let failure = Failure::new(FailureKind::Overloaded, "all connections to the replica are in use");
            return Attempt::Again { failure, reason: "connections_full" };
        }
        replica.set_error(Some(why.to_string()));
        self.count("connect_error");
        self.health(HealthEvent::TransportError);
        Attempt::Again { failure: broken("no connection to the replica"), reason: "connect" }
    }

    async fn exchange_with(
        self,
        mut conn: ReplicaConn<UpstreamBody>,
        payload: &mut Payload,
    ) -> Result<Attempt, Failure> {
        let Some(body) = payload.take() else { return Err(broken("the request cannot be sent again")) };
        let request = self.request(body).ok_or_else(|| broken("the request cannot be written"))?;
        let now = Clock::now();
        self.exchange.sending(now);
        let sent = timeout_at(self.until, conn.send(request)).await;
        self.exchange.bytes_in = payload.bytes();
        match sent {
            Ok(Ok(response)) => self.judge(response, conn).await,
            Ok(Err(error)) => {
                if let Some(failure) = payload.client_fault() {
                    return Err(failure);
                }
                self.count("transport_error");
                let Some(unsent) = error.unsent else {
                    self.health(HealthEvent::TransportError);
                    return self.maybe_executed(broken("the replica broke the connection"), "broken");
                };
                payload.put_back(unsent.into_body());
                if !conn.is_reused() {
                    self.health(HealthEvent::TransportError);
                }
                Ok(Attempt::Again { failure: broken("the replica closed the connection"), reason: "closed" })
            }
            Err(_) => {
                self.count("timeout");
                // A budget shorter than the default says more about the client than about the replica.
                if Clock::now().since(now) >= self.head.patience {
                    self.health(HealthEvent::TransportError);
                }
                Err(payload.client_fault().unwrap_or_else(overdue))
            }
        }
    }

    fn request(&self, body: UpstreamBody) -> Option<Request<UpstreamBody>> {
        let state = &self.exchange.resolution.as_ref()?.state;
        let path = match self.head.op {
            ModelOp::Infer => &state.infer,
            ModelOp::Metadata | ModelOp::Ready => &state.metadata,
        };
        let path = match &self.head.query {
            None => path.clone(),
            Some(query) => PathAndQuery::try_from(format!("{}?{query}", path.path())).ok()?,
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = Uri::from(path);
        let mut fields = self.head.fields.clone();
        let host = &self.in_flight.cell().replica.authority;
        headers::for_upstream(&mut fields, host, self.head.trusted.as_ref());
        fields.insert(headers::TENANT, state.tenant_header.clone());
        if let Ok(id) = HeaderValue::from_str(&self.exchange.id) {
            fields.insert(headers::REQUEST_ID, id);
        }
        *request.headers_mut() = fields;
        Some(request)
    }

    async fn judge(
        mut self,
        response: Response<Incoming>,
        conn: ReplicaConn<UpstreamBody>,
    ) -> Result<Attempt, Failure> {
        let status = response.status();
        if status.is_success() {
            return self.success(response, conn).await;
        }
        let retry_after = retry_after(response.headers());
        let mut fields = response.headers().clone();
        let body = match read_whole(response.into_body(), ERROR_BODY, self.until).await {
            Ok(body) => body,
            Err(Whole::Late) => return Err(overdue()),
            Err(Whole::Broken | Whole::TooLarge) => {
                self.count("transport_error");
                self.health(HealthEvent::TransportError);
                return self.maybe_executed(broken("the replica's error answer is broken"), "broken");
            }
        };
        conn.give_back();
        self.exchange.upstream_done();
        if oip::is_not_loaded(status.as_u16(), &body) {
            return Ok(self.not_loaded());
        }
        match status.as_u16() {
            429 | 503 => {
                self.count("backpressure");
                self.health(HealthEvent::Backpressure { retry_after });
                let failure = Failure::new(FailureKind::Overloaded, "the replica asks for a pause");
                let failure = failure.retry_in(retry_after.unwrap_or(Duration::from_secs(1)));
                Ok(Attempt::Again { failure, reason: "backpressure" })
            }
            400..=499 => {
                self.count("client_error");
                self.health(HealthEvent::ClientError);
                headers::for_client(&mut fields);
                Ok(Attempt::Received(Received { status, fields, body: ReceivedBody::Whole(body) }))
            }
            code => {
                self.count("server_error");
                self.health(HealthEvent::ServerError);
                let failure = broken(format!("the model server answered {code}: {}", words(&body)));
                self.maybe_executed(failure, "server_error")
            }
        }
    }

    /// The replica does not hold what it was believed to hold: others of the subset may.
    fn not_loaded(&mut self) -> Attempt {
        self.count("not_loaded");
        let cell = self.in_flight.cell();
        self.exchange.gateway().driver.missed(cell.replica.ix, cell.version);
        let failure = Failure::new(FailureKind::NoHolder, "the replica no longer holds the version");
        Attempt::Again { failure: failure.retry_in(Duration::from_secs(1)), reason: NOT_LOADED }
    }

    async fn success(self, response: Response<Incoming>, conn: ReplicaConn<UpstreamBody>) -> Result<Attempt, Failure> {
        let (parts, incoming) = response.into_parts();
        let Some(state) = self.exchange.resolution.as_ref().map(|r| r.state.clone()) else { return Err(overdue()) };
        let encoded = parts.headers.get(CONTENT_ENCODING).is_some_and(|e| e != "identity");
        if encoded && state.pool.config.upstream.answer != holdfast_config::AnswerCheck::None {
            self.count("bad_answer");
            return Err(broken("the replica compressed its answer although it was asked not to"));
        }
        self.health(HealthEvent::AnswerOk);
        self.count("ok");
        if self.head.op != ModelOp::Infer {
            return self.metadata(parts, incoming, conn).await;
        }
        let json = parts.headers.get(oip::JSON_LENGTH_HEADER).map(|v| v.to_str().ok().and_then(|t| t.parse().ok()));
        let json = match json {
            Some(None) => return Err(broken("the replica's inference-header-content-length is malformed")),
            Some(length) => length,
            None => None,
        };
        let reading = Reading::new(state, json);
        let held = hold(incoming, reading, self.head.answer_head, self.until).await;
        match held {
            Ok(held) => self.release(parts, held, conn, json),
            Err(Held::Late) => Err(overdue()),
            Err(Held::Broken) => {
                self.count("transport_error");
                self.health(HealthEvent::TransportError);
                self.maybe_executed(broken("the replica broke its answer off"), "broken")
            }
            Err(Held::Fault(fault)) => Err(self.wrong_version(&fault)),
        }
    }

    fn release(
        self,
        parts: http::response::Parts,
        held: Holding,
        conn: ReplicaConn<UpstreamBody>,
        json: Option<u64>,
    ) -> Result<Attempt, Failure> {
        let mut fields = parts.headers;
        let delta = held.reading.delta();
        if let Some(length) = json {
            if !held.reading.is_decided() && held.incoming.is_some() {
                return Err(broken("the JSON part of the replica's answer is too large to be checked"));
            }
            fields.insert(oip::JSON_LENGTH_HEADER, HeaderValue::from(length.saturating_add_signed(delta)));
        }
        headers::for_client(&mut fields);
        let body = match held.incoming {
            None => {
                conn.give_back();
                self.exchange.upstream_done();
                ReceivedBody::Whole(join(held.ready))
            }
            Some(incoming) => {
                // The length is known if nothing more will be rewritten.
                let ready: u64 = held.ready.iter().map(|b| b.len() as u64).sum();
                let rest = incoming.size_hint().exact().filter(|_| held.reading.is_decided());
                ReceivedBody::Passing(Box::new(Passing {
                    left: rest.map(|rest| rest + ready),
                    ready: held.ready,
                    incoming,
                    reading: held.reading,
                    deadline: Box::pin(tokio::time::sleep_until(self.until)),
                    lease: self.worker.leases.lend(conn, self.in_flight, self.until),
                    ended: false,
                }))
            }
        };
        Ok(Attempt::Received(Received { status: parts.status, fields, body }))
    }

    /// Metadata is small: it is read whole, checked, and told in the client's names.
    async fn metadata(
        self,
        parts: http::response::Parts,
        incoming: Incoming,
        conn: ReplicaConn<UpstreamBody>,
    ) -> Result<Attempt, Failure> {
        let body = match read_whole(incoming, 1 << 20, self.until).await {
            Ok(body) => body,
            Err(Whole::Late) => return Err(overdue()),
            Err(_) => return Err(broken("the replica's metadata is broken or too large")),
        };
        conn.give_back();
        self.exchange.upstream_done();
        let Some(resolution) = &self.exchange.resolution else { return Err(overdue()) };
        let expected = &resolution.state.expected;
        let mut value: serde_json::Value =
            serde_json::from_slice(&body).map_err(|_| broken("the replica's metadata is not JSON"))?;
        let Some(object) = value.as_object_mut() else { return Err(broken("the replica's metadata is no object")) };
        let name = object.get("name").and_then(serde_json::Value::as_str);
        if name.is_some_and(|name| name != expected.upstream_model) {
            // What is no name may be a copy of the request, and is not repeated.
            let told = name.filter(|name| ModelName::check(name).is_ok());
            let fault = format!("metadata is of {told:?} where {:?} was asked", expected.upstream_model);
            return Err(self.wrong_version(&fault));
        }
        object.insert("name".to_owned(), expected.model.clone().into());
        object.insert("versions".to_owned(), vec![expected.version.clone()].into());
        let mut fields = parts.headers;
        headers::for_client(&mut fields);
        let body = ReceivedBody::Whole(value.to_string().into());
        Ok(Attempt::Received(Received { status: parts.status, fields, body }))
    }

    fn wrong_version(&self, fault: &impl ToString) -> Failure {
        let cell = self.in_flight.cell();
        self.exchange.gateway().driver.quarantine(cell.replica.ix, cell.version, fault.to_string());
        Failure::new(FailureKind::WrongVersionServed, "the replica answered for another version than it was asked for")
    }

    /// The request may have been executed: another attempt only where that is harmless.
    fn maybe_executed(&self, failure: Failure, reason: &'static str) -> Result<Attempt, Failure> {
        let idempotent = self.exchange.resolution.as_ref().is_some_and(|r| r.route.idempotent);
        let reads_only = self.head.op != ModelOp::Infer;
        if idempotent || reads_only { Ok(Attempt::Again { failure, reason }) } else { Err(failure) }
    }

    fn health(&self, event: HealthEvent) {
        self.exchange.gateway().driver.seen(&self.in_flight.cell().replica, event);
    }

    fn count(&self, outcome: &'static str) {
        if let Some(resolution) = &self.exchange.resolution {
            resolution.state.attempts.count(outcome);
        }
    }
}

fn overdue() -> Failure {
    Failure::new(FailureKind::UpstreamTimeout, "no answer within the request's budget")
}

fn broken(why: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(FailureKind::UpstreamError, why)
}

/// `Retry-After` in seconds. Dates are not used between machines whose clocks may differ.
fn retry_after(fields: &HeaderMap) -> Option<Duration> {
    let text = fields.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

enum Whole {
    Late,
    Broken,
    TooLarge,
}

async fn read_whole(mut incoming: Incoming, most: usize, until: Instant) -> Result<Bytes, Whole> {
    let mut whole = BytesMut::new();
    while let Some(frame) = timeout_at(until, incoming.frame()).await.map_err(|_| Whole::Late)? {
        let Ok(data) = frame.map_err(|_| Whole::Broken)?.into_data() else { continue };
        if whole.len() + data.len() > most {
            return Err(Whole::TooLarge);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The beginning of an answer, checked.
struct Holding {
    ready: VecDeque<Bytes>,
    reading: Reading,
    /// None: the answer is complete.
    incoming: Option<Incoming>,
}

enum Held {
    Late,
    Broken,
    Fault(Fault),
}

/// Reads an answer until it is complete or, if it is long, until it has named its version or the bound is reached.
async fn hold(mut incoming: Incoming, mut reading: Reading, most: usize, until: Instant) -> Result<Holding, Held> {
    let mut ready = VecDeque::new();
    let mut read = 0;
    let short = incoming.size_hint().exact().is_some_and(|length| length <= most as u64);
    loop {
        if !short && read > 0 && reading.is_decided() {
            break;
        }
        if read >= most && !short {
            break;
        }
        let frame = timeout_at(until, incoming.frame()).await.map_err(|_| Held::Late)?;
        let Some(frame) = frame else {
            reading.finish(&mut ready);
            reading.judge().map_err(Held::Fault)?;
            return Ok(Holding { ready, reading, incoming: None });
        };
        let Ok(data) = frame.map_err(|_| Held::Broken)?.into_data() else { continue };
        read += data.len();
        reading.feed(data, &mut ready).map_err(Held::Fault)?;
    }
    reading.judge().map_err(Held::Fault)?;
    Ok(Holding { ready, reading, incoming: Some(incoming) })
}
