//! One line of the access log: who asked for what, which version answered, and where the time went.
//!
//! The fields are the whole of what is logged of a request. There is none for a payload, a header, a path or a query string, so that none
//! of them can get into the log by accident.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_types::{ModelName, Mono, ReplicaName, Revision, TenantId, Version};

use crate::clock::Wall;
use crate::outcome::Outcome;
use crate::text::{cut, push_json_string, push_time};

/// What is recorded of one request. Made on the request path, so every field is a number or a reference-counted text.
#[derive(Clone, Debug)]
pub struct AccessRecord {
    /// When the request ended.
    pub ended: Mono,
    /// The request's id, a text. Written JSON-escaped and cut at 128 bytes, since a client may have chosen it.
    pub request_id: Bytes,
    /// The identified tenant.
    pub tenant: Option<TenantId>,
    /// The resolved model. None for a model that does not exist: its name is the client's own text.
    pub model: Option<ModelName>,
    /// The resolved version.
    pub version: Option<Version>,
    /// The table's revision under which the request was resolved.
    pub revision: Option<Revision>,
    /// Why that version: a word of the closed list of reasons, such as `pin`.
    pub reason: Option<&'static str>,
    /// The replica that was asked last.
    pub replica: Option<ReplicaName>,
    /// The request method, from a closed list.
    pub method: &'static str,
    /// The client's address, written once for each connection.
    pub client: Option<Arc<str>>,
    /// How it ended.
    pub outcome: Outcome,
}

impl AccessRecord {
    /// Appends the record as one line of JSON, line feed included. Fields without a value are left out; spans are whole microseconds.
    pub fn push_line(&self, wall: Wall, out: &mut String) {
        let Outcome { endpoint, status, error, attempts, bytes_in, bytes_out, timing } = &self.outcome;
        // Most lines are shorter; one that is not grows the text on its way.
        out.reserve(512);
        out.push_str("{\"time\":\"");
        push_time(out, wall.millis_at(self.ended));
        out.push('"');
        let id = std::str::from_utf8(&self.request_id).unwrap_or_default();
        push_text(out, ",\"request_id\":", Some(cut(id)));
        push_text(out, ",\"tenant\":", self.tenant.as_ref().map(TenantId::as_str));
        push_text(out, ",\"model\":", self.model.as_ref().map(ModelName::as_str));
        push_text(out, ",\"version\":", self.version.as_ref().map(Version::as_str));
        push_number(out, ",\"revision\":", self.revision.map(|r| r.0));
        push_word(out, ",\"reason\":\"", self.reason);
        push_text(out, ",\"replica\":", self.replica.as_ref().map(ReplicaName::as_str));
        push_word(out, ",\"method\":\"", Some(self.method));
        push_word(out, ",\"endpoint\":\"", Some(endpoint.as_str()));
        push_number(out, ",\"status\":", Some(u64::from(*status)));
        push_word(out, ",\"error\":\"", error.map(|e| e.as_str()));
        push_number(out, ",\"attempts\":", Some(u64::from(*attempts)));
        push_number(out, ",\"bytes_in\":", Some(*bytes_in));
        push_number(out, ",\"bytes_out\":", Some(*bytes_out));
        push_number(out, ",\"total_us\":", Some(micros(timing.total)));
        push_number(out, ",\"wait_us\":", Some(micros(timing.wait)));
        push_number(out, ",\"upstream_us\":", timing.upstream.map(micros));
        push_number(out, ",\"gateway_us\":", Some(micros(timing.gateway())));
        push_text(out, ",\"client\":", self.client.as_deref());
        out.push_str("}\n");
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

// Inlined, so that a key is a few stores and no call.
#[inline]
fn push_text(out: &mut String, key: &str, text: Option<&str>) {
    let Some(text) = text else { return };
    out.push_str(key);
    push_json_string(out, text);
}

/// A word of a closed list, which has nothing to escape.
#[inline]
fn push_word(out: &mut String, key: &str, word: Option<&'static str>) {
    let Some(word) = word else { return };
    out.push_str(key);
    out.push_str(word);
    out.push('"');
}

#[inline]
fn push_number(out: &mut String, key: &str, number: Option<u64>) {
    let Some(number) = number else { return };
    out.push_str(key);
    out.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::outcome::{Endpoint, Timing};
    use holdfast_types::FailureKind;

    pub(crate) fn record(request_id: &str, status: u16) -> AccessRecord {
        let micros = Duration::from_micros;
        AccessRecord {
            ended: Mono::ZERO.after(micros(7_000_000)),
            request_id: request_id.to_owned().into(),
            tenant: TenantId::parse("acme").ok(),
            model: ModelName::parse("screen").ok(),
            version: Version::parse("1").ok(),
            revision: Some(Revision(7)),
            reason: Some("pin"),
            replica: ReplicaName::parse("r1").ok(),
            method: "POST",
            client: Some("127.0.0.1:4711".into()),
            outcome: Outcome {
                endpoint: Endpoint::Infer,
                status,
                error: None,
                attempts: 1,
                bytes_in: 1024,
                bytes_out: 200,
                timing: Timing { total: micros(1500), wait: micros(300), upstream: Some(micros(1180)) },
            },
        }
    }

    fn line(record: &AccessRecord) -> String {
        let mut out = String::new();
        // Two seconds after it ended.
        let wall = Wall::of(Mono::ZERO.after(Duration::from_secs(9)), 1_704_067_201_001);
        record.push_line(wall, &mut out);
        out
    }

    #[test]
    fn a_whole_line_to_the_letter() {
        let expected = concat!(
            r#"{"time":"2023-12-31T23:59:59.001Z","request_id":"id-1","tenant":"acme","model":"screen","version":"1","#,
            r#""revision":7,"reason":"pin","replica":"r1","method":"POST","endpoint":"infer","status":200,"attempts":1,"#,
            r#""bytes_in":1024,"bytes_out":200,"total_us":1500,"wait_us":300,"upstream_us":1180,"gateway_us":20,"#,
            r#""client":"127.0.0.1:4711"}"#,
            "\n"
        );
        assert_eq!(line(&record("id-1", 200)), expected);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut early = record("id", 401);
        (early.tenant, early.model, early.version, early.revision) = (None, None, None, None);
        (early.reason, early.replica, early.client) = (None, None, None);
        early.outcome.error = Some(FailureKind::Unauthenticated);
        early.outcome.timing.upstream = None;
        let json: serde_json::Value = serde_json::from_str(&line(&early)).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let expected =
            "attempts bytes_in bytes_out endpoint error gateway_us method request_id status time total_us wait_us";
        assert_eq!(keys.join(" "), expected);
        assert_eq!(json["error"], "unauthenticated");
    }

    #[test]
    fn a_client_s_id_can_neither_break_nor_flood_the_line() {
        let naughty = format!("\"}}\n{{\"forged\":\"\u{1b}[2J\0{}", "x".repeat(10_000));
        let line = line(&record(&naughty, 200));
        assert_eq!(line.matches('\n').count(), 1);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["request_id"].as_str(), Some(cut(&naughty)));
        assert!(json.get("forged").is_none() && line.len() < 800);
    }
}
