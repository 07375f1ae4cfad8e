//! Places of streams of events: bounded in all and for each address.
//!
//! A stream keeps its connection for as long as its client likes, and an address may have so many connections to the port. The bound of its streams is well
//! below that one, so that whoever follows roll-outs, or means harm, shuts the port to nobody at the same address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use http::StatusCode;
use http::header::RETRY_AFTER;
use parking_lot::Mutex;

use super::problem::Problem;

/// The most streams of events at a time.
const STREAMS: usize = 64;
/// The most of one address. The port has 64 connections for each.
const PER_ADDRESS: usize = 16;

#[derive(Debug, Default)]
struct Open {
    all: usize,
    /// Only addresses that have one, so it has no more entries than there are streams.
    by_address: BTreeMap<IpAddr, usize>,
}

/// The streams that are open. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams(Arc<Mutex<Open>>);

/// One stream's place. Dropping it gives the place back.
#[derive(Debug)]
pub(super) struct StreamPlace {
    open: Arc<Mutex<Open>>,
    address: Option<IpAddr>,
}

impl Streams {
    /// A place for a stream to this address, if it is known.
    ///
    /// # Errors
    /// 429: this address has all that it may have. 503: all places are taken.
    pub(super) fn admit(&self, address: Option<IpAddr>) -> Result<StreamPlace, Problem> {
        let mut open = self.0.lock();
        let here = address.and_then(|address| open.by_address.get(&address)).copied().unwrap_or(0);
        if here >= PER_ADDRESS {
            let detail = format!(
                "{PER_ADDRESS} streams of events are open to this address, and it may have no more: close one, or ask for the roll-out itself"
            );
            let told = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail);
            return Err(told.header(RETRY_AFTER, HeaderValue::from_static("1")));
        }
        if open.all >= STREAMS {
            return Err(Problem::unavailable("too many streams of events are open"));
        }
        open.all += 1;
        if let Some(address) = address {
            open.by_address.insert(address, here + 1);
        }
        drop(open);
        Ok(StreamPlace { open: self.0.clone(), address })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.all = open.all.saturating_sub(1);
        let Some(address) = self.address else { return };
        match open.by_address.get_mut(&address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.by_address.remove(&address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_bound_and_costs_no_other_a_place() {
        let streams = Streams::default();
        let [a, b] = [1, 2].map(|n| Some(IpAddr::from([10, 0, 0, n])));
        let mut of_a: Vec<_> = (0..PER_ADDRESS).map(|_| streams.admit(a).unwrap()).collect();
        let refused = streams.admit(a).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (429, "too_many_streams"));
        let of_b = streams.admit(b).unwrap();
        of_a.pop();
        of_a.push(streams.admit(a).unwrap());
        assert!(streams.admit(a).is_err());
        let rest: Vec<_> = (of_a.len() + 1..STREAMS).map(|_| streams.admit(None).unwrap()).collect();
        assert_eq!(streams.admit(b).unwrap_err().status.as_u16(), 503);
        drop((of_a, of_b, rest));
        assert_eq!(streams.0.lock().all, 0);
        assert!(streams.0.lock().by_address.is_empty());
    }
}
