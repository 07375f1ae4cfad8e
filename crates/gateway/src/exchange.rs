//! One request from its first byte to the end of its answer: what is known of it, and the settlement when it ends in whatever way.
//!
//! The exchange rides in the answer's body. It is settled when it is dropped, so that a client that leaves is counted like one that stays.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;

use holdfast_config::{Stamp, Stamps};
use holdfast_decide::{Cause, Reason, Route};
use holdfast_identity::Subject;
use holdfast_net::RequestGuard;
use holdfast_net::tls::Peer;
use holdfast_telemetry::{AccessRecord, Clock, Endpoint, GaugeGuard, Outcome, Timing};
use holdfast_types::{FailureKind, Mono, Revision};

use crate::cause;
use crate::fleet::Replica;
use crate::limits::{Refusal, Taken};
use crate::receipts::{Journal, Receipt};
use crate::route_state::RouteState;
use crate::server::Gateway;
use crate::shadow::Copying;
use crate::stage::admit::Ordered;
use crate::stage::submission::{self, Submission};
use crate::sticky::Given;
use crate::table::RevisionGuard;
use crate::trail::Trail;

/// What resolving has added to a request.
pub struct Resolution {
    /// The route.
    pub route: Arc<Route>,
    /// What the data plane keeps with it.
    pub state: Arc<RouteState>,
    /// Why that version.
    pub reason: Reason,
    /// The arm or rule that chose it, if one did.
    pub cause: Option<Arc<Cause>>,
    /// To whom, of an arm.
    pub given: Option<Given>,
    /// Under which revision it is served.
    pub _revision: RevisionGuard,
    /// Under which revision its submission was resolved: an earlier one, if that was before.
    pub under: Revision,
    /// The revision as a stamp.
    pub revision_stamp: HeaderValue,
}

/// A request's id, in the forms that are needed.
#[derive(Clone, Debug)]
pub struct RequestId {
    /// For the access record.
    pub text: Bytes,
    /// For the stamp, and for the replica.
    pub header: HeaderValue,
}

/// See the module.
pub struct Exchange {
    gateway: Arc<Gateway>,
    /// When the request's head was read.
    pub begun: Mono,
    /// Its id.
    pub id: RequestId,
    /// What it asked for.
    pub endpoint: Endpoint,
    /// Its method.
    pub method: &'static str,
    client: Option<Arc<str>>,
    /// Whom its token names, if it brought a good one.
    pub subject: Option<Arc<Subject>>,
    /// Who its client is, if that has a certificate.
    pub peer: Option<Arc<Peer>>,
    /// Which stamps its answer carries.
    pub stamps: Stamps,
    /// Present once resolved.
    pub resolution: Option<Resolution>,
    /// The replica that was asked last.
    pub replica: Option<Arc<Replica>>,
    /// How often it was sent.
    pub attempts: u32,
    /// Bytes of its body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// Time in which it could not be sent.
    pub wait: Duration,
    /// What happens on the way, if receipts are kept.
    pub journal: Option<Box<Journal>>,
    /// For the audit log, if there is to be a record.
    pub trail: Option<Trail>,
    /// What it holds of limits.
    pub admitted: Option<Taken>,
    /// What it waits for from the store of shared limits.
    pub ordered: Option<Box<Ordered>>,
    /// The limit that refused it.
    pub limited: Option<Box<Refusal>>,
    /// Present if the request is among those that are copied.
    pub shadow: Option<Box<Copying>>,
    /// Present if its submission has a route token or a key.
    pub submission: Option<Box<Submission>>,
    dispatched: Option<Mono>,
    /// How much of `wait` had passed by then.
    waited_before: Duration,
    answered: Option<Mono>,
    status: u16,
    error: Option<FailureKind>,
    _in_flight: GaugeGuard,
    /// Where it came in.
    pub on_connection: RequestGuard,
}

/// The status of a request whose client left before its answer.
const GIVEN_UP: u16 = 499;

