use super::*;
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits { head: 1024, target: 100, fields: 10 };

fn feed(text: &str) -> Release {
    Monitor::new(LIMITS).feed(text.as_bytes())
}

fn fields(fields: &str) -> Option<Violation> {
    feed(&format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).violation
}

#[test]
fn heads_that_mean_one_thing_pass() {
    for head in [
        "",
        "Content-Length: 0\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "transfer-encoding:\tChunked \r\n",
        "X-Content-Length-Hint: 5\r\n",
        "X: caf\u{e9}\r\n",
        "X:\r\n",
    ] {
        assert_eq!(fields(head), None, "{head:?}");
    }
    assert_eq!(feed("\r\n\r\nGET / HTTP/1.0\r\n\r\n").violation, None);
}

#[test]
fn empty_lines_before_a_head_are_counted() {
    let after = |lines: usize| feed(&format!("{}GET / HTTP/1.0\r\n\r\n", "\r\n".repeat(lines)));
    assert_eq!(after(EMPTY_LINES), Release { bytes: 2 * EMPTY_LINES + 18, violation: None });
    let refused = Release { bytes: 0, violation: Some(Violation::RequestLine) };
    assert_eq!((after(EMPTY_LINES + 1), feed(&"\r\n".repeat(EMPTY_LINES + 1))), (refused, refused));
    let waits = Release { bytes: 0, violation: None };
    assert_eq!(feed(&"\r\n".repeat(EMPTY_LINES)), waits, "a head may come yet");
}

#[test]
fn heads_that_could_mean_two_things_do_not() {
    use Violation::{BothLengths, ContentLength, FieldName, FieldValue, Folding, LineEnding, LookAlike};
    for (head, why) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", BothLengths),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", BothLengths),
        ("Content-Length: +5\r\n", ContentLength),
        ("Content-Length: 0x5\r\n", ContentLength),
        ("Content-Length: 5,5\r\n", ContentLength),
        ("Content-Length: 5, 6\r\n", ContentLength),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", ContentLength),
        ("Content-Length: 12345678901234567890\r\n", ContentLength),
        ("Content-Length:\r\n", ContentLength),
        ("Transfer-Encoding: gzip, chunked\r\n", Violation::TransferEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Violation::TransferEncoding),
        ("Transfer-Encoding: xchunked\r\n", Violation::TransferEncoding),
        ("Transfer_Encoding: chunked\r\n", LookAlike),
        ("Content.Length: 5\r\n", LookAlike),
        ("Transfer-Encoding : chunked\r\n", FieldName),
        ("\u{1}Transfer-Encoding: chunked\r\n", FieldName),
        ("Novalue\r\n", FieldName),
        (": x\r\n", FieldName),
        ("X: a\r\n b\r\n", Folding),
        ("X: a\rb\r\n", FieldValue),
        ("X: a\0b\r\n", FieldValue),
        ("X: a\nY: b\r\n", LineEnding),
        ("Host: other\r\n", Violation::Host),
    ] {
        assert_eq!(fields(head), Some(why), "{head:?}");
    }
}

#[test]
fn request_lines() {
    for line in
        ["GET /", "GET / HTTP/2.0", "GET  / HTTP/1.1", "G\u{1}T / HTTP/1.1", "GET /\u{e9} HTTP/1.1", " / HTTP/1.1"]
    {
        let why = feed(&format!("{line}\r\nHost: h\r\n\r\n")).violation;
        assert_eq!(why, Some(Violation::RequestLine), "{line:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(100));
    assert_eq!(feed(&long).violation, Some(Violation::TargetTooLong));
    assert_eq!(feed("GET / HTTP/1.1\r\n\r\n").violation, Some(Violation::Host));
}

#[test]
fn bounds() {
    let many: String = (0..10).map(|i| format!("X{i}: 1\r\n")).collect();
    assert_eq!(fields(&many), Some(Violation::HeadTooLarge));
    assert_eq!(feed(&format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(1024))).violation, Some(Violation::HeadTooLarge));
    assert_eq!(feed(&"x".repeat(200)).violation, Some(Violation::TargetTooLong));
}

#[test]
fn a_smuggled_head_in_a_body_is_body_and_the_next_head_is_checked() {
    let hidden = "GET /x HTTP/1.1\r\nBad Name: 1\r\n\r\n";
    let sized = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len());
    assert_eq!(feed(&sized), Release { bytes: sized.len(), violation: None });
    let chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: v\r\n\r\n";
    let both = format!("{chunked}{hidden}");
    assert_eq!(feed(&both), Release { bytes: chunked.len(), violation: Some(Violation::FieldName) });
}

