//! Strict HTTP/1.1 request framing, watched on the raw bytes before a parser sees them (RFC 9112, sections 2, 5 and 6).
//!
//! A lenient parser that mends an ambiguous request (two lengths, a `Transfer-Encoding` with odd spelling, a bare line feed) may mend it
//! otherwise than the next hop does, and the difference is a smuggled request. So the gateway refuses such a head outright. [`Monitor`]
//! follows a connection's bytes from head to body to head, tells how many of them may be handed to the parser, and stops at the first
//! head that breaks a rule. Heads are handed over whole or not at all, so a refused head leaves the parser at rest between two requests.
//!
//! It does not build a request and does not decode bodies; it only knows where they end.

use std::fmt;

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The request line is not `METHOD target HTTP/1.0|1.1`.
    RequestLine,
    /// The request target is longer than its bound.
    TargetTooLong,
    /// The head is longer than its bound, or has too many fields.
    HeadTooLarge,
    /// A line ends in LF without CR, or has a CR inside.
    LineEnding,
    /// A field line is folded onto the line before it.
    Folding,
    /// A field name is empty, has a character that no name may have, or white space before the colon.
    FieldName,
    /// A field value has a control character.
    FieldValue,
    /// Both `Content-Length` and `Transfer-Encoding`.
    BothLengths,
    /// A `Content-Length` that is not one decimal number of at most 18 digits, or two that differ.
    ContentLength,
    /// A `Transfer-Encoding` that is not exactly `chunked`, comes twice, or comes with HTTP/1.0.
    TransferEncoding,
    /// A name that other software may take for `Content-Length` or `Transfer-Encoding`.
    LookAlike,
    /// `Host` is missing in HTTP/1.1, comes twice, or has a character that no host has.
    Host,
}

impl Violation {
    /// The HTTP status of the refusal.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::TargetTooLong | Self::HeadTooLarge => 431,
            _ => 400,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestLine => "the request line is malformed",
            Self::TargetTooLong => "the request target is too long",
            Self::HeadTooLarge => "the request head is too large",
            Self::LineEnding => "a line of the head does not end in CR LF",
            Self::Folding => "a field line is folded",
            Self::FieldName => "a field name is malformed",
            Self::FieldValue => "a field value has a control character",
            Self::BothLengths => "the request has both Content-Length and Transfer-Encoding",
            Self::ContentLength => "Content-Length is malformed or repeated with another value",
            Self::TransferEncoding => "Transfer-Encoding must be \"chunked\", once, in HTTP/1.1",
            Self::LookAlike => "a field name imitates Content-Length or Transfer-Encoding",
            Self::Host => "Host must be given exactly once, and be one",
        })
    }
}

/// Bounds of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Most bytes of a head, its blank line included.
    pub head: usize,
    /// Most bytes of the request target.
    pub target: usize,
    /// Most field lines.
    pub fields: usize,
}

/// Where in a request the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Between two requests.
    Idle,
    /// Some bytes of a head have come, its end has not.
    Head,
    /// In a body.
    Body,
}

/// Most empty lines before a request line. Old clients send one after a body.
const EMPTY_LINES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Sized(u64),
    ChunkSize {
        digits: u8,
        size: u64,
        extension: u16,
    },
    ChunkSizeLf(u64),
    ChunkData(u64),
    ChunkDataEnd {
        lf: bool,
    },
    Trailer {
        line: u32,
        total: u32,
    },
    TrailerLf {
        line: u32,
        total: u32,
    },
    /// Chunk framing is broken: nobody can say what the next byte is, so none is released any more.
    Broken,
}

/// Follows one connection. See the module.
#[derive(Debug)]
pub struct Monitor {
    limits: HeadLimits,
    state: State,
    heads: u64,
    /// How many bytes of an unfinished head are known not to have its end, so that a head that comes byte by byte is not searched anew each time.
    searched: usize,
}

/// What to do with bytes that were fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// This many bytes, from the front, may go to the parser.
    pub bytes: usize,
    /// Whether a head that broke a rule begins right after them.
    pub violation: Option<Violation>,
}

impl Monitor {
    /// At the start of a connection.
    #[must_use]
    pub fn new(limits: HeadLimits) -> Self {
        Self { limits, state: State::Head, heads: 0, searched: 0 }
    }

