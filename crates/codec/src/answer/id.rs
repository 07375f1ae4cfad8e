//! The `id` of a request and of its answer (Open Inference V2, `inference_request` and `inference_response`): an answer gives back the one that it was sent.
//!
//! Of two requests for one version nothing else in an answer tells which of them it belongs to. Servers that were sent none may make one up, so the
//! request is only looked into when an answer has one; and an answer may have none.

use memchr::memmem;
use smallvec::SmallVec;

use crate::json::{Event, Scanner, Value};

const KEYS: &[&str] = &["id"];
const WRITTEN: &[u8] = b"\"id\"";

/// The `id` that an answer names. Room for a UUID as text without an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerId(SmallVec<[u8; 36]>);

/// What an answer's `id` is to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The request has it.
    Same,
    /// The request has another one.
    Other,
    /// The request has none that can be compared.
    Unknown,
}

impl AnswerId {
    /// None for what cannot be compared: no string, an empty one, or one that is too long to be kept.
    pub(super) fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Text(text) => Self::from_text(text),
            _ => None,
        }
    }

    /// Compares it with the request, given whole.
    ///
    /// A request that begins with its `id` costs one look, one that has none a search for the word. One with several is nobody's to read.
    #[must_use]
    pub fn compare(&self, request: &[u8]) -> Compared {
        match self.glance(request) {
            Compared::Same => Compared::Same,
            _ => self.read(request),
        }
    }

    /// The same by one look at the beginning. What is not there is not known.
    #[must_use]
    pub fn glance(&self, request: &[u8]) -> Compared {
        self.begins(request).map_or(Compared::Unknown, |()| Compared::Same)
    }

    fn read(&self, request: &[u8]) -> Compared {
        if memmem::find(request, WRITTEN).is_none() {
            return Compared::Unknown;
        }
        let (mut scanner, mut from) = (Scanner::new(KEYS), 0);
        let (mut is_id, mut found) = (false, Compared::Unknown);
        while let Some(event) = scanner.next_event(request, &mut from) {
            match event {
                Event::ValueStart { at, .. } => is_id = is_written(&request[..at]),
                Event::ValueEnd { value: Value::Text(text), .. } if is_id && !text.is_empty() => {
                    if found != Compared::Unknown {
                        return Compared::Unknown;
                    }
                    let is_same = text.as_bytes() == self.0.as_slice();
                    found = if is_same { Compared::Same } else { Compared::Other };
                }
                Event::ValueEnd { value: Value::Other, .. } if is_id => return Compared::Unknown,
                Event::ValueEnd { .. } => {}
            }
        }
        // What is no JSON object has no member.
        if scanner.is_foreign() { Compared::Unknown } else { found }
    }

    /// Of a text. None for an empty one.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(SmallVec::from_slice(text.as_bytes())))
    }

    /// The text, as it means.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AnswerId {
    /// Whether the request's first member is this `id`, written without an escape: where most clients have it.
    fn begins(&self, request: &[u8]) -> Option<()> {
        let mut rest = request;
        for part in [b"{".as_slice(), WRITTEN, b":", b"\""] {
            rest = rest.trim_ascii_start().strip_prefix(part)?;
        }
        let is_plain = memchr::memchr2(b'"', b'\\', &self.0).is_none();
        (is_plain && rest.strip_prefix(self.0.as_slice())?.starts_with(b"\"")).then_some(())
    }
}

/// Whether the key before a value is `id` as it stands: the scanner passes other ways to write it, which a server may take for another member.
fn is_written(before: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    before.strip_suffix(b":").is_some_and(|before| before.trim_ascii_end().ends_with(WRITTEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn id(text: &str) -> AnswerId {
        AnswerId::of(&Value::Text(Cow::Borrowed(text))).unwrap()
    }

    #[test]
    fn an_answer_with_the_id_of_another_request_is_none_of_this_one() {
        for request in [
            r#"{"id":"a","inputs":[]}"#,
            r#"{"inputs":[{"id":"b"}], "id" : "a"}"#,
            r#"{"id":"\u0061"}"#,
            r#"{"id":null,"id":"a"}"#,
            " { \"id\" :\n\"a\" }",
        ] {
            assert_eq!(id("a").compare(request.as_bytes()), Compared::Same, "{request}");
            assert_eq!(id("b").compare(request.as_bytes()), Compared::Other, "{request}");
        }
    }

    #[test]
    fn a_request_without_an_id_that_can_be_compared_takes_any() {
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(5_000));
        for request in [
            "",
            "{}",
            r#"{"inputs":[{"id":"b"}]}"#,
            r#"{"id":""}"#,
            r#"{"id":null}"#,
            r#"{"id":7}"#,
            // A server may take these for other members, and make up an id.
            r#"{"ID":"b","inputs":[{"id":"b"}]}"#,
            r#"{"i\u0064":"b","parameters":{"id":"b"}}"#,
            r#"["id","b"]"#,
            r#"{"id":"b"} {"id":"c"}"#,
            &long,
        ] {
            assert_eq!(id("a").compare(request.as_bytes()), Compared::Unknown, "{request}");
        }
    }

    #[test]
    fn an_id_that_only_begins_so_or_is_written_otherwise_is_read_in_full() {
        for (answer, request, compared) in [
            ("a", r#"{"id":"ab"}"#, Compared::Other),
            ("ab", r#"{"id":"a"}"#, Compared::Other),
            ("a\"", r#"{"id":"a\""}"#, Compared::Same),
            ("a\\", r#"{"id":"a\\"}"#, Compared::Same),
            ("a\\", r#"{"id":"a\","x":"b"}"#, Compared::Unknown),
        ] {
            assert_eq!(id(answer).compare(request.as_bytes()), compared, "{answer} {request}");
        }
    }

    #[test]
    fn of_several_none_will_do_but_the_first() {
        let two = br#"{"id":"a","inputs":[],"id":"b"}"#;
        let compared = ["a", "b", "c"].map(|text| id(text).compare(two));
        assert_eq!(compared, [Compared::Same, Compared::Unknown, Compared::Unknown]);
    }

    #[test]
    fn what_is_no_text_is_no_id() {
        for value in [Value::Null, Value::Other, Value::Text(Cow::Borrowed(""))] {
            assert_eq!(AnswerId::of(&value), None);
        }
    }
}
