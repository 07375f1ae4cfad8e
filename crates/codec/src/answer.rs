//! PIN-1 on an answer's bytes: the model and version that it names are compared with what was asked, and written as the client knows them.
//!
//! [`Checker`] is fed the JSON of an Open Inference answer in chunks of any size and gives the bytes to pass on. The upstream's name for the
//! model (`screen-1`) becomes the client's (`screen`), the same for the version. A name that is neither, or a member that comes twice, is a
//! [`Mismatch`], and bytes that are no UTF-8 are [`Wrong`] as well: the bytes that came before them may have been passed on, so a caller that
//! streams must cut the answer without a clean end.
//! Nothing is kept but a value that is cut in two by a chunk's end ([`json::MAX_VALUE`] times six at most).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use holdfast_types::ModelName;

use smallvec::SmallVec;

use crate::json::{Event, Scanner, Value};
use crate::utf8::Utf8;

const KEYS: &[&str] = &["model_name", "model_version"];
const NAME: usize = 0;
const VERSION: usize = 1;

/// What an answer must name, and how the client is told. Made once per route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The model name that the replica was asked for.
    pub upstream_model: String,
    /// The version that the replica must name: the one it was asked for, or the resolved one where it is asked by name only.
    pub upstream_version: String,
    /// The model name that the client sees.
    pub model: String,
    /// The version that the client sees.
    pub version: String,
}

/// The answer names something other than was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// `model_name` or `model_version`.
    pub member: &'static str,
    /// What was asked for.
    pub expected: String,
    /// What the answer says, as [`name_told`] gives it.
    pub got: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?} where {:?} was asked", self.member, self.got, self.expected)
    }
}

impl std::error::Error for Mismatch {}

/// Why an answer may not be passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It names something else, or is not one JSON object.
    Mismatch(Mismatch),
    /// It has bytes that are no UTF-8. They say nothing about the version, and may be a copy of the request.
    NotUtf8,
}

impl From<Mismatch> for Wrong {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch(mismatch)
    }
}

/// A piece of the answer to pass on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A range of the chunk just fed.
    Chunk(Range<usize>),
    /// Bytes that are not in the chunk.
    Owned(Vec<u8>),
}

/// Pieces in order. Most answers are one.
pub type Pieces = SmallVec<[Piece; 2]>;

/// What has been seen of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Not,
    /// Present, but null or empty: as good as absent.
    Blank,
    Matched,
}

/// The comparison of one answer. See the module.
#[derive(Debug)]
pub struct Checker {
    scanner: Scanner,
    utf8: Utf8,
    seen: [Seen; 2],
    /// The beginning of a value whose end has not come yet.
    held: Vec<u8>,
    delta: i64,
}

impl Default for Checker {
    fn default() -> Self {
        Self { scanner: Scanner::new(KEYS), utf8: Utf8::default(), seen: [Seen::Not; 2], held: Vec::new(), delta: 0 }
    }
}

impl Checker {
    /// Feeds the next chunk and pushes what to pass on, in order.
    ///
    /// # Errors
    /// [`Wrong`], by the first byte that proves it. The checker must not be fed after that.
    pub fn feed(&mut self, expected: &Expected, chunk: &[u8], out: &mut Pieces) -> Result<(), Wrong> {
        let taken = self.utf8.take(chunk);
        // What comes first is what is told, however the chunks were cut.
        let end = taken.err().unwrap_or(chunk.len());
        self.compare(expected, &chunk[..end], out)?;
        taken.map_err(|_| Wrong::NotUtf8)
    }

    fn compare(&mut self, expected: &Expected, chunk: &[u8], out: &mut Pieces) -> Result<(), Mismatch> {
        let (mut from, mut passed) = (0, 0);
        let mut start = if self.scanner.in_watched_value() { Some(0) } else { None };
        while let Some(event) = self.scanner.next_event(chunk, &mut from) {
            match event {
                Event::ValueStart { at, .. } => start = Some(at),
                Event::ValueEnd { key, at, value } => {
                    let begin = start.take().unwrap_or(0);
                    let replacement = self.judge(expected, key, &value)?;
                    self.pass(chunk, &mut passed, begin, at, replacement, out);
                }
            }
        }
        if self.scanner.is_foreign() {
            let got = "(not one JSON object)".to_owned();
            return Err(Mismatch { member: "the answer", expected: "one JSON object".to_owned(), got });
        }
        match start {
            Some(begin) => {
                push_range(out, passed..begin);
                self.held.extend_from_slice(&chunk[begin..]);
            }
            None => push_range(out, passed..chunk.len()),
        }
        Ok(())
    }

