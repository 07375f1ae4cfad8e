//! A connection to a replica that bounds what comes before an answer's head.
//!
//! A server may send any number of interim answers (RFC 9110, 15.2), and the parser takes them one after the other without a word. One that sends them
//! without an end would keep a worker from all others' requests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::net::TcpStream;

use crate::tap::{Tap, Tapped};

/// Most bytes until an answer's head has been read: that head, with what of the body comes in the same reads, and thousands of interim answers.
const MOST: u64 = 1 << 20;
/// No head is waited for.
const ANY: u64 = u64::MAX;
/// Nothing is waited for: the connection is kept for later.
const NOTHING: u64 = u64::MAX - 1;
/// The same, and something came.
const STRAY: u64 = u64::MAX - 2;
/// How a server begins that only says that it has waited long enough, as some do before they close (RFC 9110, 15.5.9).
const BORED: [&[u8]; 2] = [b"HTTP/1.1 408", b"HTTP/1.0 408"];

/// How many bytes a connection may still read. Shared by the connection and whoever uses it.
#[derive(Debug)]
pub(crate) struct Patience(AtomicU64);

impl Default for Patience {
    fn default() -> Self {
        Self(AtomicU64::new(ANY))
    }
}

impl Patience {
    /// A request is being sent.
    pub(crate) fn begin(&self) {
        self.0.store(MOST, Relaxed);
    }

    /// The head of its answer is there.
    pub(crate) fn end(&self) {
        self.0.store(ANY, Relaxed);
    }

    /// The answer has been read to its end.
    pub(crate) fn rest(&self) {
        self.0.store(NOTHING, Relaxed);
    }

    /// Whether something came that nobody had asked for.
    pub(crate) fn has_strayed(&self) -> bool {
        self.0.load(Relaxed) == STRAY
    }

    fn takes(&self, fresh: &[u8]) -> bool {
        let left = self.0.load(Relaxed);
        if left == ANY || (fresh.is_empty() && left >= STRAY) {
            return true;
        }
        if left >= STRAY {
            let is_bored = BORED.iter().any(|word| fresh.starts_with(word));
            self.0.store(if is_bored { NOTHING } else { STRAY }, Relaxed);
            return false;
        }
        let after = left.checked_sub(fresh.len() as u64);
        self.0.store(after.unwrap_or(0), Relaxed);
        after.is_some()
    }
}

/// See the module.
pub(crate) type Patient = Tapped<TcpStream, Arc<Patience>>;

impl Tap for Arc<Patience> {
    fn read(&mut self, fresh: &[u8]) -> io::Result<()> {
        if self.takes(fresh) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "too much before the head of the answer, or before its request"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_asked_for_is_not_taken_and_told() {
        let takes = |patience: &Patience, bytes: &[u8]| patience.takes(bytes);
        let patience = Patience::default();
        assert!(takes(&patience, b"x"), "a connection begins in use");
        patience.begin();
        assert!(takes(&patience, &[0; 1000]) && !takes(&patience, &vec![0; MOST as usize]));
        patience.begin();
        patience.end();
        assert!(takes(&patience, &vec![0; 2 * MOST as usize]));
        patience.rest();
        assert!(takes(&patience, b"") && !patience.has_strayed(), "the end is no answer");
        assert!(!takes(&patience, b"HTTP/1.1 408 Request Timeout\r\n") && !patience.has_strayed());
        assert!(!takes(&patience, b"HTTP/1.1 200 OK\r\n") && patience.has_strayed());
        patience.begin();
        assert!(!patience.has_strayed() && takes(&patience, b"x"));
    }
}
