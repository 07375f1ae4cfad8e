//! Finds chosen string members at the top level of a JSON object while it streams by.
//!
//! The scanner keeps a few hundred bytes of state however long the text is, and looks at each byte once. It does not validate numbers: it
//! follows strings, escapes and nesting, which is all that is needed to tell a top-level member from the same name inside a payload. Keys are
//! compared after their escapes are undone, so `"model\u005fname"` is `model_name` here as it is to the client's parser (RFC 8259, section 7), and
//! without regard to case in any alphabet, as some parsers do (Go's reads `ſ` as `s`). What is not one JSON object is reported as foreign (whether
//! its strings are UTF-8 is for [`crate::utf8`] to say): another reader may see other members in it. That is so of a comma or colon of the top level that is
//! missing, doubled or out of place, of brackets that do not match, of a control character in a key, and of a byte between the values that JSON has no use
//! for, such as the quotes and comments of JSON5. Inside nested values commas and colons are not looked at: they cannot make a member of the top level.

use std::borrow::Cow;

mod strings;

use strings::{quote_or_escape, reads_as, string_end, unescape};

/// Longest value that is kept for comparison; a longer one is reported cut and flagged.
pub const MAX_VALUE: usize = 256;
const MAX_KEY: usize = 32;

/// The value of a watched member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'c> {
    /// A string, unescaped. Borrowed from the chunk where it lies in it whole and has no escapes.
    Text(Cow<'c, str>),
    /// `null`.
    Null,
    /// Anything else: a number, a literal, an array or object, or a string that is longer than [`MAX_VALUE`] or malformed.
    Other,
}

/// Something at a byte of the chunk that was fed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'c> {
    /// The value of watched key `key` begins at this offset of the chunk.
    ValueStart {
        /// Index into the watched keys.
        key: usize,
        /// Offset in the chunk.
        at: usize,
    },
    /// The value ends just before this offset of the chunk.
    ValueEnd {
        /// Index into the watched keys.
        key: usize,
        /// Offset in the chunk, one past the value's last byte.
        at: usize,
        /// What it was.
        value: Value<'c>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the text's first brace.
    Start,
    /// In the top object, where its first key or its end may come.
    First,
    /// After a comma of the top object.
    ExpectKey,
    /// Inside a top-level key.
    Key,
    /// After a top-level key, before its colon.
    Colon,
    /// After the colon, before the value.
    Before,
    /// After a value: a comma, or the end.
    After,
    /// Inside a value nobody watches.
    Skip,
    /// Inside a watched string.
    WatchedString,
    /// Inside a watched value that is not a string.
    WatchedOther,
    /// After the top object.
    Done,
    /// No JSON object, or more than one.
    Foreign,
}

/// Whether a byte matters inside of brackets: quotes, brackets, and what may not be there. Letters and signs are let through: some servers write `NaN` and
/// `Infinity`.
const fn matter() -> [bool; 256] {
    let mut table = [true; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = !(is_scalar(byte as u8) || matches!(byte as u8, b':' | b',') || is_space(byte as u8));
        byte += 1;
    }
    table
}
static MATTERS: [bool; 256] = matter();

/// What numbers and literals are made of.
const fn is_scalar(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.')
}

/// The deepest nesting that is followed, as deep as most readers go.
const DEEPEST: u32 = 128;

/// The scanner. Feed it chunks in order.
#[derive(Clone, Debug)]
pub struct Scanner {
    keys: &'static [&'static str],
    /// Of how many of them, the first ones, the values are given. Of the others it is noted that they are there.
    values: usize,
    noted: u8,
    state: State,
    /// Open arrays and objects inside the value being read.
    depth: u32,
    /// Which of them are objects, the innermost in the lowest bit.
    objects: u128,
    /// In a number or literal that is no part of another value.
    in_scalar: bool,
    in_string: bool,
    escaped: bool,
    /// A key or value that a chunk's end has cut in two, so far.
    raw: Vec<u8>,
    /// The watched key whose value comes or is being read.
    watched: Option<usize>,
    overlong: bool,
}

