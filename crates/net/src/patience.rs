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

    fn takes(&self, bytes: usize) -> bool {
        let left = self.0.load(Relaxed);
        if left == ANY {
            return true;
        }
        let after = left.checked_sub(bytes as u64);
        self.0.store(after.unwrap_or(0), Relaxed);
        after.is_some()
    }
}

/// See the module.
pub(crate) type Patient = Tapped<TcpStream, Arc<Patience>>;

impl Tap for Arc<Patience> {
    fn read(&mut self, fresh: &[u8]) -> io::Result<()> {
        if self.takes(fresh.len()) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "too much before the head of the answer"))
    }
}
