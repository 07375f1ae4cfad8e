//! The public corpus of requests that desynchronise a front and its back end (aws/http-desync-guardian, tests), played over real sockets.
//!
//! Each case is turned into a request of the inference protocol, with the case's own header lines. Hidden in its body is a second request.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::fixture::{INFER, Rig};

/// One case as written in the file. A reader for just this shape of YAML.
#[derive(Debug, Default, Clone)]
struct Case {
    name: String,
    uri: String,
    method: String,
    version: String,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    verdict: String,
}

/// Compliant cases that the gateway refuses all the same, and why.
const STRICTER: [(&str, &str); 6] = [
    ("Different Transfer-Encoding headers", "no transfer coding but chunked is undone, so none is accepted"),
    ("Different Transfer-Encoding headers combined", "as above"),
    ("Transfer-Encoding with a param: chunked;custom_param", "as above"),
    ("International in URI", "a target has ASCII characters only (RFC 9112, 3.2); others are percent-encoded"),
    ("Empty URI", "a request line has a target (RFC 9112, 3)"),
    ("Compliant URL", "well-formed, but not a path of the inference protocol"),
];

fn folder() -> Option<PathBuf> {
    let given = std::env::var_os("HOLDFAST_VECTORS").map(PathBuf::from);
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    Some(given.unwrap_or(beside).join("http-framing")).filter(|folder| folder.is_dir())
}

#[tokio::test]
async fn the_desync_corpus_never_desynchronises_a_replica() {
    let Some(folder) = folder() else {
        eprintln!("SKIPPED: no http-framing vectors; set HOLDFAST_VECTORS to the folder that has them");
        return;
    };
    let rig = Rig::plain().await;
    let mut seen: BTreeMap<(String, u16), usize> = BTreeMap::new();
    for file in ["rfc-compliant.yaml", "acceptable.yaml", "ambiguous.yaml", "edge-cases.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let cases = parse(&text);
        assert_eq!(cases.len(), text.matches("\n- name:").count(), "{file} is read whole");
        for case in cases {
            let status = play(&rig, &case).await;
            *seen.entry((case.verdict, status)).or_default() += 1;
        }
    }
    assert!(seen.get(&("Compliant".to_owned(), 200)).is_some_and(|n| *n >= 8), "{seen:?}");
    assert!(seen.get(&("Ambiguous".to_owned(), 400)).is_some_and(|n| *n >= 30), "{seen:?}");
    assert_eq!(rig.stub.count(|r| r.path.contains("smuggled")), 0);
    assert_eq!(rig.infer().await, 200);
}

async fn play(rig: &Rig, case: &Case) -> u16 {
    let before = rig.stub.requests().len();
    let method = if case.method == "PUT" { "POST" } else { &case.method };
    let mut client = rig.raw().await;
    client.write(request(case, method)).await;
    let answer = client.answer(method).await.unwrap_or_else(|e| panic!("{case:?}: {e}"));
    // Whatever the gateway has taken for a further request is answered before this one.
    client.write("GET /livez HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n").await;
    let rest = String::from_utf8(client.rest().await.unwrap()).unwrap();
    let further = rest.matches("HTTP/1.1 ").count();
    assert!(further == 0 || (further == 1 && rest.ends_with(r#"{"live":true}"#)), "{case:?}: {rest}");
    let received: Vec<_> = rig.stub.requests().into_iter().skip(before).filter(|r| is_ours(&r.path)).collect();
    assert!(received.len() <= 1, "{case:?}: {received:?}");
    for request in &received {
        let fields = request.headers.iter().map(|(n, _)| n.to_ascii_lowercase());
        let lengths = fields.filter(|n| n == "content-length" || n == "transfer-encoding").count();
        assert!(lengths <= 1, "{case:?} reached the replica as {request:?}");
    }
    let is_merged = case.name == "Duplicate Content-Length";
    let stricter = STRICTER.iter().any(|(name, _)| *name == case.name);
    match case.verdict.as_str() {
        "Severe" | "Ambiguous" if !is_merged => {
            assert_eq!(answer.status, 400, "{case:?}");
            // A body where none may be is read past; everything else ends the connection.
            assert!(rest.is_empty() || method != "POST", "{case:?}: {rest}");
            assert!(received.is_empty(), "{case:?} reached the replica as {received:?}");
        }
        "Compliant" if !stricter => {
            assert_eq!((answer.status, received.len()), (200, 1), "{case:?}: {}", answer.text());
        }
        "Compliant" | "Acceptable" | "Severe" | "Ambiguous" => {
            assert!(matches!(answer.status, 200 | 400 | 404), "{case:?}: {}", answer.status);
        }
        other => panic!("{case:?}: no such verdict: {other}"),
    }
    answer.status
}

fn is_ours(path: &str) -> bool {
    path.contains("/infer") || path == "/v2/models/screen/versions/1"
}

/// The case's bytes. Its body is as long as its length says, and holds a second request.
fn request(case: &Case, method: &str) -> Vec<u8> {
    let path = match (case.uri.as_str(), method) {
        ("/foo/bar", "POST") => INFER,
        ("/foo/bar", _) => "/v2/models/screen",
        (other, _) => other,
    };
    let mut bytes = format!("{method} {path} {}\r\nHost: gateway\r\nx-tenant: acme\r\n", case.version).into_bytes();
    for (name, value) in &case.headers {
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    let is = |wanted: &'static [u8]| case.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(wanted));
    let length = case.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(b"content-length"));
    let length = length.and_then(|(_, v)| std::str::from_utf8(v).ok()?.parse::<usize>().ok());
    bytes.extend_from_slice(b"\r\n");
    let hidden = "GET /v2/models/screen?smuggled HTTP/1.1\r\nhost: x\r\nx-tenant: acme\r\n\r\n";
    if is(b"transfer-encoding") {
        bytes.extend_from_slice(format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len()).as_bytes());
    } else if let Some(length) = length {
        let body = hidden.repeat(length / hidden.len() + 1);
        bytes.extend_from_slice(&body.as_bytes()[..length]);
    }
    bytes
}

fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut in_headers = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with('#') || trimmed.is_empty() {
            continue;
        }
        let Some((key, value)) = trimmed.trim_start_matches("- ").split_once(':') else { continue };
        if key.starts_with(['"', '\'']) {
            continue;
        }
        let value = scalar(value.trim());
        if line.starts_with("- name") {
            cases.push(Case { name: text_of(&value), ..Case::default() });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        let is_top = line.starts_with("  ") && !line.starts_with("   ");
        if is_top {
            in_headers = key == "headers";
        }
        match (key, is_top, in_headers) {
            ("uri", true, _) => case.uri = text_of(&value),
            ("method", true, _) => case.method = text_of(&value),
            ("version", true, _) => case.version = text_of(&value),
            ("name", false, true) => case.headers.push((value, Vec::new())),
            ("value", false, true) => case.headers.last_mut().unwrap().1 = value,
            ("tier", false, false) => case.verdict = text_of(&value),
            _ => {}
        }
    }
    cases
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A scalar: plain, or in single or double quotes. `\xNN` is that byte.
fn scalar(text: &str) -> Vec<u8> {
    let Some(inside) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) else {
        let single = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
        return single.unwrap_or(text).replace("''", "'").into_bytes();
    };
    let mut out = Vec::new();
    let mut bytes = inside.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b't') => out.push(b'\t'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b'0') => out.push(0),
            Some(b'x') => {
                let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}
