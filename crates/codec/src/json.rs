//! Finds chosen string members at the top level of a JSON object while it streams by.
//!
//! The scanner keeps a few hundred bytes of state however long the text is, and looks at each byte once. It does not validate numbers: it
//! follows strings, escapes and nesting, which is all that is needed to tell a top-level member from the same name inside a payload. Keys are
//! compared after their escapes are undone, so `"model\u005fname"` is `model_name` here as it is to the client's parser (RFC 8259, section 7), and
//! without regard to case in any alphabet, as some parsers do (Go's reads `ſ` as `s`). What is not one JSON object is reported as foreign (whether
//! its strings are UTF-8 is for [`crate::utf8`] to say), and so is a byte between the values that JSON has no use for, such as the quotes and comments of JSON5: another reader may see other members in it.

use std::borrow::Cow;

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
    /// In the top object, where a key may come.
    ExpectKey,
    /// Inside a top-level key.
    Key,
    /// After a top-level key, before its value.
    Colon,
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

/// What a byte is while a value is skipped: nothing, a comma, which matters outside of all brackets only, or what matters anywhere: quotes,
/// brackets, and what may not be there. Letters and signs are let through: some servers write `NaN` and `Infinity`.
const fn weights() -> [u8; 256] {
    let mut table = [2; 256];
    let mut byte = 0;
    while byte < 128 {
        let plain = matches!(byte as u8, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.' | b':');
        if plain || is_space(byte as u8) {
            table[byte] = 0;
        }
        byte += 1;
    }
    table[b',' as usize] = 1;
    table
}
static WEIGHTS: [u8; 256] = weights();

/// The scanner. Feed it chunks in order.
#[derive(Clone, Debug)]
pub struct Scanner {
    keys: &'static [&'static str],
    state: State,
    /// Open arrays and objects inside the value being read.
    depth: u32,
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
        Self {
            keys,
            state: State::Start,
            depth: 0,
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
                State::ExpectKey => {
                    self.expect_key(chunk, from);
                    continue;
                }
                State::Key => {
                    self.read_key(chunk, from);
                    continue;
                }
                State::Skip => {
                    if self.skip_value(chunk, from) {
                        self.state = State::ExpectKey;
                    }
                    continue;
                }
                State::Colon => self.colon(chunk, from),
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
            b'{' => State::ExpectKey,
            0xef | 0xbb | 0xbf => State::Start,
            byte if is_space(byte) => State::Start,
            _ => State::Foreign,
        };
    }

    fn expect_key(&mut self, chunk: &[u8], from: &mut usize) {
        while let Some(byte) = chunk.get(*from) {
            *from += 1;
            match byte {
                b'"' => return self.begin_string(State::Key),
                b'}' => return self.state = State::Done,
                b',' => {}
                byte if is_space(*byte) => {}
                _ => return self.state = State::Foreign,
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
        if let Some(whole) = self.whole_string(chunk, from) {
            // Nearly always it is written as it should be, or is another key.
            let exact = keys.iter().position(|key| key.as_bytes() == whole);
            let in_case = || keys.iter().position(|key| key.as_bytes().eq_ignore_ascii_case(whole));
            self.watched = if exact.is_some() || whole.is_ascii() {
                exact.or_else(in_case)
            } else {
                let Ok(key) = std::str::from_utf8(whole) else { return self.state = State::Foreign };
                keys.iter().position(|k| reads_as(key, k))
            };
        } else if self.take_string(chunk, from, MAX_KEY) {
            self.watched = match unescape(&self.raw) {
                _ if self.overlong => None,
                Some(key) => keys.iter().position(|k| reads_as(&key, k)),
                None => return self.state = State::Foreign,
            };
        } else {
            return;
        }
        self.state = State::Colon;
    }

    fn colon<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let mut byte = *chunk.get(*from)?;
        while byte == b':' || is_space(byte) {
            *from += 1;
            byte = *chunk.get(*from)?;
        }
        (self.depth, self.in_string, self.escaped) = (0, false, false);
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
        self.state = State::ExpectKey;
        Some(Event::ValueEnd {
            key: self.watched.unwrap_or_default(),
            at: *from,
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
        self.state = State::ExpectKey;
        let value = if self.raw == b"null" { Value::Null } else { Value::Other };
        Some(Event::ValueEnd { key: self.watched.unwrap_or_default(), at: *from, value })
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

    /// Moves to the `,` or `}` that ends the value (not past it). False if the chunk ends first.
    fn skip_value(&mut self, chunk: &[u8], from: &mut usize) -> bool {
        // In local variables: what is behind a reference is written to memory at each step.
        let (mut at, mut depth) = (*from, self.depth);
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
            }
            let least = if depth == 0 { 1 } else { 2 };
            let Some((byte, length)) =
                chunk[at..].iter().zip(0..).find(|(byte, _)| WEIGHTS[usize::from(**byte)] >= least)
            else {
                break false;
            };
            at += length;
            match *byte {
                b'"' => in_string = true,
                b'{' | b'[' => depth = depth.saturating_add(1),
                // A comma, or the end of what the value is a part of.
                b',' | b'}' | b']' if depth == 0 => break true,
                b'}' | b']' => depth -= 1,
                _ => {
                    self.state = State::Foreign;
                    break false;
                }
            }
            at += 1;
        };
        *from = if ended { at } else { chunk.len() };
        self.depth = depth;
        ended
    }
}

/// The length of the rest of a string, its closing quote included. An error if the quote has not come: whether the next byte is escaped.
fn string_end(rest: &[u8]) -> Result<usize, bool> {
    let mut at = 0;
    loop {
        let Some(found) = rest.get(at..).and_then(quote_or_escape) else { return Err(at > rest.len()) };
        at += found + 1;
        if rest[at - 1] == b'"' {
            return Ok(at);
        }
        // Past what is escaped.
        at += 1;
    }
}

/// Where the first quote or backslash is. The beginning is looked at by eight bytes at a time in place: most strings are shorter than what a
/// call of `memchr` costs.
#[inline]
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    const MOST: usize = 32;
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
    const ESCAPES: u64 = u64::from_le_bytes([b'\\'; 8]);
    // The high bit of each byte that is zero, and of some above the lowest that is; the lowest is what counts.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk::<8>().filter(|_| at < MOST) {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ QUOTES) | zeros(word ^ ESCAPES);
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let rest = &bytes[at..];
    let found = match rest.len() {
        0..8 => rest.iter().position(|byte| matches!(byte, b'"' | b'\\')),
        _ => memchr::memchr2(b'"', b'\\', rest),
    };
    Some(at + found?)
}

/// Whether some reader takes a key for this one: equal without regard to case, with the letters beside ASCII that fold into it.
fn reads_as(key: &str, watched: &str) -> bool {
    if key.is_ascii() {
        return key.eq_ignore_ascii_case(watched);
    }
    let fold = |c: char| match c {
        'ı' | 'İ' => 'i',
        c => c.to_uppercase().next().unwrap_or(c).to_ascii_lowercase(),
    };
    let fold = |c: char| if c == '\u{212a}' { 'k' } else { fold(c) };
    key.chars().map(fold).eq(watched.chars().map(fold))
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Undoes JSON string escapes. `None` if the text is not a valid JSON string.
fn unescape(raw: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(raw).ok()?;
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => out.push(unicode_escape(&mut chars)?),
            c @ ('"' | '\\' | '/') => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}

fn unicode_escape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let high = hex4(chars)?;
    if !(0xd800..0xdc00).contains(&high) {
        return char::from_u32(high);
    }
    if chars.next()? != '\\' || chars.next()? != 'u' {
        return None;
    }
    let low = hex4(chars)?;
    if !(0xdc00..0xe000).contains(&low) {
        return None;
    }
    char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
}

fn hex4(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |n, _| Some(n * 16 + chars.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests;
