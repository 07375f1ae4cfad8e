//! From a replica's host and port to addresses. A failing or lying name service never empties what is known.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long addresses are used before the name is looked up again.
const FRESH: Duration = Duration::from_secs(30);
/// The same after a look-up that failed while addresses are known, and how long others go on with those while one looks.
const RETRY: Duration = Duration::from_secs(5);

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
    /// When the next look-up is due. None: at once.
    look_at: Option<Instant>,
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

    /// An address to connect to. A look-up that fails, finds nothing or takes long leaves the last good addresses in use: once some are known,
    /// one caller in a while waits for at most half of `most`, which leaves it time to connect, and nobody else waits at all.
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
        let look = async { Ok(tokio::net::lookup_host((&*self.host, self.port)).await?.take(16).collect()) };
        self.address_from(look, most).await
    }

    async fn address_from(
        &self,
        look: impl Future<Output = io::Result<Vec<SocketAddr>>>,
        most: Duration,
    ) -> io::Result<SocketAddr> {
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        if let Some(patience) = self.claim(most) {
            match tokio::time::timeout(patience, look).await {
                Ok(Ok(found)) => self.keep(found),
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

    /// How long the caller is to look the name up. None: it is not due, or somebody else does it.
    fn claim(&self, most: Duration) -> Option<Duration> {
        let mut known = self.known.lock();
        let now = Instant::now();
        if known.look_at.is_some_and(|at| now < at) {
            return None;
        }
        if known.addresses.is_empty() {
            return Some(most);
        }
        known.look_at = Some(now + RETRY);
        Some(most / 2)
    }

    fn keep(&self, found: Vec<SocketAddr>) {
        if found.is_empty() {
            return;
        }
        let mut known = self.known.lock();
        known.look_at = Some(Instant::now() + FRESH);
        known.addresses = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(1);

    fn ip(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    fn refused() -> io::Error {
        io::Error::other("SERVFAIL")
    }

    async fn ask(target: &Target, found: io::Result<Vec<SocketAddr>>) -> io::Result<SocketAddr> {
        target.address_from(std::future::ready(found), MOST).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_name_service_leaves_the_last_good_addresses_in_use() {
        let target = Target::new("replica.test", 80);
        assert!(ask(&target, Err(refused())).await.is_err(), "nothing is known yet");
        assert_eq!(ask(&target, Ok(vec![ip(1)])).await.unwrap(), ip(1));
        for _ in 0..20 {
            tokio::time::advance(FRESH).await;
            assert_eq!(ask(&target, Err(refused())).await.unwrap(), ip(1));
            tokio::time::advance(FRESH).await;
            assert_eq!(ask(&target, Ok(Vec::new())).await.unwrap(), ip(1), "an empty answer is no answer");
        }
        tokio::time::advance(RETRY).await;
        assert_eq!(ask(&target, Ok(vec![ip(2)])).await.unwrap(), ip(2), "and it heals");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_name_service_costs_one_caller_half_its_time_and_the_others_nothing() {
        let target = Target::new("replica.test", 80);
        assert!(ask(&target, Ok(vec![ip(1)])).await.is_ok());
        tokio::time::advance(FRESH).await;
        let begun = Instant::now();
        let one = target.address_from(std::future::pending(), MOST);
        let other = async {
            let found = target.address_from(std::future::pending(), MOST).await;
            (found.unwrap(), begun.elapsed())
        };
        let (one, other) = tokio::join!(one, other);
        assert_eq!((one.unwrap(), begun.elapsed()), (ip(1), MOST / 2));
        assert_eq!(other, (ip(1), Duration::ZERO));
        let again = target.address_from(std::future::pending(), MOST).await;
        assert_eq!((again.unwrap(), begun.elapsed()), (ip(1), MOST / 2), "it is not asked again at once");
    }

    #[tokio::test(start_paused = true)]
    async fn several_addresses_take_turns() {
        let target = Target::new("replica.test", 80);
        assert_eq!(ask(&target, Ok(vec![ip(1), ip(2)])).await.unwrap(), ip(1));
        assert_eq!(ask(&target, Err(refused())).await.unwrap(), ip(2));
        assert_eq!(ask(&target, Err(refused())).await.unwrap(), ip(1));
    }
}
