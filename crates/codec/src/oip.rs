//! The Open Inference Protocol V2 over HTTP: what a path asks for, how errors look, and what a server's refusal means.
//!
//! Source: the protocol's REST specification (kserve/open-inference-protocol) and its model-repository and binary-tensor extensions.

/// The header that says how many bytes of a body are JSON, before the binary tensors.
pub const JSON_LENGTH_HEADER: &str = "inference-header-content-length";

/// What to do with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelOp {
    /// `GET /v2/models/M[/versions/V]`.
    Metadata,
    /// `GET .../ready`.
    Ready,
    /// `POST .../infer`.
    Infer,
}

impl ModelOp {
    /// The operation's name in metrics and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Ready => "ready",
            Self::Infer => "infer",
        }
    }
}

/// What a path asks for. Segments are as they were sent, still percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `GET /v2`.
    ServerMetadata,
    /// `GET /v2/health/live`.
    ServerLive,
    /// `GET /v2/health/ready`.
    ServerReady,
    /// A call about one model.
    Model {
        /// The model.
        model: &'a str,
        /// The version named in the path. Empty where the path has an empty segment.
        version: Option<&'a str>,
        /// What is asked.
        op: ModelOp,
    },
    /// `/v2/repository/...`: a model server's own administration, not offered to clients.
    Repository,
    /// Nothing of this protocol.
    Unknown,
}

impl<'a> Target<'a> {
    /// Reads a path without its query.
    #[must_use]
    pub fn parse(path: &'a str) -> Self {
        let Some(rest) = path.strip_prefix("/v2") else { return Self::Unknown };
        match rest {
            "" | "/" => return Self::ServerMetadata,
            "/health/live" => return Self::ServerLive,
            "/health/ready" => return Self::ServerReady,
            _ => {}
        }
        if rest == "/repository" || rest.starts_with("/repository/") {
            return Self::Repository;
        }
        rest.strip_prefix("/models/").and_then(Self::model).unwrap_or(Self::Unknown)
    }

