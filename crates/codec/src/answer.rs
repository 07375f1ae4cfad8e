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

mod id;

pub use id::{AnswerId, Compared};

const KEYS: &[&str] = &["model_name", "model_version", "id", "outputs", "name"];
const NAME: usize = 0;
const VERSION: usize = 1;
const ID: usize = 2;
/// From here on it is only noted that they are there.
const OUTPUTS: usize = 3;
/// Of metadata, which has `outputs` as well.
const METADATA: usize = 4;

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
    id: Option<AnswerId>,
    /// Members that may be read as `id`.
    ids: u8,
}

impl Default for Checker {
    fn default() -> Self {
        Self {
            scanner: Scanner::noting(KEYS, OUTPUTS),
            utf8: Utf8::default(),
            seen: [Seen::Not; 2],
            held: Vec::new(),
            delta: 0,
            id: None,
            ids: 0,
        }
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
        // Of a value that was cut in two some of it is held.
        let mut start = if self.held.is_empty() { None } else { Some(0) };
        while let Some(event) = self.scanner.next_event(chunk, &mut from) {
            match event {
                Event::ValueStart { key: ID, .. } => {}
                // Two of them, which may differ in case only, are none.
                Event::ValueEnd { key: ID, value, .. } => {
                    self.id = if self.ids == 0 { AnswerId::of(&value) } else { None };
                    self.ids = self.ids.saturating_add(1);
                }
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

    /// Whether it has had the shape of an inference's answer so far: outputs, and not the name by which metadata tells its model.
    #[must_use]
    pub fn is_inference(&self) -> bool {
        self.scanner.has(OUTPUTS) && (self.has_model() || !self.scanner.has(METADATA))
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

    /// The `id` that it has named so far, if it can be compared.
    #[must_use]
    pub fn id(&self) -> Option<&AnswerId> {
        self.id.as_ref()
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

/// Whether a refusal's body, where it is a JSON object, names another model or version at its top level. One that names nothing, or is something else, does
/// not: it is no judgement then.
#[must_use]
pub fn names_another(expected: &Expected, body: &[u8]) -> bool {
    let (mut scanner, mut from) = (Scanner::new(&KEYS[..ID]), 0);
    while let Some(event) = scanner.next_event(body, &mut from) {
        let Event::ValueEnd { key, value, .. } = event else { continue };
        let (want, client) = match key {
            NAME => (&expected.upstream_model, &expected.model),
            _ => (&expected.upstream_version, &expected.version),
        };
        let same = match &value {
            Value::Text(text) => text.is_empty() || text == want || text == client,
            Value::Null => true,
            Value::Other => false,
        };
        if !same {
            return true;
        }
    }
    false
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
mod tests;