impl Scanner {
    /// Watches for top-level members with one of these names.
    #[must_use]
    pub fn new(keys: &'static [&'static str]) -> Self {
        Self::noting(keys, keys.len())
    }

    /// The same for the first `values` of them. Of the others, eight in all at most, nothing is given but [`Scanner::has`], and their values are passed over.
    #[must_use]
    pub fn noting(keys: &'static [&'static str], values: usize) -> Self {
        Self {
            keys,
            values,
            noted: 0,
            state: State::Start,
            depth: 0,
            objects: 0,
            in_scalar: false,
            in_string: false,
            escaped: false,
            raw: Vec::new(),
            watched: None,
            overlong: false,
        }
    }

    /// Whether the top object has been closed. What may follow is white space.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the text is not one JSON object, as far as its top level shows: then other readers may find other members in it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.state == State::Foreign
    }

    /// Whether this key, one of those whose values are not given, has come.
    #[must_use]
    pub fn has(&self, key: usize) -> bool {
        self.noted & bit(key) != 0
    }

    /// Whether the last chunk ended inside a watched value.
    #[must_use]
    pub fn in_watched_value(&self) -> bool {
        matches!(self.state, State::WatchedString | State::WatchedOther)
    }

    /// Reads on from offset `from` of `chunk` to the next event. `None` once the chunk is used up.
    pub fn next_event<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        while *from < chunk.len() {
            let event = match self.state {
                State::Start => {
                    self.start(chunk, from);
                    continue;
                }
                State::First | State::ExpectKey | State::Colon | State::After => {
                    self.between(chunk, from);
                    continue;
                }
                State::Key => {
                    self.read_key(chunk, from);
                    continue;
                }
                State::Skip => {
                    if self.skip_value(chunk, from) {
                        self.after_value(chunk, from);
                    }
                    continue;
                }
                State::Before => self.before(chunk, from),
                State::WatchedString => self.watched_string(chunk, from),
                State::WatchedOther => self.watched_other(chunk, from),
                State::Done | State::Foreign => {
                    self.after(chunk, from);
                    return None;
                }
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Nothing but white space may follow the object.
    fn after(&mut self, chunk: &[u8], from: &mut usize) {
        if chunk[*from..].iter().any(|b| !is_space(*b)) {
            self.state = State::Foreign;
        }
        *from = chunk.len();
    }

    fn start(&mut self, chunk: &[u8], from: &mut usize) {
        let byte = chunk[*from];
        *from += 1;
        // A byte order mark is passed over: parsers that accept it see the object behind it.
        self.state = match byte {
            b'{' => State::First,
            0xef | 0xbb | 0xbf => State::Start,
            byte if is_space(byte) => State::Start,
            _ => State::Foreign,
        };
    }

    /// One sign of the top object's own, and the space before it.
    fn between(&mut self, chunk: &[u8], from: &mut usize) {
        let Some(byte) = past_space(chunk, from) else { return };
        *from += 1;
        self.state = match (self.state, byte) {
            (State::First | State::ExpectKey, b'"') => return self.begin_string(State::Key),
            (State::Colon, b':') => State::Before,
            (State::After, b',') => State::ExpectKey,
            (State::First | State::After, b'}') => State::Done,
            _ => State::Foreign,
        };
    }

    /// Goes on to the next key at once where it stands as it nearly always does.
    fn after_value(&mut self, chunk: &[u8], from: &mut usize) {
        self.state = State::After;
        if took(chunk, from, b',') {
            self.state = State::ExpectKey;
            if took(chunk, from, b'"') {
                self.begin_string(State::Key);
            }
        }
    }

    fn begin_string(&mut self, state: State) {
        self.raw.clear();
        (self.overlong, self.escaped) = (false, false);
        self.state = state;
    }

    fn read_key(&mut self, chunk: &[u8], from: &mut usize) {
        let keys = self.keys;
        let found = if let Some(whole) = self.whole_string(chunk, from) {
            if has_control(whole) {
                return self.state = State::Foreign;
            }
            // Nearly always it is written as it should be, or is another key.
            let exact = keys.iter().position(|key| key.as_bytes() == whole);
            let in_case = || keys.iter().position(|key| key.as_bytes().eq_ignore_ascii_case(whole));
            if exact.is_some() || whole.is_ascii() {
                exact.or_else(in_case)
            } else {
                let Ok(key) = std::str::from_utf8(whole) else { return self.state = State::Foreign };
                keys.iter().position(|k| reads_as(key, k))
            }
        } else if self.take_string(chunk, from, MAX_KEY) {
            match unescape(&self.raw) {
                _ if has_control(&self.raw) => return self.state = State::Foreign,
                _ if self.overlong => None,
                Some(key) => keys.iter().position(|k| reads_as(&key, k)),
                None => return self.state = State::Foreign,
            }
        } else {
            return;
        };
        self.watched = found.filter(|key| *key < self.values);
        if let (Some(key), None) = (found, self.watched) {
            self.noted |= bit(key);
        }
        // As it is nearly always written.
        self.state = if took(chunk, from, b':') { State::Before } else { State::Colon };
    }

    fn before<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let byte = past_space(chunk, from)?;
        if !(matches!(byte, b'"' | b'{' | b'[') || is_scalar(byte)) {
            self.state = State::Foreign;
            return None;
        }
        (self.depth, self.in_scalar, self.in_string, self.escaped) = (0, false, false, false);
        let Some(key) = self.watched else {
            self.state = State::Skip;
            return None;
        };
        let at = *from;
        if byte == b'"' {
            *from += 1;
            self.begin_string(State::WatchedString);
        } else {
            self.begin_string(State::WatchedOther);
        }
        Some(Event::ValueStart { key, at })
    }

    fn watched_string<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let text = if let Some(whole) = self.whole_string(chunk, from) {
            std::str::from_utf8(whole).ok().filter(|t| t.len() <= MAX_VALUE * 6).map(Cow::Borrowed)
        } else if self.take_string(chunk, from, MAX_VALUE) {
            if self.overlong { None } else { unescape(&self.raw).map(Cow::Owned) }
        } else {
            return None;
        };
        let at = *from;
        self.after_value(chunk, from);
        Some(Event::ValueEnd {
            key: self.watched.unwrap_or_default(),
            at,
            value: text.map_or(Value::Other, Value::Text),
        })
    }

    fn watched_other<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let begin = *from;
        let ended = self.skip_value(chunk, from);
        for byte in &chunk[begin..*from] {
            if self.raw.len() < MAX_VALUE && !byte.is_ascii_whitespace() {
                self.raw.push(*byte);
            }
        }
        if !ended {
            return None;
        }
        let at = *from;
        let value = if self.raw == b"null" { Value::Null } else { Value::Other };
        self.after_value(chunk, from);
        Some(Event::ValueEnd { key: self.watched.unwrap_or_default(), at, value })
    }

    /// The rest of a string that lies in this chunk from its first byte to its closing quote, and has no escapes. Passes the quote.
    #[inline]
    fn whole_string<'c>(&self, chunk: &'c [u8], from: &mut usize) -> Option<&'c [u8]> {
        if !self.raw.is_empty() || self.escaped || self.overlong {
            return None;
        }
        let rest = &chunk[*from..];
        let end = quote_or_escape(rest).filter(|end| rest[*end] == b'"')?;
        *from += end + 1;
        Some(&rest[..end])
    }

    /// Copies a string's raw bytes up to its closing quote, which it passes. True when the quote was found.
    fn take_string(&mut self, chunk: &[u8], from: &mut usize, most: usize) -> bool {
        // Escapes make a raw string up to six times longer than its text.
        let most = most * 6;
        while *from < chunk.len() {
            let byte = chunk[*from];
            *from += 1;
            if !self.escaped && byte == b'"' {
                return true;
            }
            self.escaped = !self.escaped && byte == b'\\';
            if self.raw.len() < most {
                self.raw.push(byte);
            } else {
                self.overlong = true;
            }
        }
        false
    }

    /// Moves behind the value. False if the chunk ends first, or the value is none.
    fn skip_value(&mut self, chunk: &[u8], from: &mut usize) -> bool {
        // In local variables: what is behind a reference is written to memory at each step.
        let (mut at, mut depth, mut objects) = (*from, self.depth, self.objects);
        let mut in_string = std::mem::take(&mut self.in_string);
        if in_string && std::mem::take(&mut self.escaped) {
            at += 1;
        }
        let ended = loop {
            if in_string {
                match string_end(&chunk[at..]) {
                    Ok(length) => at += length,
                    Err(escaped) => {
                        (self.in_string, self.escaped) = (true, escaped);
                        break false;
                    }
                }
                in_string = false;
                if depth == 0 {
                    break true;
                }
            }
            if depth == 0 && (self.in_scalar || chunk.get(at).copied().is_some_and(is_scalar)) {
                let length = chunk[at..].iter().position(|byte| !is_scalar(*byte));
                self.in_scalar = length.is_none();
                at += length.unwrap_or_default();
                break length.is_some();
            }
            let Some((byte, length)) = chunk[at..].iter().zip(0..).find(|(byte, _)| MATTERS[usize::from(**byte)])
            else {
                break false;
            };
            at += length + 1;
            let is_object = matches!(byte, b'{' | b'}');
            match *byte {
                b'"' => in_string = true,
                b'{' | b'[' if depth < DEEPEST => {
                    (depth, objects) = (depth + 1, objects << 1 | u128::from(is_object));
                }
                b'}' | b']' if depth > 0 && (objects & 1 == 1) == is_object => {
                    (depth, objects) = (depth - 1, objects >> 1);
                    if depth == 0 {
                        break true;
                    }
                }
                _ => {
                    self.state = State::Foreign;
                    break false;
                }
            }
        };
        *from = if ended { at } else { chunk.len() };
        (self.depth, self.objects) = (depth, objects);
        ended
    }
}

/// Passes this byte, if it is the next.
#[inline]
fn took(chunk: &[u8], from: &mut usize, byte: u8) -> bool {
    let is_next = chunk.get(*from) == Some(&byte);
    *from += usize::from(is_next);
    is_next
}

/// Whether a text has a control character, which no string of JSON has. Without an early end, so that it takes many bytes at a time.
fn has_control(text: &[u8]) -> bool {
    text.iter().fold(false, |seen, byte| seen | (*byte < 0x20))
}

/// The next byte that is no white space, if it is there.
#[inline]
fn past_space(chunk: &[u8], from: &mut usize) -> Option<u8> {
    while let Some(byte) = chunk.get(*from) {
        if !is_space(*byte) {
            return Some(*byte);
        }
        *from += 1;
    }
    None
}

/// Of a key among those that are noted.
const fn bit(key: usize) -> u8 {
    if key < 8 { 1 << key } else { 0 }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests;
