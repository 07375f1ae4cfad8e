//! From a replica's host and port to addresses. A failing or lying name service never empties what is known.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long addresses are used before the name is looked up again.
const FRESH: Duration = Duration::from_secs(30);

/// A host and port, with the addresses last found for it.
#[derive(Debug)]
pub struct Target {
    host: Box<str>,
    port: u16,
    literal: Option<SocketAddr>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    looked_up: Option<Instant>,
    /// Where in the list the next connection begins, so that one dead address of several is passed over.
    next: usize,
}

impl Target {
    /// A host that is an IP address or a DNS name.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        let literal = host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
        Self { host: host.into(), port, literal, known: Mutex::default() }
    }

    /// An address to connect to. A look-up that fails, finds nothing or takes longer than `most` leaves the last good addresses in use.
    ///
    /// # Errors
    /// The name has never been found.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn address(&self, most: Duration) -> io::Result<SocketAddr> {
        if let Some(address) = self.literal {
            return Ok(address);
        }
        let stale = self.known.lock().looked_up.is_none_or(|at| at.elapsed() >= FRESH);
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        if stale {
            match tokio::time::timeout(most, tokio::net::lookup_host((&*self.host, self.port))).await {
                Ok(Ok(found)) => self.keep(found.take(16).collect()),
                Ok(Err(why)) => error = why,
                Err(_) => error = io::Error::new(io::ErrorKind::TimedOut, "the name service did not answer"),
            }
        }
        let mut known = self.known.lock();
        let count = known.addresses.len();
        let picked = known.addresses.get(known.next % count.max(1)).copied();
        known.next = known.next.wrapping_add(1);
        picked.ok_or(error)
    }

    fn keep(&self, found: Vec<SocketAddr>) {
        let mut known = self.known.lock();
        known.looked_up = Some(Instant::now());
        if !found.is_empty() {
            known.addresses = found;
        }
    }
}
