//! The connections of a port for people and tools: bounded in all and for each address, and a place that is needed is taken from who makes no use of his.
//!
//! A port with few places is shut by whoever takes them all and asks for nothing. So at the bound the oldest connection that is being answered nothing
//! has to leave: first those whose head has begun and does not end, then those that have sent nothing, then those between two requests. Only who is
//! being answered stays, and only if all are is a newcomer refused. An operator's tool from the same address as a thousand half-sent heads is let in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::admission::AdmissionLimits;
use crate::conn::{ConnState, Standing};

#[derive(Debug)]
struct Member {
    address: IpAddr,
    state: Arc<ConnState>,
    leave: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    limits: AdmissionLimits,
    next: u64,
    members: BTreeMap<u64, Member>,
}

/// The connections of one port. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Crowd(Arc<Mutex<State>>);

/// One connection's place. Dropping it gives the place back.
#[derive(Debug)]
pub struct Place {
    crowd: Arc<Mutex<State>>,
    id: u64,
    leave: Arc<Notify>,
}

impl Crowd {
    /// Nobody yet.
    #[must_use]
    pub fn new(limits: AdmissionLimits) -> Self {
        Self(Arc::new(Mutex::new(State { limits, next: 0, members: BTreeMap::new() })))
    }

    /// A place for a connection from this address, if need be that of one that has to leave. None: all that count against it are being answered.
    #[must_use]
    pub fn admit(&self, address: IpAddr, state: &Arc<ConnState>) -> Option<Place> {
        let address = address.to_canonical();
        let mut crowd = self.0.lock();
        let here = crowd.members.values().filter(|m| m.address == address).count();
        if here >= crowd.limits.per_address as usize {
            crowd.one_leaves(|m| m.address == address)?;
        } else if crowd.members.len() >= crowd.limits.total as usize {
            crowd.one_leaves(|_| true)?;
        }
        let (id, leave) = (crowd.next, Arc::new(Notify::new()));
        crowd.next += 1;
        crowd.members.insert(id, Member { address, state: state.clone(), leave: leave.clone() });
        Some(Place { crowd: self.0.clone(), id, leave })
    }

    /// How many have a place.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.lock().members.len()
    }
}

impl State {
    /// Of these, the one that makes the least use of its place, and of those the one that has for longest.
    fn one_leaves(&mut self, of: impl Fn(&Member) -> bool) -> Option<()> {
        let idle = self.members.iter().filter(|(_, m)| of(m)).filter_map(|(id, m)| match m.state.standing() {
            (Standing::Answered, _) => None,
            (standing, since) => Some((standing, since, *id)),
        });
        let (.., id) = idle.min()?;
        let member = self.members.remove(&id)?;
        member.leave.notify_one();
        Some(())
    }
}

impl Place {
    /// Ends when the place is somebody else's.
    ///
    /// Cancel safe.
    pub async fn is_lost(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.lock().members.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_codec::framing::Phase;

    fn state(phase: Phase) -> Arc<ConnState> {
        let state = Arc::new(ConnState::default());
        state.set_phase(phase);
        state
    }

    fn is_lost(place: &Place) -> bool {
        use std::future::Future;
        let mut wait = std::pin::pin!(place.is_lost());
        wait.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    fn crowd() -> Crowd {
        Crowd::new(AdmissionLimits { total: 4, per_address: 3 })
    }

    #[test]
    fn who_is_answered_stays_and_half_a_head_goes_first() {
        let (crowd, here) = (crowd(), IpAddr::from([127, 0, 0, 1]));
        let answered = state(Phase::Idle);
        let guard = answered.begin();
        let first = crowd.admit(here, &answered).unwrap();
        let silent = crowd.admit(here, &state(Phase::Idle)).unwrap();
        let half = crowd.admit(here, &state(Phase::Head)).unwrap();
        let next = crowd.admit(here, &state(Phase::Head)).unwrap();
        assert_eq!([&first, &silent, &half, &next].map(is_lost), [false, false, true, false]);
        assert_eq!(crowd.connections(), 3);
        // Of an answered request the connection is the next one's.
        let body = state(Phase::Body);
        let (second, third) = (crowd.admit(here, &body).unwrap(), crowd.admit(here, &body).unwrap());
        assert_eq!([&first, &silent, &next].map(is_lost), [false, true, true]);
        assert!(crowd.admit(here, &state(Phase::Idle)).is_none(), "all of them are at work");
        drop(guard);
        let last = crowd.admit(here, &state(Phase::Idle)).unwrap();
        assert_eq!([&first, &second, &third, &last].map(is_lost), [true, false, false, false]);
        drop((first, second, third, last));
        assert_eq!(crowd.connections(), 0);
    }

    #[test]
    fn an_address_at_its_bound_costs_no_other_its_place() {
        let crowd = crowd();
        let [a, b]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let other = crowd.admit(b, &state(Phase::Head)).unwrap();
        let many: Vec<Place> = (0..9).map(|_| crowd.admit(a, &state(Phase::Head)).unwrap()).collect();
        assert!(!is_lost(&other) && many.iter().filter(|place| is_lost(place)).count() == 6);
        // The port is full: of all addresses, whoever has made no use of it for longest.
        let third = crowd.admit([10, 0, 0, 3].into(), &state(Phase::Head)).unwrap();
        assert!(is_lost(&other) && !is_lost(&third));
    }
}