    /// Heads released so far.
    #[must_use]
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether a chunked body breaks its framing. A parser that is more lenient must not be left to go on: it would take what follows for a
    /// head that nobody has checked.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Where the connection is, given whether bytes of a head are being held back.
    #[must_use]
    pub fn phase(&self, holding: bool) -> Phase {
        match self.state {
            State::Head if holding => Phase::Head,
            State::Head => Phase::Idle,
            _ => Phase::Body,
        }
    }

    /// Looks at all bytes that are not released yet: those held back the last time, then the new ones.
    ///
    /// The bytes after [`Release::bytes`] have to be fed again, with more behind them.
    pub fn feed(&mut self, bytes: &[u8]) -> Release {
        let mut at = 0;
        while at < bytes.len() && !self.is_broken() {
            if self.state != State::Head {
                at += self.body(&bytes[at..]);
                continue;
            }
            match self.head(&bytes[at..]) {
                Ok(Some(length)) => at += length,
                Ok(None) => return Release { bytes: at, violation: None },
                Err(violation) => return Release { bytes: at, violation: Some(violation) },
            }
        }
        Release { bytes: at, violation: None }
    }

    /// The length of the head at the front, `None` if its end has not come.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Violation> {
        // Empty lines before a request line are allowed (RFC 9112, 2.2). They are held with the head, so there is a bound.
        let empty = bytes.chunks_exact(2).take(EMPTY_LINES + 1).take_while(|pair| pair == b"\r\n").count();
        if empty > EMPTY_LINES {
            return Err(Violation::RequestLine);
        }
        let skipped = empty * 2;
        let rest = &bytes[skipped..];
        // A head that does not come whole is searched for its end before it is read, so that its beginning is not read again with each piece.
        let is_whole = self.searched == 0 || has_end(rest, self.searched);
        let Some((length, read)) = is_whole.then(|| read_head(rest, &self.limits)).flatten() else {
            self.searched = rest.len();
            return self.unfinished(rest);
        };
        self.searched = 0;
        if length > self.limits.head {
            return Err(Violation::HeadTooLarge);
        }
        self.state = read?;
        self.heads += 1;
        Ok(Some(skipped + length))
    }

    /// A head without an end: refused once it is too long, or can no longer become right.
    fn unfinished(&self, rest: &[u8]) -> Result<Option<usize>, Violation> {
        if rest.len() > self.limits.head {
            return Err(Violation::HeadTooLarge);
        }
        if memchr::memmem::find(rest, b"\n\n").is_some() || rest.first() == Some(&b'\n') {
            return Err(Violation::LineEnding);
        }
        if memchr::memchr(b'\n', &rest[..rest.len().min(self.limits.target + 32)]).is_none()
            && rest.len() > self.limits.target + 32
        {
            return Err(Violation::TargetTooLong);
        }
        Ok(None)
    }

    /// Follows body bytes; returns how many of them belong to the body.
    fn body(&mut self, bytes: &[u8]) -> usize {
        let (next, used) = match self.state {
            State::Sized(left) => after_data(left, bytes.len(), State::Head, State::Sized),
            State::ChunkData(left) => {
                after_data(left, bytes.len(), State::ChunkDataEnd { lf: false }, State::ChunkData)
            }
            State::Broken | State::Head => (self.state, 0),
            _ => (self.chunk_byte(bytes[0]), 1),
        };
        self.state = next;
        used
    }

    fn chunk_byte(&self, byte: u8) -> State {
        match (self.state, byte) {
            (State::ChunkSize { digits: 1.., size, .. }, b'\r') => State::ChunkSizeLf(size),
            (State::ChunkSize { digits, size, extension: 0 }, _) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                State::ChunkSize { digits: digits + 1, size: size * 16 + u64::from(digit), extension: 0 }
            }
            (State::ChunkSize { digits: 1.., size, extension }, _)
                if byte != b'\n' && (extension > 0 || byte == b';') && extension < 1024 =>
            {
                State::ChunkSize { digits: 1, size, extension: extension + 1 }
            }
            (State::ChunkSizeLf(0), b'\n') => State::Trailer { line: 0, total: 0 },
            (State::ChunkSizeLf(size), b'\n') => State::ChunkData(size),
            (State::ChunkDataEnd { lf: false }, b'\r') => State::ChunkDataEnd { lf: true },
            (State::ChunkDataEnd { lf: true }, b'\n') => State::ChunkSize { digits: 0, size: 0, extension: 0 },
            (State::Trailer { line, total }, b'\r') => State::TrailerLf { line, total },
            (State::Trailer { line, total }, _) if byte != b'\n' && (total as usize) < self.limits.head => {
                State::Trailer { line: line + 1, total: total + 1 }
            }
            (State::TrailerLf { line: 0, .. }, b'\n') => State::Head,
            (State::TrailerLf { total, .. }, b'\n') => State::Trailer { line: 0, total },
            _ => State::Broken,
        }
    }
}

