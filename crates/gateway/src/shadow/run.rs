//! One copy under way: a replica, a connection, the answer, the comparison. Nothing is tried twice.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use holdfast_codec::oip;
use holdfast_net::ReplicaConn;
use holdfast_placement::choose::{Candidate, Choice, choose};

use super::compare::{Answer, compare};
use super::copying::{ANSWER, Copying, Kept};
use super::difference::{Difference, Kind, Verdict};
use super::order::{Order, Outcome};
use crate::answer::{Fault, Reading, join};
use crate::fleet::CopyInFlight;
use crate::headers;
use crate::stage::judge::Framing;
use crate::stage::reading::read_whole;
use crate::stage::send::request;
use crate::upstream_body::UpstreamBody;

/// How long after the client's answer a copy may wait for its turn, in the queue and for a connection. One that is later is dropped.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most of an error answer that is read.
const ERROR_BODY: usize = 64 * 1024;

/// What came of a copy, if it was sent.
enum End {
    Said(Verdict),
    /// It was asked, and gave no whole answer.
    NoAnswer,
    /// Nothing that says anything about the version.
    Nothing,
}

/// Sends a copy and compares what comes back, until its order is withdrawn.
pub(super) async fn run(mut copy: Box<Copying>) {
    let order = copy.ticket.order.clone();
    let end = tokio::select! {
        biased;
        () = order.course.over() => End::Nothing,
        end = ended(&copy, &order) => end,
    };
    let (outcome, difference) = match end {
        End::Said(Verdict::Agrees) => (Outcome::Agreed, None),
        End::Said(Verdict::Differs(difference)) => (Outcome::Differed, Some(difference)),
        End::Said(Verdict::NotComparable) => (Outcome::NotComparable, None),
        End::NoAnswer => (Outcome::Failed, Some(Difference::from(Kind::NoAnswer))),
        End::Nothing => (Outcome::Dropped, None),
    };
    copy.ticket.outcome = outcome;
    if let (Some(difference), Some(kept)) = (difference, &copy.kept) {
        order.course.note(&kept.id.text, difference);
    }
}

async fn ended(copy: &Copying, order: &Order) -> End {
    let Some(kept) = &copy.kept else { return End::Nothing };
    let Some(in_flight) = pick(order) else { return End::Nothing };
    let replica = &in_flight.cell().replica;
    let times = &order.state.pool.config.connections;
    let turn = replica.copy_connections().checkout(times.idle, times.connect);
    let Ok(Ok(conn)) = timeout_at(kept.since + PATIENCE, turn).await else { return End::Nothing };
    // Live traffic may have come meanwhile, and the version may have gone. This copy is counted itself.
    let now = replica.copy_candidate(in_flight.cell().holds());
    let now = Candidate { in_flight: now.in_flight.saturating_sub(1), ..now };
    if choose(&[now], 0) != Choice::Serve(0) {
        conn.give_back();
        return End::Nothing;
    }
    One { copy, kept, order, in_flight: &in_flight, until: Instant::now() + kept.head.patience }.send(conn).await
}

/// The replica of the new version's subset that has most room, if one has any.
fn pick(order: &Order) -> Option<CopyInFlight> {
    let members = order.state.cells.iter().filter(|cell| cell.replica.in_service()).take(order.subset);
    let members: SmallVec<[_; 8]> = members.collect();
    let candidates: SmallVec<[Candidate; 8]> = members.iter().map(|c| c.replica.copy_candidate(c.holds())).collect();
    match choose(&candidates, 0) {
        Choice::Serve(at) => members.get(at)?.enter_copy(),
        Choice::Busy | Choice::NoHolder => None,
    }
}

struct One<'a> {
    copy: &'a Copying,
    kept: &'a Kept,
    order: &'a Order,
    in_flight: &'a CopyInFlight,
    until: Instant,
}

/// Why an answer cannot be compared.
enum Unread {
    TooLarge,
    Broken,
    Fault(Fault),
}