    fn model(rest: &'a str) -> Option<Self> {
        let (model, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let (version, rest) = match rest.strip_prefix("versions") {
            Some("") => (Some(""), ""),
            Some(rest) => {
                let rest = rest.strip_prefix('/')?;
                let (version, rest) = rest.split_once('/').unwrap_or((rest, ""));
                (Some(version), rest)
            }
            None => (None, rest),
        };
        let op = match rest {
            "" => ModelOp::Metadata,
            "ready" => ModelOp::Ready,
            "infer" => ModelOp::Infer,
            _ => return None,
        };
        Some(Self::Model { model, version, op })
    }
}

/// The path of a call on a model server. `version` empty means that the server is asked by name only.
#[must_use]
pub fn upstream_path(model: &str, version: &str, op: ModelOp) -> String {
    let mut path = format!("/v2/models/{model}");
    if !version.is_empty() {
        path.push_str("/versions/");
        path.push_str(version);
    }
    match op {
        ModelOp::Metadata => {}
        ModelOp::Ready => path.push_str("/ready"),
        ModelOp::Infer => path.push_str("/infer"),
    }
    path
}

/// The protocol's error body: `{"error": "kind: detail"}`.
#[must_use]
pub fn error_body(kind: &str, detail: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(kind.len() + detail.len() + 16);
    out.extend_from_slice(br#"{"error":""#);
    escape(kind, &mut out);
    out.extend_from_slice(b": ");
    escape(detail, &mut out);
    out.extend_from_slice(br#""}"#);
    out
}

fn escape(text: &str, out: &mut Vec<u8>) {
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            c if (c as u32) < 0x20 => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether a server's refusal of this model, by its name there, says that it does not hold it, which is a residency miss and no fault of the request.
///
/// MLServer answers 404 for a model that it does not have and 400 while one is not ready; Triton answers either with "unknown model" or "no
/// available versions". Only whole messages of theirs count: a server may repeat parts of a request in an error, and a client must not be able to
/// take a version away from others by what it sends. A 404 in other words may be the model's own. `body` is the beginning of the answer.
#[must_use]
pub fn is_not_loaded(status: u16, body: &[u8], model: &str) -> bool {
    let text = String::from_utf8_lossy(&body[..body.len().min(512)]).to_ascii_lowercase();
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '{');
    let text = text.strip_prefix("\"error\"").unwrap_or(text);
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ':' || c == '"');
    match status {
        404 => is_no_such_model(text, &model.to_ascii_lowercase()),
        400 => {
            let rest = text.strip_prefix("request for unknown model: ");
            let about = text.strip_prefix("model ").and_then(|rest| rest.split_once(' ')).map(|(_, said)| said);
            rest.is_some() || about.is_some_and(|said| said.starts_with("is not ready"))
        }
        _ => false,
    }
}

/// Triton's or MLServer's words for this model, and no word more.
fn is_no_such_model(text: &str, model: &str) -> bool {
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '}' | '.'));
    let of = |begin: &str, end: &str| text.strip_prefix(begin)?.strip_prefix(model)?.strip_prefix(end);
    // At most the version is between the name and what is said of it: no second sentence.
    let says = |said: &str, between: &str, ends: &[&str]| {
        let what = said.strip_prefix(between).and_then(|rest| rest.split_once(' ')).map_or(said, |(_, what)| what);
        ends.contains(&what)
    };
    of("request for unknown model: '", "' ")
        .is_some_and(|said| says(said, "version ", &["is not found", "has no available versions"]))
        || of("model ", " ").is_some_and(|said| says(said, "with version ", &["not found", "is not found"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let model = |model, version, op| Target::Model { model, version, op };
        for (path, want) in [
            ("/v2", Target::ServerMetadata),
            ("/v2/", Target::ServerMetadata),
            ("/v2/health/live", Target::ServerLive),
            ("/v2/health/ready", Target::ServerReady),
            ("/v2/models/m", model("m", None, ModelOp::Metadata)),
            ("/v2/models/m/ready", model("m", None, ModelOp::Ready)),
            ("/v2/models/m/infer", model("m", None, ModelOp::Infer)),
            ("/v2/models/m/versions/7", model("m", Some("7"), ModelOp::Metadata)),
            ("/v2/models/m/versions/7/infer", model("m", Some("7"), ModelOp::Infer)),
            ("/v2/models/m/versions//infer", model("m", Some(""), ModelOp::Infer)),
            ("/v2/models/m/versions/", model("m", Some(""), ModelOp::Metadata)),
            ("/v2/models/m/versions", model("m", Some(""), ModelOp::Metadata)),
            ("/v2/models/", model("", None, ModelOp::Metadata)),
            ("/v2/models/m/versions/7/explain", Target::Unknown),
            ("/v2/models/m/versionsX/7", Target::Unknown),
            ("/v2/repository/index", Target::Repository),
            ("/v2x", Target::Unknown),
            ("/", Target::Unknown),
        ] {
            assert_eq!(Target::parse(path), want, "{path}");
        }
        assert_eq!(upstream_path("m-7", "", ModelOp::Infer), "/v2/models/m-7/infer");
        assert_eq!(upstream_path("m", "7", ModelOp::Metadata), "/v2/models/m/versions/7");
    }

    #[test]
    fn errors_are_json_whatever_the_text() {
        let body = error_body("bad_request", "a \"b\" \\ \u{1} \u{e9}");
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["error"], "bad_request: a \"b\" \\ \u{1} \u{e9}");
    }

    #[test]
    fn a_missing_model_is_not_a_bad_request() {
        let is_not_loaded = |status, body: &[u8]| is_not_loaded(status, body, "screen-1");
        assert!(is_not_loaded(400, br#"{"error":"Request for unknown model: 'x' is not found"}"#));
        assert!(is_not_loaded(400, br#"{"error":"Model x is not ready yet."}"#));
        assert!(is_not_loaded(400, br#"{ "error": "Request for unknown model: 'x' has no available versions"}"#));
        for repeated in ["model is not ready", "Request for unknown model: 'x' is not found"] {
            let body = format!(r#"{{"error":"unexpected inference input '{repeated}' for model 'screen-1'"}}"#);
            assert!(!is_not_loaded(400, body.as_bytes()), "{repeated}");
        }
        assert!(!is_not_loaded(400, br#"{"error":"input shape is wrong"}"#));
        assert!(!is_not_loaded(500, b"unknown model"));
    }

    #[test]
    fn a_404_tells_of_a_missing_model_only_in_the_servers_words_for_it() {
        let said = |text: &str| is_not_loaded(404, format!(r#"{{"error": "{text}"}}"#).as_bytes(), "Screen-1");
        for missing in [
            "Model Screen-1 not found",
            "Model Screen-1 with version 7 not found",
            "Request for unknown model: 'Screen-1' is not found",
            "Request for unknown model: 'Screen-1' version 7 is not found",
            "Request for unknown model: 'Screen-1' has no available versions",
        ] {
            assert!(said(missing), "{missing}");
        }
        for other in [
            "",
            "no such customer: 17",
            "Model Screen-10 not found",
            "Model rank-1 not found",
            "Model Screen-1 not found in the text that you sent",
            "Model Screen-1 with version 7 of nothing not found",
            "Request for unknown model: 'rank-1' is not found",
            "no customer 'Model Screen-1 not found'",
        ] {
            assert!(!said(other), "{other}");
        }
        assert!(!is_not_loaded(404, b"", "screen-1"));
    }
}
