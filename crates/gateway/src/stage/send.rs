//! One attempt: the request goes to one replica; what may be said of a failure is whether the replica can have executed it.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use tokio::time::Instant;

use holdfast_codec::oip::ModelOp;
use holdfast_net::{Checkout, ReplicaConn};
use holdfast_placement::health::HealthEvent;
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind, Mono};

use super::blame::Met;
use super::payload::Payload;
use crate::answer::Passing;
use crate::exchange::{Exchange, RequestId};
use crate::fleet::{InFlight, Replica};
use crate::headers;
use crate::route_state::RouteState;
use crate::until::until;
use crate::upstream_body::UpstreamBody;
use crate::worker::Worker;

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
/// The reason of another attempt where a connection that was kept had been closed: it says nothing of the replica, and another connection may serve.
pub const CLOSED: &str = "closed";

/// What an attempt knows of those before it.
#[derive(Clone, Copy)]
pub struct Sending {
    /// When the request has to be answered.
    pub deadline: Mono,
    /// No connection that was kept is to be used: the others of its time may be closed as well.
    pub fresh: bool,
}

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
    sending: Sending,
) -> Result<Attempt, Failure> {
    let until = Clock::instant(sending.deadline);
    let mut one = One { exchange, worker, head, in_flight, until };
    let conn = match one.connect(sending.fresh).await {
        Ok(conn) => conn,
        Err(attempt) => return attempt,
    };
    one.exchange_with(conn, payload).await
}

/// One attempt under way.
pub(super) struct One<'a> {
    pub(super) exchange: &'a mut Exchange,
    pub(super) worker: &'a Worker,
    pub(super) head: &'a Head,
    pub(super) in_flight: InFlight,
    pub(super) until: Instant,
}

