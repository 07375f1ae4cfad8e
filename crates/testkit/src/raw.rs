//! A raw HTTP/1.1 client: exact bytes out, in exact segments, and answers read by the framing rules of RFC 9112, section 6.3.
//!
//! It never repairs anything: what a server sent wrongly (a body after 304, two lengths, junk between answers) is seen as such.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time for one read step. A server that is silent for longer is reported, not waited for.
const SILENCE: Duration = Duration::from_secs(20);
/// Largest head, and largest body, that is read.
const MAX_HEAD: usize = 256 * 1024;
const MAX_BODY: usize = 256 * 1024 * 1024;
/// Pause between two segments: long enough for the first to arrive by itself, as the kernel may join what waits.
const SEGMENT_GAP: Duration = Duration::from_millis(20);

/// Why no answer could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawError {
    /// The connection ended (or was reset) before a first byte of an answer.
    Closed,
    /// The connection ended inside an answer; the text tells where.
    Cut(String),
    /// Nothing came for a long time.
    Silent,
    /// The bytes are no HTTP/1.1 answer.
    Malformed(String),
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed before an answer"),
            Self::Cut(place) => write!(f, "closed inside an answer: {place}"),
            Self::Silent => write!(f, "silent for {SILENCE:?}"),
            Self::Malformed(what) => write!(f, "malformed: {what}"),
        }
    }
}

impl std::error::Error for RawError {}

/// How the length of a body was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// None by rule: 1xx, 204, 304, an answer to HEAD.
    None,
    /// `content-length`.
    Length(usize),
    /// `transfer-encoding: chunked`.
    Chunked,
    /// Until the connection ends.
    UntilClose,
}

/// One answer as read from the wire.
#[derive(Debug, Clone)]
pub struct RawAnswer {
    /// Status code.
    pub status: u16,
    /// Header lines in order; names as sent.
    pub headers: Vec<(String, String)>,
    /// Body, without its framing.
    pub body: Vec<u8>,
    /// How its length was told.
    pub framing: Framing,
}

impl RawAnswer {
    /// All values of a header, in order.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// The first value of a header, or `""`.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or("")
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One TCP connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    /// Read from the socket and not yet part of an answer.
    pending: Vec<u8>,
}