impl Exchange {
    /// Begins one. Until a status is set it counts as left by its client.
    pub fn begin(gateway: Arc<Gateway>, id: RequestId, client: Option<Arc<str>>, on: RequestGuard) -> Self {
        let in_flight = gateway.metrics.in_flight.track();
        let journal = gateway.receipts.is_on().then(Box::default);
        Self {
            gateway,
            begun: Clock::now(),
            id,
            endpoint: Endpoint::Other,
            method: "OTHER",
            client,
            subject: None,
            peer: None,
            stamps: Stamps::NONE,
            resolution: None,
            replica: None,
            attempts: 0,
            bytes_in: 0,
            bytes_out: 0,
            wait: Duration::ZERO,
            journal,
            trail: None,
            admitted: None,
            ordered: None,
            limited: None,
            shadow: None,
            submission: None,
            dispatched: None,
            waited_before: Duration::ZERO,
            answered: None,
            status: GIVEN_UP,
            error: None,
            _in_flight: in_flight,
            on_connection: on,
        }
    }

    /// The gateway.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// The client's address.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// The same, to be kept.
    pub fn client_shared(&self) -> Option<Arc<str>> {
        self.client.clone()
    }

    /// Notes that it is being sent to a replica.
    pub fn sending(&mut self, now: Mono) {
        self.attempts += 1;
        if self.dispatched.is_none() {
            self.dispatched = Some(now);
            self.waited_before = self.wait;
        }
        self.note(|journal| journal.sent(now));
    }

    /// Notes something for the receipt, if there is to be one.
    #[inline]
    pub fn note(&mut self, note: impl FnOnce(&mut Journal)) {
        if let Some(journal) = &mut self.journal {
            note(journal);
        }
    }

    /// Notes that the replica's answer is complete.
    pub fn upstream_done(&mut self) {
        self.answered = Some(Clock::now());
    }

    /// Notes how it ends for the client.
    pub fn ends(&mut self, status: u16, error: Option<FailureKind>) {
        self.status = status;
        self.error = error;
    }

    /// Notes that an answer which had begun was cut.
    pub fn cut(&mut self, error: FailureKind) {
        self.error = Some(error);
    }

    /// Notes that these bytes of the answer are given out. `last`: nothing comes after them.
    pub fn gives(&mut self, data: &[u8], last: bool) {
        self.bytes_out += data.len() as u64;
        if let Some(trail) = &mut self.trail {
            trail.gives(data, last);
        }
    }

    /// Adds the stamps to an answer.
    pub fn stamp(&self, headers: &mut http::HeaderMap) {
        use crate::headers::{EXPERIMENT, MODEL, REASON, REPLICA, REQUEST_ID, REVISION, STALE, VERSION};
        let wants = |stamp| self.stamps.contains(stamp);
        if wants(Stamp::RequestId) {
            headers.insert(REQUEST_ID, self.id.header.clone());
        }
        if wants(Stamp::Stale)
            && let Some(age) = self.gateway.standing.stale(Clock::now)
        {
            headers.insert(STALE, HeaderValue::from(age.as_secs()));
        }
        let Some(resolution) = &self.resolution else { return };
        if wants(Stamp::Model) {
            headers.insert(MODEL, resolution.state.model_stamp.clone());
        }
        if wants(Stamp::Version) {
            headers.insert(VERSION, resolution.state.version_stamp.clone());
        }
        if wants(Stamp::Revision) {
            headers.insert(REVISION, resolution.revision_stamp.clone());
        }
        if wants(Stamp::Reason) {
            headers.insert(REASON, HeaderValue::from_static(resolution.reason.as_str()));
        }
        if wants(Stamp::Experiment)
            && let Some(stamp) = resolution.cause.as_ref().and_then(|cause| cause::stamp(cause))
        {
            headers.insert(EXPERIMENT, stamp);
        }
        if wants(Stamp::Replica)
            && let Some(replica) = &self.replica
        {
            headers.insert(REPLICA, replica.stamp.clone());
        }
        if let Some(given) = resolution.given.as_ref().filter(|_| self.endpoint == Endpoint::Infer) {
            given.stamp(headers);
        }
        if let Some(submissions) = &self.gateway.submissions {
            submission::stamp(submissions, self, resolution, headers);
        }
    }

