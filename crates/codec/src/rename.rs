//! A model's name in words that were not written for its client: what a model server says of an error names the model as the server knows it.
//!
//! The name is replaced wherever it stands by itself, whatever the text around it is, JSON or not. Names have no character that JSON would
//! escape, so that what was JSON is JSON again.

use memchr::memmem;

/// The text with each `from` that is a whole name replaced. None: there is none.
///
/// A name is whole if no letter or digit touches it, not even over some of `.`, `_` and `-`: `screen-1` is found in `"screen-1."`, and neither in
/// `screen-1.5` nor in `my-screen-1`.
#[must_use]
pub fn renamed(text: &[u8], from: &str, to: &str) -> Option<Vec<u8>> {
    if from.is_empty() || from == to {
        return None;
    }
    let mut out = Vec::new();
    let mut kept = 0;
    for at in memmem::find_iter(text, from) {
        let end = at + from.len();
        if starts_longer(&text[end..]) || ends_longer(&text[..at]) {
            continue;
        }
        out.extend_from_slice(&text[kept..at]);
        out.extend_from_slice(to.as_bytes());
        kept = end;
    }
    if kept == 0 {
        return None;
    }
    out.extend_from_slice(&text[kept..]);
    Some(out)
}

/// Whether a name goes on in what comes after it.
fn starts_longer(after: &[u8]) -> bool {
    after.iter().find(|b| !joins(**b)).is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether a name has begun in what comes before it.
fn ends_longer(before: &[u8]) -> bool {
    let stem = before.iter().rposition(|b| !joins(*b)).map_or(0, |at| at + 1);
    let stem = &before[..stem];
    stem.last().is_some_and(u8::is_ascii_alphanumeric) && !ends_in_escape(stem)
}

const fn joins(byte: u8) -> bool {
    matches!(byte, b'.' | b'_' | b'-')
}

/// Whether the last letter or digit belongs to an escape of JSON: `\n`, or `\u000a`.
fn ends_in_escape(text: &[u8]) -> bool {
    let escapes = |length: usize| {
        let Some(start) = text.len().checked_sub(length) else { return false };
        // An even number of them is so many backslashes that are meant.
        text[..start].iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
    };
    match text {
        [.., b'u', a, b, c, d] if [a, b, c, d].into_iter().all(u8::is_ascii_hexdigit) && escapes(5) => true,
        [.., b'b' | b'f' | b'n' | b'r' | b't'] => escapes(1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        renamed(text.as_bytes(), "screen-1", "screen")
            .map_or_else(|| text.to_owned(), |new| String::from_utf8(new).unwrap())
    }

    #[test]
    fn whole_names_are_replaced() {
        for (text, want) in [
            ("screen-1", "screen"),
            (r#"{"error":"no input for model 'screen-1'"}"#, r#"{"error":"no input for model 'screen'"}"#),
            ("screen-1: screen-1, (screen-1)", "screen: screen, (screen)"),
            ("POST /v2/models/screen-1/infer", "POST /v2/models/screen/infer"),
            ("It was screen-1. Or screen-1...", "It was screen. Or screen..."),
            (r#"{"error":"first\nscreen-1\tlast \u000ascreen-1"}"#, r#"{"error":"first\nscreen\tlast \u000ascreen"}"#),
            ("\u{e9}screen-1\u{e9} - screen-1 -", "\u{e9}screen\u{e9} - screen -"),
        ] {
            assert_eq!(told(text), want);
        }
    }

    #[test]
    fn longer_names_stay_as_they_are() {
        for text in [
            "",
            "screen",
            "screen-10 screen-1.5 screen-1_b screen-1-b screen-1--b",
            "my-screen-1 xscreen-1 1screen-1 a._-screen-1",
            r"c:\\nscreen-1 uabcdscreen-1 \\u000ascreen-1",
        ] {
            assert_eq!(renamed(text.as_bytes(), "screen-1", "screen"), None, "{text}");
        }
        assert_eq!(renamed(b"screen", "screen", "screen"), None);
        assert_eq!(renamed(b"screen", "", "screen"), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_kept() {
        assert_eq!(renamed(b"\xff\xfescreen-1\xff", "screen-1", "m").unwrap(), b"\xff\xfem\xff");
    }
}
