//! Finds chosen string members at the top level of a JSON object while it streams by.
//!
//! The scanner keeps a few hundred bytes of state however long the text is, and looks at each byte once. It does not validate: it follows
//! strings, escapes and nesting, which is all that is needed to tell a top-level member from the same name inside a payload. Keys are
//! compared after their escapes are undone, so `"model\u005fname"` is `model_name` here as it is to the client's parser (RFC 8259, section 7), and
//! without regard to case, as some parsers do. What is not one JSON object in UTF-8 is reported as foreign: another reader may see other members in it.

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

/// Bytes that matter while a value is skipped.
const fn structural() -> [bool; 256] {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table[b',' as usize] = true;
    table
}
static STRUCTURAL: [bool; 256] = structural();

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

    /// Whether nothing but white space has come.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.state == State::Start
    }

    /// Whether the text is not one JSON object in UTF-8, as far as its top level shows: then other readers may find other members in it.
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
                State::Start => self.start(chunk, from),
                State::ExpectKey => self.expect_key(chunk, from),
                State::Key => self.read_key(chunk, from),
                State::Colon => self.colon(chunk, from),
                State::Skip => self.skip(chunk, from),
                State::WatchedString => self.watched_string(chunk, from),
                State::WatchedOther => self.watched_other(chunk, from),
                State::Done => {
                    if chunk[*from..].iter().any(|b| !is_space(*b)) {
                        self.state = State::Foreign;
                    }
                    *from = chunk.len();
                    None
                }
                State::Foreign => {
                    *from = chunk.len();
                    None
                }
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    fn start<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let byte = chunk[*from];
        *from += 1;
        // A byte order mark is passed over: parsers that accept it see the object behind it.
        self.state = match byte {
            b'{' => State::ExpectKey,
            0xef | 0xbb | 0xbf => State::Start,
            byte if is_space(byte) => State::Start,
            _ => State::Foreign,
        };
        None
    }

    fn expect_key<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let byte = chunk[*from];
        *from += 1;
        match byte {
            b'"' => self.begin_string(State::Key),
            b'}' => self.state = State::Done,
            b',' => {}
            byte if is_space(byte) => {}
            _ => self.state = State::Foreign,
        }
        None
    }

    fn begin_string(&mut self, state: State) {
        self.raw.clear();
        (self.overlong, self.escaped) = (false, false);
        self.state = state;
    }

    fn read_key<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let keys = self.keys;
        if let Some(whole) = self.whole_string(chunk, from) {
            self.watched = keys.iter().position(|key| key.as_bytes().eq_ignore_ascii_case(whole));
        } else if self.take_string(chunk, from, MAX_KEY) {
            let key = if self.overlong { None } else { unescape(&self.raw) };
            self.watched = key.and_then(|key| keys.iter().position(|k| k.eq_ignore_ascii_case(&key)));
        } else {
            return None;
        }
        self.state = State::Colon;
        None
    }

    fn colon<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        let byte = chunk[*from];
        if matches!(byte, b':' | b' ' | b'\t' | b'\r' | b'\n') {
            *from += 1;
            return None;
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
    fn whole_string<'c>(&self, chunk: &'c [u8], from: &mut usize) -> Option<&'c [u8]> {
        if !self.raw.is_empty() || self.escaped || self.overlong {
            return None;
        }
        let rest = &chunk[*from..];
        let end = memchr::memchr2(b'"', b'\\', rest).filter(|end| rest[*end] == b'"')?;
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

    fn skip<'c>(&mut self, chunk: &'c [u8], from: &mut usize) -> Option<Event<'c>> {
        if self.skip_value(chunk, from) {
            self.state = State::ExpectKey;
        }
        None
    }

    /// Moves to the `,` or `}` that ends the value (not past it). False if the chunk ends first.
    fn skip_value(&mut self, chunk: &[u8], from: &mut usize) -> bool {
        while *from < chunk.len() {
            if self.in_string {
                self.skip_string(chunk, from);
                continue;
            }
            let byte = chunk[*from];
            if !STRUCTURAL[byte as usize] {
                *from += 1;
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b',' if self.depth == 0 => return true,
                b'}' | b']' if self.depth == 0 => return true,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            *from += 1;
        }
        false
    }

    fn skip_string(&mut self, chunk: &[u8], from: &mut usize) {
        if self.escaped {
            self.escaped = false;
            *from += 1;
            return;
        }
        let rest = &chunk[*from..];
        let Some(i) = memchr::memchr2(b'"', b'\\', rest) else {
            *from = chunk.len();
            return;
        };
        if rest[i] == b'"' {
            self.in_string = false;
        } else {
            self.escaped = true;
        }
        *from += i + 1;
    }
}

