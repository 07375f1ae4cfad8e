//! From a replica's host and port to addresses. A failing or lying name service does not empty what is known, for as long as that may still be right.

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
/// How long addresses are used on after the first look-up that failed. They may belong to somebody else by then.
const STALE: Duration = Duration::from_secs(60 * 60);

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
    /// The first look-up that failed since the last good one.
    failing_since: Option<Instant>,
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
    /// one caller in a while waits for at most half of `most`, which leaves it time to connect, and nobody else waits at all. That ends an hour
    /// after the first of a row of look-ups that failed: from then on every caller waits for a fresh answer.
    ///
    /// # Errors
    /// The name has never been found, or not for too long.
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
            let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "the name service did not answer"));
            match tokio::time::timeout(patience, look).await.unwrap_or_else(late) {
                Ok(found) => self.keep(found),
                Err(why) => error = self.failed(why),
            }
        }
        let mut known = self.known.lock();
        if known.is_stale(Instant::now()) {
            let why = format!(
                "the name has not been found for so long that its last addresses are not used any more: {error}"
            );
            return Err(io::Error::new(error.kind(), why));
        }
        let count = known.addresses.len();
        let picked = known.addresses.get(known.next % count.max(1)).copied();
        known.next = known.next.wrapping_add(1);
        picked.ok_or(error)
    }

    /// How long the caller is to look the name up. None: it is not due, or somebody else does it.
    fn claim(&self, most: Duration) -> Option<Duration> {
        let mut known = self.known.lock();
        let now = Instant::now();
        if known.addresses.is_empty() || known.is_stale(now) {
            return Some(most);
        }
        if known.look_at.is_some_and(|at| now < at) {
            return None;
        }
        known.look_at = Some(now + RETRY);
        Some(most / 2)
    }

    /// For how long look-ups of the name have failed: zero while they do not. None for an address, which is never looked up.
    #[must_use]
    pub fn failing(&self) -> Option<Duration> {
        if self.literal.is_some() {
            return None;
        }
        let since = self.known.lock().failing_since;
        Some(since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    fn keep(&self, found: Vec<SocketAddr>) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if found.is_empty() {
            known.failing_since.get_or_insert(now);
            return;
        }
        known.look_at = Some(now + FRESH);
        known.failing_since = None;
        known.addresses = found;
    }

    fn failed(&self, why: io::Error) -> io::Error {
        self.known.lock().failing_since.get_or_insert_with(Instant::now);
        why
    }
}

impl Known {
    /// Whether there are addresses that may not be used any more.
    fn is_stale(&self, now: Instant) -> bool {
        !self.addresses.is_empty() && self.failing_since.is_some_and(|since| now >= since + STALE)
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
    async fn addresses_that_cannot_be_confirmed_are_used_for_a_bounded_time_only() {
        let target = Target::new("replica.test", 80);
        assert!(ask(&target, Ok(vec![ip(1)])).await.is_ok());
        // Nobody asks for a day: what was not looked up did not fail.
        tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
        assert_eq!(target.failing(), Some(Duration::ZERO));
        for failure in 0..4 {
            let found = if failure % 2 == 0 { Err(refused()) } else { Ok(Vec::new()) };
            assert_eq!(ask(&target, found).await.unwrap(), ip(1));
            assert_eq!(target.failing(), Some(STALE / 4 * failure));
            tokio::time::advance(STALE / 4).await;
        }
        let error = ask(&target, Err(refused())).await.unwrap_err().to_string();
        assert!(error.contains("last addresses") && error.contains("SERVFAIL"), "{error}");
        let error = target.address_from(std::future::pending(), MOST).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(ask(&target, Ok(Vec::new())).await.is_err());
        // Everybody looks, and the first good answer is used at once, by all.
        let (one, other) = tokio::join!(ask(&target, Err(refused())), ask(&target, Ok(vec![ip(2)])));
        assert!(one.is_err());
        assert_eq!(other.unwrap(), ip(2));
        assert_eq!(ask(&target, Err(refused())).await.unwrap(), ip(2));
        assert_eq!(target.failing(), Some(Duration::ZERO));
        assert_eq!(Target::new("10.0.0.1", 80).failing(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_found_now_and_then_stays_in_use() {
        let target = Target::new("replica.test", 80);
        assert!(ask(&target, Ok(vec![ip(1)])).await.is_ok());
        for last in 2..20 {
            tokio::time::advance(STALE * 3 / 4).await;
            assert_eq!(ask(&target, Err(refused())).await.unwrap(), ip(last - 1));
            tokio::time::advance(RETRY).await;
            assert_eq!(ask(&target, Ok(vec![ip(last)])).await.unwrap(), ip(last));
        }
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
