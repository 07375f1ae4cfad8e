//! An answer that is no success: what it says of the request, of the replica, or of what the replica holds.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::Incoming;

use holdfast_codec::answer::names_another;
use holdfast_codec::oip::{self, ModelOp};
use holdfast_codec::rename::renamed;
use holdfast_config::AnswerCheck;
use holdfast_net::ReplicaConn;
use holdfast_placement::health::HealthEvent;
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind};

use super::blame::Met;
use super::reading::{Whole, read_whole};
use super::send::{Attempt, CLOSED, NOT_LOADED, One, Received, ReceivedBody, broken, overdue};
use crate::headers;
use crate::pause;
use crate::residency::words;
use crate::upstream_body::UpstreamBody;

/// The most of an error answer that is read.
const ERROR_BODY: usize = 64 * 1024;
/// The pause after 429 or 503 without a word on its length.
const PAUSE: Duration = Duration::from_secs(1);

/// What a replica said.
struct Told {
    body: Bytes,
    /// False: it said more than is read.
    whole: bool,
}

impl One<'_> {
    pub(super) async fn refused(
        mut self,
        response: Response<Incoming>,
        conn: ReplicaConn<UpstreamBody>,
    ) -> Result<Attempt, Failure> {
        let status = response.status();
        if status == StatusCode::REQUEST_TIMEOUT && conn.is_reused() {
            // It waited long enough for a request, and had not seen this one when it said so (RFC 9110, 15.5.9). Nearly always: so only what may run twice is sent again.
            self.count("transport_error");
            return self.maybe_executed(broken("the replica closed the connection for its age"), CLOSED);
        }
        let fields = response.headers().clone();
        let told = match read_whole(response.into_body(), ERROR_BODY, self.until).await {
            Ok(body) => {
                // A server whose program failed may be about to close the connection, as MLServer is: the next request would be lost with it.
                if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
                    drop(conn);
                } else {
                    conn.give_back();
                }
                Told { body, whole: true }
            }
            // How long an error is may be up to whoever sent the request. The rest is not read, so the connection cannot be used again.
            Err(Whole::TooLarge(body)) => {
                drop(conn);
                Told { body, whole: false }
            }
            Err(Whole::Late) => return Err(overdue()),
            Err(Whole::Broken) => {
                self.count("transport_error");
                self.health(HealthEvent::TransportError);
                return self.maybe_executed(broken("the replica's error answer is broken"), "broken");
            }
        };
        self.exchange.upstream_done();
        // Boxed: it is rare, and would make the future of every request larger.
        if self.says_not_loaded(status, &told) || (self.may_be_lost(status) && Box::pin(self.is_denied()).await) {
            return Ok(self.not_loaded());
        }
        self.refused_with(status, fields, told)
    }

    /// Whether a server's own words are that it does not hold the version. Of metadata there may be none for a version that is well.
    fn says_not_loaded(&self, status: StatusCode, told: &Told) -> bool {
        let Some(resolution) = &self.exchange.resolution else { return false };
        let is_about_metadata = status == StatusCode::NOT_FOUND && self.head.op != ModelOp::Infer;
        let name = &resolution.state.rule.expected.upstream_model;
        !is_about_metadata && oip::is_not_loaded(status.as_u16(), &told.body, name)
    }

    /// Whether an answer may mean that the version is gone: a 404 is also what a model answers that looks something up and does not find it.
    fn may_be_lost(&self, status: StatusCode) -> bool {
        status == StatusCode::NOT_FOUND && self.head.op == ModelOp::Infer
    }

    async fn is_denied(&self) -> bool {
        self.exchange.gateway().driver.denies(self.in_flight.cell(), self.until).await
    }

    fn refused_with(self, status: StatusCode, fields: HeaderMap, told: Told) -> Result<Attempt, Failure> {
        let is_inference = self.head.op == ModelOp::Infer;
        // What an input can bring about: the model's failure, or a status that no inference has.
        let is_models_own = is_inference && (status == StatusCode::INTERNAL_SERVER_ERROR || !status.is_server_error());
        let names_another = is_inference && self.names_another(&told.body);
        let told = Told { body: self.in_the_clients_words(told.body), ..told };
        match status.as_u16() {
            429 | 503 => {
                self.count("backpressure");
                let wait = retry_after(&fields).unwrap_or(PAUSE);
                self.pause(wait);
                let failure = Failure::new(FailureKind::Overloaded, "the replica asks for a pause");
                Ok(Attempt::Again { failure: failure.retry_in(wait), reason: "backpressure" })
            }
            400..=499 if names_another => {
                // Not taken for the proof of a wrong version: it may repeat what the client sent.
                self.count("bad_answer");
                Err(broken(format!("the model server answered {} and named another version in it", status.as_u16())))
            }
            400..=499 => {
                self.count("client_error");
                self.health(HealthEvent::ClientError);
                Ok(Attempt::Received(passed_on(status, fields, told)))
            }
            code => {
                self.count("server_error");
                if !is_models_own || self.is_replicas_fault(Met::Failure) {
                    self.health(HealthEvent::ServerError);
                }
                let said = error_member(&told.body).map(|said| format!(": {said}")).unwrap_or_default();
                let failure = broken(format!("the model server answered {code}{said}"));
                self.maybe_executed(failure, "server_error")
            }
        }
    }

    /// Leaves the replica alone: for this route, and for all only if it asks more than one tenant.
    fn pause(&self, wait: Duration) {
        let Some(resolution) = &self.exchange.resolution else { return };
        if let Some(pause) = resolution.state.pause(self.in_flight.cell().replica.ix) {
            pause.begin(Clock::now(), wait);
        }
        let for_all = if self.is_replicas_fault(Met::Pressure) { wait.min(pause::MOST) } else { Duration::ZERO };
        self.health(HealthEvent::Backpressure { retry_after: Some(for_all) });
    }

    /// Whether what was met counts against the replica: not if one tenant alone meets it while the replica is well otherwise.
    pub(super) fn is_replicas_fault(&self, met: Met) -> bool {
        let Some(resolution) = &self.exchange.resolution else { return true };
        let replica = &self.in_flight.cell().replica;
        let is_shared = self.exchange.gateway().blame.met(met, replica.ix, &resolution.route.tenant);
        is_shared || replica.last_error().is_some()
    }

    /// Whether an error's body reads as the answer of another version.
    fn names_another(&self, body: &[u8]) -> bool {
        let rule = self.exchange.resolution.as_ref().map(|resolution| &resolution.state.rule);
        rule.is_some_and(|rule| rule.check != AnswerCheck::None && names_another(&rule.expected, body))
    }

    /// An error's text with the model's name as the client knows it.
    fn in_the_clients_words(&self, body: Bytes) -> Bytes {
        let Some(resolution) = &self.exchange.resolution else { return body };
        let expected = &resolution.state.rule.expected;
        renamed(&body, &expected.upstream_model, &expected.model).map_or(body, Bytes::from)
    }

    /// The replica does not hold what it was believed to hold: others of the subset may.
    fn not_loaded(&mut self) -> Attempt {
        self.count("not_loaded");
        let cell = self.in_flight.cell();
        self.exchange.gateway().driver.missed(cell.replica.ix, cell.version);
        let failure = Failure::new(FailureKind::NoHolder, "the replica no longer holds the version");
        Attempt::Again { failure: failure.retry_in(Duration::from_secs(1)), reason: NOT_LOADED }
    }
}

