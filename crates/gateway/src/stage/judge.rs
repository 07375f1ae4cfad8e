//! What came back is judged before any of it is passed on: its status, then the version that it names.

use http::header::{CONTENT_ENCODING, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use holdfast_codec::answer::{Compared, name_told};
use holdfast_codec::oip::{self, ModelOp};
use holdfast_net::ReplicaConn;
use holdfast_placement::health::HealthEvent;
use holdfast_types::{Failure, FailureKind};

use super::payload::Payload;
use super::reading::{Held, Holding, Whole, read_whole};
use super::send::{Attempt, One, Received, ReceivedBody, broken, overdue};
use crate::answer::{Fault, Passing, Reading, join};
use crate::headers;
use crate::upstream_body::UpstreamBody;

const JSON_LENGTH: HeaderName = HeaderName::from_static(oip::JSON_LENGTH_HEADER);

impl One<'_> {
    pub(super) async fn success(
        self,
        response: Response<Incoming>,
        conn: ReplicaConn<UpstreamBody>,
        sent: &Payload,
    ) -> Result<Attempt, Failure> {
        let (parts, incoming) = response.into_parts();
        let Some(rule) = self.exchange.resolution.as_ref().map(|r| r.state.rule.clone()) else { return Err(overdue()) };
        let looks = rule.check != holdfast_config::AnswerCheck::None;
        let framing = Framing::of(&parts.headers);
        if looks && framing.is_encoded {
            self.count("bad_answer");
            return Err(broken("the replica compressed its answer although it was asked not to"));
        }
        if self.head.op == ModelOp::Infer && parts.status != StatusCode::OK {
            // No content, a part of it, or a promise: whatever its bytes are, they are not the judgement.
            self.count("bad_answer");
            return Err(broken(format!(
                "the replica answered an inference with {}, which is no whole answer",
                parts.status.as_u16()
            )));
        }
        self.health(HealthEvent::AnswerOk);
        if self.head.op != ModelOp::Infer {
            // Boxed: it is rarer, and would make the future of every request larger.
            return Box::pin(self.metadata(parts, incoming, conn)).await;
        }
        let Ok(json) = framing.json else {
            return Err(broken("the replica's inference-header-content-length is malformed"));
        };
        let mut held = Holding::new(incoming, Reading::new(rule, json));
        match held.read(self.head.answer_head, self.until).await {
            Ok(()) if self.is_anothers(&held, sent) => self.anothers_answer(),
            Ok(()) => self.release(parts, held, conn, json),
            Err(Held::Late) => Err(overdue()),
            Err(Held::Broken) => {
                self.count("transport_error");
                self.health(HealthEvent::TransportError);
                self.maybe_executed(broken("the replica broke its answer off"), "broken")
            }
            Err(Held::Fault(Fault::NotUtf8)) => {
                self.count("bad_answer");
                Err(broken("the JSON of the replica's answer is not UTF-8"))
            }
            Err(Held::Fault(fault)) => Err(self.wrong_version(&fault)),
        }
    }

    /// Whether it names another request than was sent, and the replica is one that gives ids back.
    fn is_anothers(&self, held: &Holding, sent: &Payload) -> bool {
        let Some(id) = held.reading.id() else { return false };
        let echo = &self.in_flight.cell().echo;
        // Behind the JSON there may be tensors.
        let json = self.head.fields.get(JSON_LENGTH).map(|value| number(value).and_then(|n| usize::try_from(n).ok()));
        let compared = match json {
            Some(None) => Compared::Unknown,
            Some(Some(most)) => sent.compare(id, most, echo.is_worth_reading()),
            None => sent.compare(id, usize::MAX, echo.is_worth_reading()),
        };
        echo.takes(id, compared)
    }

    /// The answer to another request, one that the server should have given before on this connection. What else comes over it is in doubt as well, so the
    /// connection is closed.
    fn anothers_answer(self) -> Result<Attempt, Failure> {
        self.count("bad_answer");
        let (cell, gateway) = (self.in_flight.cell(), self.exchange.gateway());
        let detail = "an answer had the id of another request; its connection was closed".to_owned();
        let alarms = &gateway.driver.alarms;
        alarms.note(&gateway.driver.fleet, "anothers_answer", cell.replica.ix, Some(cell.version), detail);
        self.maybe_executed(broken("the replica answered with the id of another request"), "broken")
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
            if !held.reading.is_decided() && !held.is_complete {
                return Err(broken("the JSON part of the replica's answer is too large to be checked"));
            }
            fields.insert(JSON_LENGTH, HeaderValue::from(length.saturating_add_signed(delta)));
        }
        self.count("ok");
        headers::for_client(&mut fields);
        let body = if held.is_complete {
            conn.give_back();
            self.exchange.upstream_done();
            ReceivedBody::Whole(join(held.ready))
        } else {
            // The length is known if nothing more will be rewritten.
            let ready: u64 = held.ready.iter().map(|b| b.len() as u64).sum();
            let rest = held.incoming.size_hint().exact().filter(|_| held.reading.is_decided());
            ReceivedBody::Passing(Box::new(Passing {
                left: rest.map(|rest| rest + ready),
                ready: held.ready,
                incoming: held.incoming,
                reading: held.reading,
                deadline: Box::pin(tokio::time::sleep_until(self.until)),
                lease: self.worker.leases.lend(conn, self.in_flight, self.until),
                ended: false,
            }))
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
        self.exchange.upstream_done();
        let Some(resolution) = &self.exchange.resolution else { return Err(overdue()) };
        let expected = &resolution.state.rule.expected;
        let mut value: serde_json::Value =
            serde_json::from_slice(&body).map_err(|_| broken("the replica's metadata is not JSON"))?;
        let Some(object) = value.as_object_mut() else { return Err(broken("the replica's metadata is no object")) };
        let name = object.get("name").and_then(serde_json::Value::as_str);
        if name.is_some_and(|name| name != expected.upstream_model) {
            let told = name.and_then(name_told).unwrap_or("(a text that is no name)".into());
            let fault = format!("metadata is of {told:?} where {:?} was asked", expected.upstream_model);
            return Err(self.wrong_version(&fault));
        }
        if ["model_name", "model_version"].iter().any(|member| object.contains_key(*member)) {
            // A late one, for somebody else: what else comes over this connection is in doubt as well.
            self.count("bad_answer");
            return Err(broken("the replica answered an inference where metadata was asked"));
        }
        conn.give_back();
        self.count("ok");
        object.insert("name".to_owned(), expected.model.clone().into());
        object.insert("versions".to_owned(), vec![expected.version.clone()].into());
        let mut fields = parts.headers;
        headers::for_client(&mut fields);
        let body = ReceivedBody::Whole(value.to_string().into());
        Ok(Attempt::Received(Received { status: parts.status, fields, body }))
    }

    fn wrong_version(&self, fault: &impl ToString) -> Failure {
        self.count("wrong_version");
        let cell = self.in_flight.cell();
        self.exchange.gateway().driver.quarantine(cell.replica.ix, cell.version, fault.to_string());
        Failure::new(FailureKind::WrongVersionServed, "the replica answered for another version than it was asked for")
    }
}

