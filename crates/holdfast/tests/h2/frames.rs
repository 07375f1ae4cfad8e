//! Single HTTP/2 frames (RFC 9113), written and read as they are: for what no well-behaved client would send.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const ENHANCE_YOUR_CALM: u32 = 11;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

/// One frame as read.
#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    fn word(&self, at: usize) -> u32 {
        self.payload.get(at..at + 4).map_or(0, |b| u32::from_be_bytes(b.try_into().unwrap()))
    }

    /// The error code of a RST_STREAM or GOAWAY.
    pub fn code(&self) -> u32 {
        self.word(if self.kind == GOAWAY { 4 } else { 0 })
    }

    /// The last stream of a GOAWAY.
    pub fn last_stream(&self) -> u32 {
        self.word(0)
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Fields as literals without indexing and without Huffman coding (RFC 7541, 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        text(&mut out, name.as_bytes());
        text(&mut out, value.as_bytes());
    }
    out
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(short @ 0..=126) => out.push(short),
        _ => {
            out.push(127);
            let mut left = bytes.len() - 127;
            while left >= 128 {
                out.push(u8::try_from(left % 128).unwrap() | 128);
                left /= 128;
            }
            out.push(u8::try_from(left).unwrap());
        }
    }
    out.extend_from_slice(bytes);
}

/// The fields of an inference, with more of them.
pub fn infer<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "gateway"),
        (":path", "/v2/models/screen/infer"),
        ("x-tenant", "acme"),
    ];
    fields.extend_from_slice(more);
    fields
}

/// A raw HTTP/2 connection.
pub struct RawH2 {
    pub stream: TcpStream,
    pending: Vec<u8>,
}

impl RawH2 {
    /// Connects, says the preface and empty settings, and takes the server's.
    pub async fn connect(addr: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let hello = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&hello).await.unwrap();
        let mut this = Self { stream, pending: Vec::new() };
        let first = this.next().await.unwrap();
        assert_eq!((first.kind, first.flags), (SETTINGS, 0), "the server's settings come first");
        this.write(&frame(SETTINGS, 1, 0, &[])).await;
        this
    }

    /// Connects and says these bytes.
    pub async fn bare(addr: SocketAddr, bytes: &[u8]) -> Self {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        Self { stream, pending: Vec::new() }
    }

    /// Writes; a peer that has closed is not an error here.
    pub async fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next frame; None at the end of the connection. Panics when nothing comes for long.
    pub async fn next(&mut self) -> Option<Frame> {
        self.next_within(Duration::from_secs(15)).await
    }

    /// The same, with another time for its bytes to come.
    pub async fn next_within(&mut self, most: Duration) -> Option<Frame> {
        self.fill(9, most).await?;
        let length =
            usize::try_from(u32::from_be_bytes([0, self.pending[0], self.pending[1], self.pending[2]])).unwrap();
        self.fill(9 + length, most).await?;
        let bytes: Vec<u8> = self.pending.drain(..9 + length).collect();
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap()) & 0x7fff_ffff;
        Some(Frame { kind: bytes[3], flags: bytes[4], stream, payload: bytes[9..].to_vec() })
    }

    /// Reads on for so long. Whether the connection has ended.
    pub async fn is_over_within(&mut self, most: Duration) -> bool {
        let end = tokio::time::Instant::now() + most;
        loop {
            match tokio::time::timeout_at(end, self.stream.read_buf(&mut self.pending)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) => return true,
                Err(_) => return false,
            }
        }
    }

    async fn fill(&mut self, wanted: usize, most: Duration) -> Option<()> {
        while self.pending.len() < wanted {
            let read = tokio::time::timeout(most, self.stream.read_buf(&mut self.pending)).await;
            match read.expect("the server neither sends nor closes") {
                Ok(1..) => {}
                Ok(0) | Err(_) => return None,
            }
        }
        Some(())
    }

    /// Reads until a frame that `wanted` accepts; the frames before it are passed over. None at the end of the connection.
    pub async fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }

    /// Reads to the end of the connection.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}