    /// Passes on one watched value: untouched where it already reads as the client knows it.
    fn pass(
        &mut self,
        chunk: &[u8],
        passed: &mut usize,
        begin: usize,
        end: usize,
        new: Option<&str>,
        out: &mut Pieces,
    ) {
        let held = std::mem::take(&mut self.held);
        if let Some(new) = new {
            push_range(out, *passed..begin);
            let quoted = quote(new);
            self.delta += quoted.len() as i64 - (held.len() + end - begin) as i64;
            out.push(Piece::Owned(quoted));
            *passed = end;
        } else if !held.is_empty() {
            let mut whole = held;
            whole.extend_from_slice(&chunk[begin..end]);
            out.push(Piece::Owned(whole));
            *passed = end;
        }
    }

    /// Compares one value. `Ok(Some(text))` asks for it to be replaced.
    fn judge<'e>(
        &mut self,
        expected: &'e Expected,
        key: usize,
        value: &Value<'_>,
    ) -> Result<Option<&'e str>, Mismatch> {
        let (member, want, client) = match key {
            NAME => ("model_name", &expected.upstream_model, &expected.model),
            _ => ("model_version", &expected.upstream_version, &expected.version),
        };
        let mismatch = |got: &str| Mismatch { member, expected: want.clone(), got: got.to_owned() };
        if self.seen[key] != Seen::Not {
            return Err(mismatch("(the member comes twice)"));
        }
        match value {
            Value::Text(text) if text == want => {
                self.seen[key] = Seen::Matched;
                Ok((text != client).then_some(client.as_str()))
            }
            Value::Text(text) if !text.is_empty() => {
                Err(mismatch(&name_told(text).unwrap_or("(a text that is no name)".into())))
            }
            Value::Text(_) | Value::Null => {
                self.seen[key] = Seen::Blank;
                Ok(Some(client.as_str()))
            }
            Value::Other => Err(mismatch("(not a short string)")),
        }
    }

    /// Whether both members have been seen or the object has ended: no byte after this will be rewritten.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.scanner.is_done() || self.seen.iter().all(|s| *s != Seen::Not)
    }

    /// Whether the object has been closed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.scanner.is_done()
    }

    /// Whether the answer named the model.
    #[must_use]
    pub fn has_model(&self) -> bool {
        self.seen[NAME] == Seen::Matched
    }

    /// Whether the answer named the version.
    #[must_use]
    pub fn has_version(&self) -> bool {
        self.seen[VERSION] == Seen::Matched
    }

    /// How many bytes longer (or shorter, if negative) the rewritten text is so far.
    #[must_use]
    pub fn delta(&self) -> i64 {
        self.delta
    }

    /// Bytes of a value cut in two that the end of the text left over. Empty for a whole JSON text.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn push_range(out: &mut Pieces, range: Range<usize>) {
    if !range.is_empty() {
        out.push(Piece::Chunk(range));
    }
}

/// A name that a server says, fit for logs and alarms: cut after 64 characters, all of them letters, digits, `.`, `_` and `-`. None if it has not
/// the form of a name: it may be a copy of the request then, and is not repeated.
#[must_use]
pub fn name_told(text: &str) -> Option<Cow<'_, str>> {
    const MOST: usize = 64;
    ModelName::check(text).ok()?;
    // ASCII, so that any place is one between two characters.
    Some(match text.get(..MOST) {
        Some(begin) if text.len() > MOST => format!("{begin}(cut)").into(),
        _ => text.into(),
    })
}

