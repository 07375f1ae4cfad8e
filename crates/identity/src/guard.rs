//! A bound on the bad tokens of one address, asked before any signature is checked: a check costs 20 to 100 us, which whoever sends tokens decides about.
//!
//! A token bucket for each address, and only for addresses that have sent a bad token. Of a full bucket nothing is kept. IPv6 addresses count by
//! their /64, which is what one host is given.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use holdfast_types::Mono;

/// See the module.
#[derive(Debug)]
pub struct BadTokens {
    /// The time in which one bad token is forgiven. Zero: there is no bound.
    each: Duration,
    burst: u32,
    /// When what an address owes will be forgiven.
    owed: BTreeMap<u128, Mono>,
    most: usize,
}

impl BadTokens {
    /// `burst` bad tokens at once, and `rate` a second; zero: no bound. At most so many addresses are remembered.
    #[must_use]
    pub fn new(rate: u32, burst: u32, most: usize) -> Self {
        let each = Duration::from_secs(1).checked_div(rate).unwrap_or_default();
        Self { each, burst: burst.max(1), owed: BTreeMap::new(), most: most.max(1) }
    }

    /// Whether a token of this address is looked at.
    ///
    /// # Errors
    /// How long it is to wait.
    pub fn admit(&self, now: Mono, from: IpAddr) -> Result<(), Duration> {
        let Some(owed) = self.owed.get(&place(from)).filter(|_| !self.each.is_zero()) else { return Ok(()) };
        let room = self.each.saturating_mul(self.burst - 1);
        let over = owed.since(now).saturating_sub(room);
        if over.is_zero() { Ok(()) } else { Err(over) }
    }

    /// Notes a bad token.
    pub fn bad(&mut self, now: Mono, from: IpAddr) {
        if self.each.is_zero() {
            return;
        }
        let place = place(from);
        if !self.owed.contains_key(&place) && self.owed.len() >= self.most {
            self.make_room(now);
        }
        let room = self.each.saturating_mul(self.burst);
        let owed = self.owed.entry(place).or_insert(now);
        // Debts do not grow over what one burst is: an address that is shared is free again soon after the flood.
        *owed = (*owed).max(now).after(self.each).min(now.after(room));
    }

    /// Forgets who owes nothing; if that is nobody, who owes the least.
    fn make_room(&mut self, now: Mono) {
        self.owed.retain(|_, owed| *owed > now);
        if self.owed.len() < self.most {
            return;
        }
        let least = self.owed.iter().min_by_key(|(_, owed)| **owed).map(|(place, _)| *place);
        least.map(|place| self.owed.remove(&place));
    }

    /// How many addresses are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owed.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }
}

fn place(from: IpAddr) -> u128 {
    match from.to_canonical() {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6) >> 64 | 1 << 127,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::ZERO.after(Duration::from_millis(millis))
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut guard = BadTokens::new(2, 3, 100);
        let (bad, good): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..3 {
            assert_eq!(guard.admit(at(0), bad), Ok(()));
            guard.bad(at(0), bad);
        }
        assert_eq!(guard.admit(at(0), bad), Err(Duration::from_millis(500)));
        assert_eq!(guard.admit(at(0), good), Ok(()));
        assert_eq!(guard.admit(at(500), bad), Ok(()));
        guard.bad(at(500), bad);
        assert!(guard.admit(at(501), bad).is_err());
        assert_eq!(guard.admit(at(60_000), bad), Ok(()));
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert!(guard.admit(at(501), mapped).is_err(), "one address in two forms");
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_remembered() {
        let mut guard = BadTokens::new(1, 2, 10);
        let worst: IpAddr = "2001:db8:ffff::1".parse().unwrap();
        (0..5).for_each(|_| guard.bad(at(0), worst));
        for host in 0..1_000u16 {
            guard.bad(at(1), format!("2001:db8:{host:x}::1").parse().unwrap());
        }
        assert_eq!(guard.len(), 10);
        assert!(guard.admit(at(1), worst).is_err());
        let neighbour: IpAddr = "2001:db8:ffff::2".parse().unwrap();
        assert!(guard.admit(at(1), neighbour).is_err(), "an IPv6 host has its whole /64");
        let mut none = BadTokens::new(0, 1, 10);
        (0..100).for_each(|_| none.bad(at(0), worst));
        assert!(none.admit(at(0), worst).is_ok() && none.is_empty());
    }
}