fn after_data(left: u64, available: usize, done: State, more: impl Fn(u64) -> State) -> (State, usize) {
    let used = usize::try_from(left).unwrap_or(usize::MAX).min(available);
    let left = left - used as u64;
    (if left == 0 { done } else { more(left) }, used)
}

/// What the lines of a head have said so far.
#[derive(Default)]
struct Lines {
    count: usize,
    http_11: bool,
    content_length: Option<u64>,
    chunked: bool,
    hosts: u32,
}

/// Reads a head line by line up to its blank line. Gives its length and what body follows it, or why it is refused; `None` if its end has not
/// come, whatever its lines are.
fn read_head(bytes: &[u8], limits: &HeadLimits) -> Option<(usize, Result<State, Violation>)> {
    let (mut lines, mut verdict, mut from) = (Lines::default(), Ok(()), 0);
    loop {
        let lf = from + memchr::memchr(b'\n', bytes.get(from..)?)?;
        if verdict.is_ok() {
            verdict = lines.line(&bytes[from..lf], limits);
        }
        if is_end(bytes, lf) {
            return Some((lf + 3, verdict.and_then(|()| lines.body())));
        }
        from = lf + 1;
    }
}

impl Lines {
    /// Takes the next line, without its LF.
    fn line(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), Violation> {
        let is_first = self.count == 0;
        if self.count > limits.fields {
            return Err(Violation::HeadTooLarge);
        }
        self.count += 1;
        let Some((b'\r', line)) = line.split_last() else { return Err(Violation::LineEnding) };
        if is_first {
            self.http_11 = check_request_line(line, limits)?;
            return Ok(());
        }
        self.field(line)
    }

    /// What follows the head.
    fn body(&self) -> Result<State, Violation> {
        if self.hosts > 1 || (self.http_11 && self.hosts == 0) {
            return Err(Violation::Host);
        }
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(Violation::BothLengths),
            (true, None) => Ok(State::ChunkSize { digits: 0, size: 0, extension: 0 }),
            (false, Some(0) | None) => Ok(State::Head),
            (false, Some(length)) => Ok(State::Sized(length)),
        }
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Violation> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(Violation::Folding);
        }
        // The colon is nearly always what ends a well-formed name; only where it is not, it is searched for, to say what is wrong.
        let end = line.iter().position(|byte| KINDS[usize::from(*byte)] & TOKEN == 0).filter(|end| *end > 0);
        let well_named = end.filter(|end| line[*end] == b':');
        let colon = well_named.or_else(|| memchr::memchr(b':', line)).ok_or(Violation::FieldName)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // Without an early end, so that the compiler can look at many bytes at a time.
        if value.iter().fold(false, |bad, b| bad | ((*b < 0x20) & (*b != b'\t')) | (*b == 0x7f)) {
            return Err(Violation::FieldValue);
        }
        if well_named.is_none() {
            return Err(Violation::FieldName);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.hosts += 1;
                return if all(value, HOST) { Ok(()) } else { Err(Violation::Host) };
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => return self.length(value),
            // The shortest and the longest that could be taken for one of the two lengths.
            13..=32 if matches!(folded_len(name), 13 | 16) => return self.encoding(name, value),
            _ => {}
        }
        Ok(())
    }

    fn length(&mut self, value: &[u8]) -> Result<(), Violation> {
        let length = parse_length(value).ok_or(Violation::ContentLength)?;
        if self.content_length.is_some_and(|other| other != length) {
            return Err(Violation::ContentLength);
        }
        self.content_length = Some(length);
        Ok(())
    }

    fn encoding(&mut self, name: &[u8], value: &[u8]) -> Result<(), Violation> {
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !self.http_11 || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Violation::TransferEncoding);
            }
            self.chunked = true;
        } else if imitates_length(name) {
            return Err(Violation::LookAlike);
        }
        Ok(())
    }
}