impl RawClient {
    /// Connects.
    ///
    /// # Panics
    /// When the connection is refused.
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::try_connect(addr).await.unwrap_or_else(|e| panic!("cannot connect to {addr}: {e}"))
    }

    /// Connects, where a refusal is part of the test.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn try_connect(addr: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        let _ = stream.set_nodelay(true);
        Ok(Self { stream, pending: Vec::new() })
    }

    /// Writes bytes in one call. A peer that has closed is not an error here: the next read tells.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Writes each part as a TCP segment of its own.
    pub async fn write_segments(&mut self, parts: &[&[u8]]) {
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                tokio::time::sleep(SEGMENT_GAP).await;
            }
            self.write(part).await;
        }
    }

    /// Closes the sending direction; answers can still be read.
    pub async fn half_close(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Closes the connection with a reset instead of an orderly end.
    pub fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    /// Reads one answer. `method` is the request's, as an answer to HEAD has no body. A 1xx answer is returned like any other: read again
    /// for the final one.
    ///
    /// # Errors
    /// [`RawError`]. Bytes past the answer stay for the next call.
    pub async fn answer(&mut self, method: &str) -> Result<RawAnswer, RawError> {
        let end = loop {
            if let Some(at) = find(&self.pending, b"\r\n\r\n") {
                break at + 4;
            }
            if self.pending.len() > MAX_HEAD {
                return Err(RawError::Malformed("head without an end".into()));
            }
            if !self.fill().await? {
                let empty = self.pending.is_empty();
                return Err(if empty { RawError::Closed } else { RawError::Cut("in the head".into()) });
            }
        };
        let head: Vec<u8> = self.pending.drain(..end).collect();
        let (status, headers) = parse_head(&head)?;
        let framing = framing(method, status, &headers)?;
        let body = match framing {
            Framing::None => Vec::new(),
            Framing::Length(length) => self.exactly(length).await?,
            Framing::Chunked => self.chunked().await?,
            Framing::UntilClose => self.rest().await?,
        };
        Ok(RawAnswer { status, headers, body, framing })
    }

    /// Reads until the peer closes, and returns all bytes.
    ///
    /// # Errors
    /// [`RawError::Silent`] when it neither sends nor closes.
    pub async fn rest(&mut self) -> Result<Vec<u8>, RawError> {
        while self.fill().await? {
            if self.pending.len() > MAX_BODY {
                return Err(RawError::Malformed("endless body".into()));
            }
        }
        Ok(std::mem::take(&mut self.pending))
    }

    /// Whether the peer closes within `timeout` without a further byte.
    pub async fn closes_within(&mut self, timeout: Duration) -> bool {
        self.pending.is_empty() && matches!(tokio::time::timeout(timeout, self.fill()).await, Ok(Ok(false)))
    }

    /// Whether bytes have been read that no answer has taken yet.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.pending.is_empty()
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, RawError> {
        if length > MAX_BODY {
            return Err(RawError::Malformed(format!("content-length {length}")));
        }
        while self.pending.len() < length {
            if !self.fill().await? {
                return Err(RawError::Cut(format!("{} of {length} body bytes", self.pending.len())));
            }
        }
        Ok(self.pending.drain(..length).collect())
    }

    async fn line(&mut self) -> Result<String, RawError> {
        loop {
            if let Some(at) = find(&self.pending, b"\r\n") {
                let line: Vec<u8> = self.pending.drain(..at + 2).take(at).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.pending.len() > MAX_HEAD || !self.fill().await? {
                return Err(RawError::Cut("in a chunk's line".into()));
            }
        }
    }

    async fn chunked(&mut self) -> Result<Vec<u8>, RawError> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let digits = line.split(';').next().unwrap_or("").trim();
            let size =
                usize::from_str_radix(digits, 16).map_err(|_| RawError::Malformed(format!("chunk size {line:?}")))?;
            if size == 0 {
                break;
            }
            body.extend(self.exactly(size).await?);
            if self.exactly(2).await? != b"\r\n" {
                return Err(RawError::Malformed("no line end after a chunk".into()));
            }
        }
        while !self.line().await?.is_empty() {}
        Ok(body)
    }

    /// Reads some bytes; `false` at the end of the connection.
    async fn fill(&mut self) -> Result<bool, RawError> {
        self.pending.reserve(16 * 1024);
        match tokio::time::timeout(SILENCE, self.stream.read_buf(&mut self.pending)).await {
            Err(_) => Err(RawError::Silent),
            Ok(Ok(0) | Err(_)) => Ok(false),
            Ok(Ok(_)) => Ok(true),
        }
    }
}

/// Position of the first `needle`.
#[must_use]
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// Header lines of a head, after its first line.
pub(crate) fn parse_headers(text: &str) -> Result<Vec<(String, String)>, RawError> {
    let lines = text.split("\r\n").skip(1).take_while(|l| !l.is_empty());
    lines
        .map(|line| match line.split_once(':') {
            Some((name, value)) => Ok((name.to_owned(), value.trim().to_owned())),
            None => Err(RawError::Malformed(format!("header line {line:?}"))),
        })
        .collect()
}

fn parse_head(head: &[u8]) -> Result<(u16, Vec<(String, String)>), RawError> {
    let text = String::from_utf8_lossy(head);
    let first = text.split("\r\n").next().unwrap_or("");
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    let Some(status) = status else {
        return Err(RawError::Malformed(format!("status line {first:?}")));
    };
    Ok((status, parse_headers(&text)?))
}

fn framing(method: &str, status: u16, headers: &[(String, String)]) -> Result<Framing, RawError> {
    let values = |name: &str| {
        headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect::<Vec<_>>()
    };
    let lengths = values("content-length");
    let encodings = values("transfer-encoding");
    if lengths.len() > 1 || (!lengths.is_empty() && !encodings.is_empty()) {
        return Err(RawError::Malformed(format!("lengths {lengths:?} with encodings {encodings:?}")));
    }
    if method.eq_ignore_ascii_case("HEAD") || status < 200 || status == 204 || status == 304 {
        return Ok(Framing::None);
    }
    if let Some(encoding) = encodings.first() {
        return if encoding.eq_ignore_ascii_case("chunked") {
            Ok(Framing::Chunked)
        } else {
            Err(RawError::Malformed(format!("transfer-encoding {encoding}")))
        };
    }
    match lengths.first() {
        None => Ok(Framing::UntilClose),
        Some(length) => {
            length.parse().map(Framing::Length).map_err(|_| RawError::Malformed(format!("content-length {length}")))
        }
    }
}
