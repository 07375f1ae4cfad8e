//! How fast addresses open connections. Asked by the one task that accepts.

use std::net::IpAddr;

use parking_lot::Mutex;

use holdfast_quota::caps::Attempts;
use holdfast_quota::limit::Allowance;
use holdfast_types::Mono;

/// Addresses that are told apart, at about 100 bytes each. When there are more that are not quiet, new ones share one bucket.
const MOST: usize = 65_536;

/// See the module.
#[derive(Default)]
pub struct AddressAttempts(Mutex<Option<Attempts>>);

impl AddressAttempts {
    /// Counts a connection.
    ///
    /// # Errors
    /// The address has opened too many; in how many seconds it may open one more.
    pub fn attempt(&self, now: Mono, address: IpAddr, allowance: Allowance) -> Result<(), u64> {
        let mut kept = self.0.lock();
        let limit = match allowance {
            Allowance::Unlimited => {
                *kept = None;
                return Ok(());
            }
            Allowance::Nothing => return Err(60),
            Allowance::Limited(limit) => limit,
        };
        let attempts = kept.get_or_insert_with(|| Attempts::new(limit, MOST, now));
        attempts.change(limit, now);
        if attempts.attempt(now, number(address)) {
            return Ok(());
        }
        let wait = limit.rate.time_for(1).unwrap_or_default();
        Err((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }
}

/// Of IPv6 the network: one host has as many addresses in it as it likes.
fn number(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => (u128::from(address) & !u128::from(u64::MAX)) | (1 << 63),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_quota::limit::Limit;

    #[test]
    fn a_network_is_one_address_and_a_change_keeps_what_was_used() {
        let attempts = AddressAttempts::default();
        let limit = |burst| Allowance::Limited(Limit::per_second(1, burst));
        let from = |text: &str| text.parse::<IpAddr>().unwrap();
        let now = Mono(1);
        assert_eq!(attempts.attempt(now, from("2001:db8::1"), limit(2)), Ok(()));
        assert_eq!(attempts.attempt(now, from("2001:db8::2"), limit(2)), Ok(()));
        assert_eq!(attempts.attempt(now, from("2001:db8::3"), limit(2)), Err(1));
        assert_eq!(attempts.attempt(now, from("2001:db8:0:1::1"), limit(2)), Ok(()), "another network");
        assert_eq!(attempts.attempt(now, from("127.0.0.1"), limit(2)), Ok(()));
        assert_eq!(attempts.attempt(now, from("::ffff:127.0.0.1"), limit(2)), Ok(()), "the same, written otherwise");
        assert_eq!(attempts.attempt(now, from("127.0.0.1"), limit(2)), Err(1));
        assert_eq!(attempts.attempt(now, from("2001:db8::1"), limit(3)), Ok(()), "two of three are used");
        assert_eq!(attempts.attempt(now, from("2001:db8::1"), limit(3)), Err(1));
        assert_eq!(attempts.attempt(now, from("127.0.0.2"), Allowance::Nothing), Err(60));
        assert_eq!(attempts.attempt(now, from("127.0.0.1"), Allowance::Unlimited), Ok(()));
    }
}