    /// Gives back what it held of limits (ACCT-1).
    #[cold]
    fn settle(&self, now: Mono, taken: &Taken) {
        let limits = self.resolution.as_ref().and_then(|resolution| resolution.state.limits.as_ref());
        if let (Some(limits), Some(on)) = (limits, self.on_connection.kept()) {
            limits.settle(on, now, taken, self.dispatched.is_some(), self.bytes_in);
        }
    }

    fn receipt(&self, now: Mono, outcome: Outcome, journal: Box<Journal>) -> Receipt {
        let resolution = self.resolution.as_ref();
        Receipt {
            id: self.id.text.clone(),
            begun: self.begun,
            ended: now,
            resolved: resolution.map(|r| (r.state.facts.clone(), r.reason.as_str(), r.under)),
            replica: self.replica.as_ref().map(|r| r.name.clone()),
            method: self.method,
            client: self.client.clone(),
            subject: self.subject.clone(),
            answered: self.answered,
            outcome,
            journal,
        }
    }

    fn outcome(&self, now: Mono) -> Outcome {
        // Waits between attempts are no time of a model server.
        let waited_since = self.wait.saturating_sub(self.waited_before);
        let upstream =
            self.dispatched.map(|from| self.answered.unwrap_or(now).since(from).saturating_sub(waited_since));
        Outcome {
            endpoint: self.endpoint,
            status: self.status,
            error: self.error,
            attempts: self.attempts,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            timing: Timing { total: now.since(self.begun), wait: self.wait, upstream },
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(shadow) = self.shadow.take() {
            shadow.ended(self.answered.is_some() && self.error.is_none());
        }
        if self.status == GIVEN_UP {
            self.on_connection.given_up();
        }
        let now = Clock::now();
        if let Some(taken) = self.admitted.take() {
            self.settle(now, &taken);
        }
        let outcome = self.outcome(now);
        let handles = self.resolution.as_ref().map(|r| &r.state.metrics);
        self.gateway.metrics.finish(handles, &outcome);
        if let Some(resolution) = &self.resolution {
            cause::count(&self.gateway.metrics, resolution, outcome.is_error());
            self.gateway.tables.measures.ended(resolution, &outcome);
            if let (Some(results), Some(cause)) = (&self.gateway.results, &resolution.cause) {
                results.request(cause, resolution.under, &outcome);
            }
        }
        if let (Some(trail), Some(resolution)) = (self.trail.take(), &self.resolution) {
            let entry = trail.entry(now, &self.id, resolution, self.replica.as_deref(), &outcome);
            entry.into_iter().for_each(|entry| self.gateway.audit.record(entry));
        }
        if let Some(journal) = self.journal.take().filter(|_| self.endpoint != Endpoint::Health) {
            self.gateway.receipts.put(self.receipt(now, outcome, journal));
        }
        if !self.gateway.access.wants(&outcome) {
            return;
        }
        let resolution = self.resolution.as_ref();
        self.gateway.access.record(AccessRecord {
            ended: now,
            request_id: self.id.text.clone(),
            tenant: resolution.map(|r| r.route.tenant.clone()),
            model: resolution.map(|r| r.route.model.clone()),
            version: resolution.map(|r| r.route.version.clone()),
            revision: resolution.map(|r| r.under),
            reason: resolution.map(|r| r.reason.as_str()),
            replica: self.replica.as_ref().map(|r| r.name.clone()),
            method: self.method,
            client: self.client.take(),
            outcome,
        });
    }
}