/// Ids have no character that JSON would escape.
fn quote(id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(id.len() + 2);
    out.push(b'"');
    out.extend_from_slice(id.as_bytes());
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expected(up: (&str, &str), client: (&str, &str)) -> Expected {
        Expected {
            upstream_model: up.0.into(),
            upstream_version: up.1.into(),
            model: client.0.into(),
            version: client.1.into(),
        }
    }

    fn run(expected: &Expected, chunks: &[&[u8]]) -> Result<(String, Checker), Wrong> {
        let mut state = Checker::default();
        let mut out = Vec::new();
        for chunk in chunks {
            let mut pieces = Pieces::new();
            state.feed(expected, chunk, &mut pieces)?;
            for piece in pieces {
                match piece {
                    Piece::Chunk(range) => out.extend_from_slice(&chunk[range]),
                    Piece::Owned(bytes) => out.extend_from_slice(&bytes),
                }
            }
        }
        out.extend(state.finish());
        Ok((String::from_utf8_lossy(&out).into_owned(), state))
    }

    #[test]
    fn the_client_reads_its_own_names() {
        let e = expected(("screen-1", "1"), ("screen", "1"));
        let json = br#"{"model_name":"screen-1","model_version":"1","outputs":[{"name":"screen-1"}]}"#;
        let (out, state) = run(&e, &[json]).unwrap();
        assert_eq!(out, r#"{"model_name":"screen","model_version":"1","outputs":[{"name":"screen-1"}]}"#);
        assert!(state.has_model() && state.has_version());
        assert_eq!(state.delta(), -2);
    }

    #[test]
    fn an_answer_that_needs_no_change_is_passed_on_in_one_piece() {
        let e = expected(("m", "7"), ("m", "7"));
        let mut out = Pieces::new();
        let json = br#"{"model_name":"m","model_version":"7","id":"x"}"#;
        Checker::default().feed(&e, json, &mut out).unwrap();
        assert_eq!(out.to_vec(), vec![Piece::Chunk(0..json.len())]);
    }

    #[test]
    fn every_other_name_is_a_mismatch() {
        let e = expected(("screen-1", "1"), ("screen", "1"));
        for json in [
            r#"{"model_name":"screen-2","model_version":"1"}"#,
            r#"{"model_name":"screen","model_version":"1"}"#,
            r#"{"model_name":"screen-1","model_version":"2"}"#,
            r#"{"model_name":"screen-1","model_version":1}"#,
            r#"{"model_name":"screen-1","outputs":[],"model_version":"1","model_version":"2"}"#,
            r#"{"model_name":"screen-1","model_version":"1","model_name":"screen-1"}"#,
            r#"{"model_name":["screen-1"]}"#,
            r#"{"model_version":"1","model\u005fname":"screen-2"}"#,
            r#"{"Model_Name":"screen-2"}"#,
            r#"{"model_name":"screen-1","model_version":"1"}{"model_name":"screen-2"}"#,
            "{}\n{\"model_name\":\"screen-2\"}",
            r#"[{"model_name":"screen-1"}]"#,
            "data: {\"model_name\":\"screen-1\"}",
            "\u{c}{\"model_name\":\"screen-1\"}",
            "{\0\"\0m\0",
            "\"text\"",
            // What a reader of JSON5 sees in it is another answer.
            "{\"a\": '\"', \"model_name\": \"screen-2\", \"b\": '\"'}",
            "{\"a\": 1 /* \" */, \"model_name\": \"screen-2\" /* \" */}",
            "{\"a\": [1, # \"\n2], \"model_name\": \"screen-2\"}",
            "{\"a\": é}",
            // Go's and Java's readers take these for the member's name.
            "{\"model_ver\u{17f}ion\":\"2\"}",
            "{\"model_vers\u{131}on\":\"2\"}",
            "{\"model_vers\\u0130on\":\"2\"}",
        ] {
            assert!(run(&e, &[json.as_bytes()]).is_err(), "{json}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_are_refused_wherever_they_are() {
        let e = expected(("screen-1", "1"), ("screen", "1"));
        let answers: [&[u8]; 6] = [
            b"{\"model_ver\xffsion\":\"2\"}",
            b"{\"model_ver\\x\xffsion\":\"2\"}",
            b"{\"model_name\":\"screen-1\",\"outputs\":[{\"data\":[\"caf\xe9\"]}]}",
            b"{\"model_name\":\"screen-1\",\"id\":\"\xed\xa0\x80\"}",
            b"{\"model_name\":\"screen-1\",\"a key that is longer than every name that is watched\xc3\":1}",
            b"{\"id\":\"\xff\",\"model_name\":\"screen-2\"}",
        ];
        for answer in answers {
            for cut in 0..answer.len() {
                let verdict = run(&e, &[&answer[..cut], &answer[cut..]]).map(|_| ());
                assert_eq!(verdict, Err(Wrong::NotUtf8), "{} cut at {cut}", answer.escape_ascii());
            }
        }
        let well = "{\"model_name\":\"screen-1\",\"id\":\"é€\u{1f600}\"}".as_bytes();
        for cut in 0..well.len() {
            assert!(run(&e, &[&well[..cut], &well[cut..]]).is_ok(), "cut at {cut}");
        }
        // A mismatch that comes before is one.
        for answer in [&b"{\"model_name\":\"screen-2\",\"id\":\"\xff\"}"[..], b"{\"a\": \xc3(}"] {
            for cut in 0..answer.len() {
                let verdict = run(&e, &[&answer[..cut], &answer[cut..]]).map(|_| ());
                assert!(matches!(verdict, Err(Wrong::Mismatch(_))), "{} cut at {cut}", answer.escape_ascii());
            }
        }
    }

    #[test]
    fn numbers_that_are_none_are_let_through() {
        let e = expected(("screen-1", "1"), ("screen", "1"));
        let json = r#"{"model_name":"screen-1","outputs":[{"data":[NaN,-Infinity,1.5e+3,null,true,"'é/#"]}]}"#;
        let (_, state) = run(&e, &[json.as_bytes()]).unwrap();
        assert!(state.is_complete());
    }

    #[test]
    fn a_wrong_name_is_told_up_to_a_bound() {
        let e = expected(("screen-1", "1"), ("screen", "1"));
        let got = |name: &str| match run(&e, &[format!("{{\"model_name\":\"{name}\"}}").as_bytes()]) {
            Err(Wrong::Mismatch(mismatch)) => mismatch.got,
            other => panic!("{other:?}"),
        };
        assert_eq!(got(&"x".repeat(64)), "x".repeat(64));
        assert_eq!(got(&"x".repeat(65)), format!("{}(cut)", "x".repeat(64)));
        assert_eq!(got(&"x".repeat(128)), format!("{}(cut)", "x".repeat(64)));
        for no_name in ["x".repeat(129), "a\\nb".into(), "a b".into(), "<b>".into(), "é".into()] {
            assert_eq!(got(&no_name), "(a text that is no name)", "{no_name}");
        }
    }

    #[test]
    fn a_blank_version_counts_as_absent_and_is_filled_in() {
        let e = expected(("screen-1", "1"), ("screen", "1"));
        for version in [r#""""#, "null"] {
            let json = format!(r#"{{"model_name":"screen-1","model_version":{version}}}"#);
            let (out, state) = run(&e, &[json.as_bytes()]).unwrap();
            assert!(state.has_model() && !state.has_version());
            assert_eq!(out, r#"{"model_name":"screen","model_version":"1"}"#);
        }
        for blank in ["", " \r\n"] {
            let (_, state) = run(&e, &[blank.as_bytes()]).unwrap();
            assert!(!state.has_model() && !state.is_complete());
        }
        let (_, state) = run(&e, &[br#"{"outputs":[]}"#]).unwrap();
        assert!(!state.has_model() && !state.has_version() && state.is_decided());
    }

    proptest! {
        #[test]
        fn chunking_changes_neither_bytes_nor_verdict(cuts in proptest::collection::vec(0usize..120, 0..6), version in "[12]") {
            let e = expected(("screen-1", "1"), ("screen", "1"));
            let json = format!(r#"{{"id":"a","model_name":"screen-1","o":[{{"d":[1,2]}}],"model_version":"{version}","z":1}}"#);
            let json = json.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(json.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut last = 0;
            for cut in cuts { chunks.push(&json[last..cut]); last = cut; }
            chunks.push(&json[last..]);
            let whole = run(&e, &[json]).map(|(text, state)| (text, state.delta()));
            let cut = run(&e, &chunks).map(|(text, state)| (text, state.delta()));
            if let Ok((text, delta)) = &whole {
                prop_assert_eq!(text.len() as i64 - json.len() as i64, *delta);
            }
            prop_assert_eq!(whole, cut);
        }
    }
}