fn check_request_line(line: &[u8], limits: &HeadLimits) -> Result<bool, Violation> {
    let first = memchr::memchr(b' ', line).ok_or(Violation::RequestLine)?;
    let (method, rest) = (&line[..first], &line[first + 1..]);
    let last = memchr::memrchr(b' ', rest).ok_or(Violation::RequestLine)?;
    let (target, version) = (&rest[..last], &rest[last + 1..]);
    if target.len() > limits.target {
        return Err(Violation::TargetTooLong);
    }
    let method_ok = !method.is_empty() && method.len() <= 32 && all(method, TOKEN);
    let target_ok = is_target(method, target);
    match version {
        _ if !method_ok || !target_ok => Err(Violation::RequestLine),
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        _ => Err(Violation::RequestLine),
    }
}

/// Whether the CR LF CR LF that ends a head is there. The first `searched` bytes are known not to have all of it.
fn has_end(bytes: &[u8], searched: usize) -> bool {
    let from = searched.saturating_sub(3);
    bytes.get(from..).is_some_and(|rest| memchr::memchr_iter(b'\n', rest).any(|lf| is_end(bytes, from + lf)))
}

/// Whether the line that ends with the LF at this offset is the last before the blank line.
fn is_end(bytes: &[u8], lf: usize) -> bool {
    lf > 0 && bytes[lf - 1] == b'\r' && bytes[lf + 1..].starts_with(b"\r\n")
}

/// The four forms of RFC 9112, section 3.2, without a fragment and without characters that no URI has and parsers do not agree on.
fn is_target(method: &[u8], target: &[u8]) -> bool {
    if !all(target, TARGET) {
        return false;
    }
    match (method, target.first()) {
        (b"CONNECT", Some(_)) | (_, Some(b'/')) => true,
        (_, Some(b'*')) => target.len() == 1,
        (_, Some(_)) => has_authority(target, b"http://") || has_authority(target, b"https://"),
        (_, None) => false,
    }
}

fn has_authority(target: &[u8], scheme: &[u8]) -> bool {
    let Some((start, rest)) = target.split_at_checked(scheme.len()) else { return false };
    start.eq_ignore_ascii_case(scheme) && rest.first().is_some_and(|b| !b"/?:".contains(b))
}

/// One decimal number without sign, list or space; at most 18 digits, so that no sum of it can overflow.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Whether other software may take a field's name for one of the two that frame a body, although it is neither.
#[must_use]
pub fn imitates_length(name: &[u8]) -> bool {
    let is_one = name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding");
    !is_one && (folds_to(name, b"contentlength") || folds_to(name, b"transferencoding"))
}

fn folded_len(name: &[u8]) -> usize {
    name.iter().filter(|b| b.is_ascii_alphanumeric()).count()
}

fn folds_to(name: &[u8], plain: &[u8]) -> bool {
    let letters = name.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase);
    letters.eq(plain.iter().copied())
}

/// `tchar` of RFC 9110, section 5.6.2.
const TOKEN: u8 = 1;
/// What a request target may have: no white space, and nothing that parsers do not agree on.
const TARGET: u8 = 2;
/// What a host may have (RFC 9110, section 7.2), as far as its characters go; it may be empty.
const HOST: u8 = 4;

/// The kinds of text that a byte may be in.
static KINDS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        let plain = (byte as u8).is_ascii_alphanumeric();
        table[byte] = TARGET | if plain { TOKEN | HOST } else { 0 };
        byte += 1;
    }
    table = with(table, b"!#$%&'*+-.^_`|~", TOKEN);
    table = with(table, b"-._~%!$&'()*+;=:[]", HOST);
    let odd = b"\"#<>`";
    let mut at = 0;
    while at < odd.len() {
        table[odd[at] as usize] &= !TARGET;
        at += 1;
    }
    table
};

const fn with(mut table: [u8; 256], bytes: &[u8], kind: u8) -> [u8; 256] {
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] |= kind;
        at += 1;
    }
    table
}

fn all(bytes: &[u8], kind: u8) -> bool {
    bytes.iter().all(|byte| KINDS[usize::from(*byte)] & kind != 0)
}

#[cfg(test)]
mod tests;