/// What an answer's fields say of its bytes.
pub(crate) struct Framing {
    /// Whether any coding but `identity` and `chunked` lies over them. Every field and every member of it counts.
    pub(crate) is_encoded: bool,
    /// How many of them are JSON, if not all: one field of digits only.
    pub(crate) json: Result<Option<u64>, ()>,
}

impl Framing {
    /// One pass: to ask for a name costs a hash, and there are few fields.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let plain = |value: &HeaderValue, allowed: &[u8]| {
            value.as_bytes().split(|b| *b == b',').all(|coding| coding.trim_ascii().eq_ignore_ascii_case(allowed))
        };
        let mut framing = Self { is_encoded: false, json: Ok(None) };
        for (name, value) in fields {
            if *name == CONTENT_ENCODING {
                framing.is_encoded |= !plain(value, b"identity");
            } else if *name == TRANSFER_ENCODING {
                framing.is_encoded |= !plain(value, b"chunked");
            } else if *name == JSON_LENGTH {
                // Twice is wrong, even if it is the same.
                framing.json = if framing.json == Ok(None) { number(value).map(Some).ok_or(()) } else { Err(()) };
            }
        }
        framing
    }
}

fn number(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Arc;

    use bytes::Bytes;

    use holdfast_codec::answer::Expected;
    use holdfast_config::AnswerCheck;

    use crate::answer::AnswerRule;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields =
            fields.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_bytes(v.as_bytes()).unwrap()));
        fields.fold(HeaderMap::new(), |mut map, (name, value)| {
            map.append(name, value);
            map
        })
    }

    #[test]
    fn any_coding_in_any_field_is_seen() {
        for plain in [
            &[][..],
            &[("content-encoding", "identity")],
            &[("content-encoding", "Identity , identity"), ("content-encoding", "identity")],
            &[("transfer-encoding", "chunked")],
        ] {
            assert!(!Framing::of(&map(plain)).is_encoded, "{plain:?}");
        }
        for coded in [
            &[("content-encoding", "gzip")][..],
            &[("content-encoding", "identity"), ("content-encoding", "gzip")],
            &[("content-encoding", "identity, br")],
            &[("content-encoding", "")],
            &[("content-encoding", "chunked")],
            &[("transfer-encoding", "gzip")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "gzip")],
        ] {
            assert!(Framing::of(&map(coded)).is_encoded, "{coded:?}");
        }
    }

    #[test]
    fn a_length_of_json_is_one_number_or_nothing() {
        let length = |values: &[&'static str]| {
            Framing::of(&map(&values.iter().map(|value| (oip::JSON_LENGTH_HEADER, *value)).collect::<Vec<_>>())).json
        };
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&["0"]), Ok(Some(0)));
        assert_eq!(length(&["0042"]), Ok(Some(42)));
        for wrong in ["", "+5", "-5", " 5", "5 ", "5,5", "0x5", "5.0", "\u{665}", "99999999999999999999999"] {
            assert_eq!(length(&[wrong]), Err(()), "{wrong:?}");
        }
        assert_eq!(length(&["5", "5"]), Err(()), "twice, even if it is the same");
    }

    /// An answer of so many bytes of JSON, in pieces, as it is passed on.
    fn read(json: u64, pieces: &[&'static str]) -> Result<String, Fault> {
        let name = |name: &str| name.to_owned();
        let expected = Expected {
            upstream_model: name("screen-1"),
            upstream_version: name("1"),
            model: name("screen"),
            version: name("1"),
        };
        let rule = AnswerRule { expected, check: AnswerCheck::IfPresent, name_tells_version: true };
        let mut reading = Reading::new(Arc::new(rule), Some(json));
        let mut out = VecDeque::new();
        for piece in pieces {
            reading.feed(Bytes::from_static(piece.as_bytes()), &mut out)?;
        }
        reading.finish(&mut out);
        Ok(String::from_utf8_lossy(&join(out)).into_owned())
    }

    #[test]
    fn json_ends_where_the_header_says() {
        const JSON: &str = r#"{"model_name":"screen-1","outputs":[]}"#;
        const LENGTH: u64 = JSON.len() as u64;
        let passed = r#"{"model_name":"screen","outputs":[]}"#;
        assert_eq!(read(LENGTH, &[JSON, "{tensor"]).unwrap(), format!("{passed}{{tensor"));
        assert_eq!(read(LENGTH + 2, &[JSON, " \n{tensor"]).unwrap(), format!("{passed} \n{{tensor"));
        for blank in ["{tensor", "  {tensor"] {
            assert!(matches!(read(blank.len() as u64 - 7, &[blank]), Err(Fault::Cut)), "{blank:?}");
        }
        for length in 0..LENGTH {
            assert!(matches!(read(length, &[JSON]), Err(Fault::Cut)), "{length} of {LENGTH}");
        }
        assert!(matches!(read(LENGTH - 1, &[&JSON[..9], &JSON[9..], "tensor"]), Err(Fault::Cut)), "in pieces");
        assert!(matches!(read(LENGTH + 1, &[JSON, "{"]), Err(Fault::Mismatch(_))), "JSON goes on in the tensor");
    }
}