#[test]
fn after_broken_chunks_no_byte_is_released() {
    let long = format!("2;{}\r\n{{}}\r\n", "a".repeat(1100));
    for body in
        ["zz\r\n", "5\nabc", "3\r\nabcX", "ffffffffffffffff\r\n", "\r\n", "2 \r\n{}\r\n", "2\t;a\r\n", "0x2\r\n", &long]
    {
        let mut monitor = Monitor::new(LIMITS);
        let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let text = format!("{head}{body}0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let released = monitor.feed(text.as_bytes());
        assert!(monitor.is_broken(), "{body:?}");
        assert!(released.bytes <= head.len() + body.len() && released.violation.is_none(), "{body:?}: {released:?}");
        assert_eq!(monitor.feed(&text.as_bytes()[released.bytes..]), Release { bytes: 0, violation: None }, "{body:?}");
        assert_eq!((monitor.phase(false), monitor.heads()), (Phase::Body, 1), "{body:?}");
    }
}

#[test]
fn targets_and_hosts_that_parsers_do_not_agree_on_are_refused() {
    let get = |target: &str, host: &str| feed(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).violation;
    for target in ["/", "/a?b={c}|d", "*", "http://h", "HTTPS://h:1/a?b", "//", "/%zz", "/a^b\\c"] {
        assert_eq!(get(target, "h"), None, "{target}");
    }
    for target in [
        "/a#b",
        "/a<b",
        "/a`b",
        "/?\"",
        "a",
        "?a",
        "h:80",
        "*a",
        "http://",
        "http:///a",
        "http://?a",
        "ftp://h/",
        "/\u{e9}",
    ] {
        assert_eq!(get(target, "h"), Some(Violation::RequestLine), "{target}");
    }
    for host in ["", "h", "h:80", "[::1]:80", "a-b.c_d~", "%41"] {
        assert_eq!(get("/", host), None, "{host}");
    }
    for host in ["a b", "a/b", "a@b", "a#", "a?b", "a\\b", "\u{e9}", "a\tb"] {
        assert_eq!(get("/", host), Some(Violation::Host), "{host}");
    }
    assert_eq!(feed("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n").violation, None);
}

proptest! {
    #[test]
    fn segments_change_nothing(cuts in proptest::collection::vec(1usize..40, 0..20)) {
        let text = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n\
                    GET /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: h\r\nContent-Length: 1,1\r\n\r\n";
        let whole = feed(text);
        let mut monitor = Monitor::new(LIMITS);
        let (mut released, mut fed, mut violation) = (0, 0, None);
        let mut cuts = cuts.into_iter();
        while violation.is_none() && fed < text.len() {
            fed = (fed + cuts.next().unwrap_or(7)).min(text.len());
            let release = monitor.feed(&text.as_bytes()[released..fed]);
            released += release.bytes;
            violation = release.violation;
        }
        prop_assert_eq!(Release { bytes: released, violation }, whole);
        prop_assert_eq!(whole.violation, Some(Violation::ContentLength));
        prop_assert_eq!(monitor.heads(), 2);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let release = Monitor::new(LIMITS).feed(&bytes);
        prop_assert!(release.bytes <= bytes.len());
    }
}

#[test]
fn what_imitates_a_framing_field_is_neither_of_the_two() {
    for name in [
        "content_length",
        "CONTENT LENGTH",
        "contentlength",
        "Content-Length\t",
        "-transfer.encoding_",
        "transferencoding",
    ] {
        assert!(imitates_length(name.as_bytes()), "{name:?}");
    }
    for name in [
        "",
        "content-length",
        "Content-LENGTH",
        "transfer-encoding",
        "content-lengths",
        "x-content-length",
        "content-1ength",
    ] {
        assert!(!imitates_length(name.as_bytes()), "{name:?}");
    }
    // Names of which a part could be one of them in another code are not taken apart.
    assert!(!imitates_length("content-length\u{e9}n".as_bytes()));
}