fn is_space(byte: u8) -> bool {
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEYS: &[&str] = &["model_name", "model_version"];

    fn scan<'c>(chunks: &[&'c [u8]]) -> Vec<(usize, Value<'c>)> {
        let mut scanner = Scanner::new(KEYS);
        let mut found = Vec::new();
        for chunk in chunks {
            let mut from = 0;
            while let Some(event) = scanner.next_event(chunk, &mut from) {
                if let Event::ValueEnd { key, value, .. } = event {
                    found.push((key, value));
                }
            }
        }
        found
    }

    fn text(s: &str) -> Value<'_> {
        Value::Text(Cow::Borrowed(s))
    }

    #[test]
    fn only_top_level_members_count() {
        let cases: [(&str, Vec<(usize, Value<'_>)>); 10] = [
            (r#"{"model_name":"m","model_version":"7"}"#, vec![(0, text("m")), (1, text("7"))]),
            (r#"{"outputs":[{"model_name":"x"}],"model_name":"m"}"#, vec![(0, text("m"))]),
            (r#"{"id":"\"model_name\":\"x\"","model_name":"m"}"#, vec![(0, text("m"))]),
            (r#"{"p":{"model_name":"x"}}"#, vec![]),
            (r#"{"model\u005fname":"m"}"#, vec![(0, text("m"))]),
            (r#"{"model_version": null ,"a":1}"#, vec![(1, Value::Null)]),
            (r#"{"model_version": 7}"#, vec![(1, Value::Other)]),
            (r#"{"model_version": {"a":[1,2]},"model_name":"m"}"#, vec![(1, Value::Other), (0, text("m"))]),
            (r#"[{"model_name":"m"}]"#, vec![]),
            (r#"{"model_name":"a","model_name":"b"}"#, vec![(0, text("a")), (0, text("b"))]),
        ];
        for (json, want) in cases {
            assert_eq!(scan(&[json.as_bytes()]), want, "{json}");
        }
    }

    #[test]
    fn offsets_frame_the_value() {
        let json = br#"{"id":1, "model_name" : "ab", "x":2}"#;
        let mut scanner = Scanner::new(KEYS);
        let mut from = 0;
        let Some(Event::ValueStart { at: start, .. }) = scanner.next_event(json, &mut from) else { panic!("no start") };
        let Some(Event::ValueEnd { at: end, .. }) = scanner.next_event(json, &mut from) else { panic!("no end") };
        assert_eq!(&json[start..end], br#""ab""#);
    }

    #[test]
    fn an_overlong_value_is_not_taken_for_its_beginning() {
        let json = format!(r#"{{"model_name":"{}"}}"#, "m".repeat(MAX_VALUE * 6 + 1));
        assert_eq!(scan(&[json.as_bytes()]), vec![(0, Value::Other)]);
    }

    proptest! {
        #[test]
        fn cuts_between_chunks_change_nothing(cut in 0usize..90, cut2 in 0usize..90) {
            let json = r#"{"a":[1,{"b":"\\\"}"}],"model_name":"m\u00e9\n","c":{"d":[]},"model_version":"12"}"#.as_bytes();
            let (a, b) = (cut.min(cut2).min(json.len()), cut.max(cut2).min(json.len()));
            prop_assert_eq!(scan(&[&json[..a], &json[a..b], &json[b..]]), scan(&[json]));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            scan(&[&bytes]);
        }

        #[test]
        fn strings_are_read_as_a_json_library_reads_them(name in "\\PC{0,40}") {
            let json = serde_json::json!({ "x": [&name, {"model_name": 1}], "model_name": &name }).to_string();
            let want = if json.len() > MAX_VALUE { return Ok(()) } else { vec![(0, text(&name))] };
            prop_assert_eq!(scan(&[json.as_bytes()]), want);
        }
    }
}