impl One<'_> {
    async fn send(&self, mut conn: ReplicaConn<UpstreamBody>) -> End {
        let replica = &self.in_flight.cell().replica;
        let body = UpstreamBody::Whole(self.kept.body.clone());
        let Some(mut request) = request(&self.kept.head, &self.order.state, replica, &self.kept.id, body) else {
            return End::Nothing;
        };
        request.headers_mut().insert(headers::SHADOW, HeaderValue::from_static("1"));
        match timeout_at(self.until, conn.send(request)).await {
            Ok(Ok(response)) => {
                let (parts, incoming) = response.into_parts();
                if parts.status == StatusCode::OK {
                    self.compared(&parts.headers, incoming, conn).await
                } else {
                    self.refused(parts.status, incoming, conn).await
                }
            }
            // A kept connection may have been closed for what came before: that is in doubt, and says nothing.
            Ok(Err(error)) if error.unsent.is_some() || conn.is_reused() => {
                replica.refresh.notify_one();
                End::Nothing
            }
            Ok(Err(_)) | Err(_) => End::NoAnswer,
        }
    }

    /// No success: an error of the version, unless the server says that it does not hold it.
    async fn refused(&self, status: StatusCode, incoming: Incoming, conn: ReplicaConn<UpstreamBody>) -> End {
        let cell = self.in_flight.cell();
        let told = read_whole(incoming, ERROR_BODY, self.until).await;
        if let Ok(body) = &told {
            if oip::is_not_loaded(status.as_u16(), body, &self.order.state.rule.expected.upstream_model) {
                self.copy.driver().missed(cell.replica.ix, cell.version);
                return End::Nothing;
            }
            // A server whose program failed may be about to close the connection.
            if !status.is_server_error() {
                conn.give_back();
            }
        }
        End::Said(Verdict::Differs(Kind::Status(status.as_u16()).into()))
    }

    async fn compared(&self, fields: &HeaderMap, incoming: Incoming, conn: ReplicaConn<UpstreamBody>) -> End {
        let malformed = || End::Said(Verdict::Differs(Kind::Malformed.into()));
        let Framing { is_encoded: false, json: Ok(json) } = Framing::of(fields) else { return malformed() };
        let mut reading = Reading::new(self.order.state.rule.clone(), json);
        let read = match timeout_at(self.until, read(incoming, &mut reading)).await {
            Err(_) | Ok(Err(Unread::Broken)) => return End::NoAnswer,
            Ok(Err(Unread::TooLarge)) => return End::Said(Verdict::NotComparable),
            // What says nothing of the version takes it from nobody.
            Ok(Err(Unread::Fault(Fault::NotUtf8 | Fault::OtherShape))) => return malformed(),
            Ok(Err(Unread::Fault(fault))) => {
                let cell = self.in_flight.cell();
                self.copy.driver().quarantine(cell.replica.ix, cell.version, fault.to_string());
                return End::Said(Verdict::Differs(Kind::WrongVersion.into()));
            }
            Ok(Ok(read)) => read,
        };
        conn.give_back();
        let json = json.map(|length| length.saturating_add_signed(reading.delta()));
        let Some(live) = &self.kept.whole else { return End::Nothing };
        End::Said(compare(Answer { body: live, json: self.kept.json }, Answer { body: &read, json }))
    }
}

/// Reads an answer whole, held to the version that was asked for (PIN-1).
async fn read(mut incoming: Incoming, reading: &mut Reading) -> Result<Bytes, Unread> {
    let (mut out, mut length) = (VecDeque::new(), 0);
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        length += data.len();
        reading.feed(data, &mut out).map_err(Unread::Fault)?;
        if length > ANSWER {
            return Err(Unread::TooLarge);
        }
    }
    if !reading.is_complete() {
        return Err(Unread::Broken);
    }
    reading.finish(&mut out);
    reading.judge().map_err(Unread::Fault)?;
    Ok(join(out))
}