impl One<'_> {
    /// An idle connection at once, or a new one; with `fresh` always a new one.
    async fn connect(&mut self, fresh: bool) -> Result<ReplicaConn<UpstreamBody>, Result<Attempt, Failure>> {
        let replica = self.in_flight.cell().replica.clone();
        self.exchange.replica = Some(replica.clone());
        let Some(resolution) = &self.exchange.resolution else { return Err(Err(overdue())) };
        let times = &resolution.state.pool.config.connections;
        let Some(pool) = replica.connections(self.worker.index) else { return Err(Err(overdue())) };
        // None has been idle for less than no time.
        let idle = if fresh { Duration::ZERO } else { times.idle };
        if let Some(conn) = pool.take_idle(idle) {
            return Ok(conn);
        }
        // Waits for a turn if all are in use. Boxed: it is rare, and would make the future of every request larger.
        let begun = Clock::now();
        let checked_out = Box::pin(until(self.until, pool.checkout(idle, times.connect))).await;
        let had_turn = pool.has_turn();
        let now = Clock::now();
        self.exchange.wait += now.since(begun);
        let got = matches!(checked_out, Ok(Ok(_)));
        self.exchange.note(|journal| journal.connected(begun, now, got));
        match checked_out {
            Ok(Ok(conn)) => Ok(conn),
            Ok(Err(why)) => Err(Ok(self.not_connected(&replica, &why))),
            Err(_) if had_turn => Err(Err(overdue())),
            Err(_) => {
                let why = "no connection to the replica came free within the request's budget";
                Err(Err(Failure::new(FailureKind::Overloaded, why).retry_in(Duration::from_secs(1))))
            }
        }
    }

    fn not_connected(&self, replica: &Replica, why: &Checkout) -> Attempt {
        if matches!(why, Checkout::Full) {
            let failure =
                Failure::new(FailureKind::Overloaded, "too many requests wait for a connection to the replica");
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
        let sent = until(self.until, pin!(conn.begin(request))).await.map(|answer| conn.headed(answer));
        self.exchange.bytes_in = payload.bytes();
        match sent {
            Ok(Ok(response)) if self.is_tagged_otherwise(response.headers()) => self.anothers_answer(),
            Ok(Ok(response)) if response.status().is_success() => self.success(response, conn, payload).await,
            // Boxed: it is rare, and would make the future of every request larger.
            Ok(Ok(response)) => Box::pin(self.refused(response, conn)).await,
            Ok(Err(error)) => {
                if let Some(failure) = payload.client_fault() {
                    return Err(failure);
                }
                self.count("transport_error");
                let Some(unsent) = error.unsent else {
                    // A kept connection may have been closed for what came before, as MLServer's is after a 500. Whether the server is well is asked.
                    // Nor does it show the replica's fault that the process does not survive what one tenant sends.
                    if conn.is_reused() || !self.is_replicas_fault(Met::Failure) {
                        self.in_flight.cell().replica.refresh.notify_one();
                    } else {
                        self.health(HealthEvent::TransportError);
                    }
                    return self.maybe_executed(broken("the replica broke the connection"), "broken");
                };
                payload.put_back(unsent.into_body());
                let failure = broken("the replica closed the connection");
                if conn.is_reused() {
                    return Ok(Attempt::Again { failure, reason: CLOSED });
                }
                self.health(HealthEvent::TransportError);
                Ok(Attempt::Again { failure, reason: "connect" })
            }
            Err(_) => {
                self.count("timeout");
                // A budget shorter than the default says more about the client than about the replica, and so does a body that does not come.
                if !payload.is_owed() && Clock::now().since(now) >= self.head.patience {
                    self.health(HealthEvent::TransportError);
                }
                Err(payload.client_fault().unwrap_or_else(overdue))
            }
        }
    }

    fn request(&self, body: UpstreamBody) -> Option<Request<UpstreamBody>> {
        let state = &self.exchange.resolution.as_ref()?.state;
        request(self.head, state, &self.in_flight.cell().replica, &self.exchange.id, body)
    }

    /// The request may have been executed: another attempt only where that is harmless.
    pub(super) fn maybe_executed(&self, failure: Failure, reason: &'static str) -> Result<Attempt, Failure> {
        let idempotent = self.exchange.resolution.as_ref().is_some_and(|r| r.route.idempotent);
        let reads_only = self.head.op != ModelOp::Infer;
        if idempotent || reads_only { Ok(Attempt::Again { failure, reason }) } else { Err(failure) }
    }

    pub(super) fn health(&self, event: HealthEvent) {
        let (gateway, replica) = (self.exchange.gateway(), &self.in_flight.cell().replica);
        if event == HealthEvent::AnswerOk {
            gateway.blame.answered(replica.ix);
        }
        gateway.driver.seen(replica, event);
    }

    pub(super) fn count(&self, outcome: &'static str) {
        if let Some(resolution) = &self.exchange.resolution {
            resolution.state.attempts.count(outcome);
        }
    }
}

/// What a replica is sent.
pub(crate) fn request(
    head: &Head,
    state: &RouteState,
    replica: &Replica,
    id: &RequestId,
    body: UpstreamBody,
) -> Option<Request<UpstreamBody>> {
    let path = match head.op {
        ModelOp::Infer => &state.infer,
        ModelOp::Metadata | ModelOp::Ready => &state.metadata,
    };
    let path = match &head.query {
        None => path.clone(),
        Some(query) => PathAndQuery::try_from(format!("{}?{query}", path.path())).ok()?,
    };
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = Uri::from(path);
    let own = [
        (http::header::HOST, replica.authority.clone()),
        (headers::TENANT, state.tenant_header.clone()),
        (headers::REQUEST_ID, id.header.clone()),
    ];
    *request.headers_mut() = headers::for_upstream(&head.fields, head.trusted.as_ref(), own);
    Some(request)
}

pub(super) fn overdue() -> Failure {
    Failure::new(FailureKind::UpstreamTimeout, "no answer within the request's budget")
}

pub(super) fn broken(why: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(FailureKind::UpstreamError, why)
}