/// The replica's answer as it is; of one that is too long its beginning, in the protocol's form.
fn passed_on(status: StatusCode, mut fields: HeaderMap, told: Told) -> Received {
    if told.whole {
        headers::for_client(&mut fields);
        return Received { status, fields, body: ReceivedBody::Whole(told.body) };
    }
    let detail = format!("the model server said more than is passed on, beginning with: {}", words(&told.body));
    let body = oip::error_body("upstream_refused", &detail);
    // What the fields say is of another body.
    let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    Received { status, fields, body: ReceivedBody::Whole(body.into()) }
}

/// What an error in the protocol's form says. Other texts may be a trace of the server's program, which is its operator's business.
fn error_member(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    value.get("error")?.is_string().then(|| words(body))
}

/// `Retry-After` in seconds. Dates are not used between machines whose clocks may differ.
fn retry_after(fields: &HeaderMap) -> Option<Duration> {
    let text = fields.get(RETRY_AFTER)?.to_str().ok()?;
    // A replica cannot send clients away for longer than this.
    text.trim().parse().ok().map(|seconds: u64| Duration::from_secs(seconds.min(60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_in_seconds_and_bounded() {
        let pause = |value| {
            let fields = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            retry_after(&fields).map(|pause| pause.as_secs())
        };
        assert_eq!(pause("7"), Some(7));
        assert_eq!(pause(" 60 "), Some(60));
        assert_eq!(pause("61"), Some(60));
        assert_eq!(pause("18446744073709551615"), Some(60));
        for none in ["", "-1", "1.5", "18446744073709551616", "Mon, 30 Nov 2026 04:11:23 GMT"] {
            assert_eq!(pause(none), None, "{none:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn only_words_in_the_protocols_form_are_repeated() {
        assert_eq!(error_member(br#"{"error": "cannot reshape"}"#).as_deref(), Some("cannot reshape"));
        for other in ["", "Traceback (most recent call last)", "{}", r#"{"error": 5}"#, r#"{"detail": "x"}"#] {
            assert_eq!(error_member(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn a_long_error_is_told_in_the_protocols_form() {
        let told = Told { body: Bytes::from(format!(r#"{{"error":"{}"#, "x".repeat(ERROR_BODY))), whole: false };
        let fields = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("1"))]);
        let received = passed_on(StatusCode::UNPROCESSABLE_ENTITY, fields, told);
        let ReceivedBody::Whole(body) = received.body else { panic!("whole") };
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert!(value["error"].as_str().unwrap().starts_with("upstream_refused: "), "{value}");
        assert_eq!((received.status.as_u16(), received.fields.len()), (422, 1));
        assert!(body.len() < 1024);
    }
}
