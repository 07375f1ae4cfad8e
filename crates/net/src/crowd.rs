//! The connections of a port for people and tools: bounded in all and for each address, and a place that is needed is taken from who makes no use of his.
//!
//! A port with few places is shut by whoever takes them all and asks for nothing. So at the bound the oldest connection that is being answered nothing
//! has to leave: first those whose head has begun and does not end, then those that have sent nothing, then those between two requests. Only who is
//! being answered stays, and only if all are is a newcomer refused. An operator's tool from the same address as a thousand half-sent heads is let in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::admission::AdmissionLimits;

/// How often a connection's deadline is looked at: a head that begins brings it forward.
const LOOK: Duration = Duration::from_secs(1);

/// What use a connection makes of its place, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// A head has begun and does not end.
    HalfSent,
    /// It has sent nothing.
    Silent,
    /// It is between two requests.
    Between,
    /// A request is answered.
    Answered,
}

#[derive(Debug)]
struct Doings {
    answering: u32,
    half: bool,
    begun: bool,
    since: Instant,
}

/// What one connection does.
#[derive(Debug)]
pub struct Conduct(Mutex<Doings>);

/// One request being answered.
#[derive(Debug)]
pub struct Answering(Arc<Conduct>);

impl Default for Conduct {
    fn default() -> Self {
        Self(Mutex::new(Doings { answering: 0, half: false, begun: false, since: Instant::now() }))
    }
}

impl Conduct {
    /// Bytes have come. While nothing is answered they begin a head.
    pub fn reads(&self) {
        let mut doings = self.0.lock();
        if doings.answering == 0 && !doings.half {
            (doings.half, doings.since) = (true, Instant::now());
        }
    }

    /// A head is whole: its request is answered until the guard is dropped.
    #[must_use]
    pub fn answers(self: &Arc<Self>) -> Answering {
        let mut doings = self.0.lock();
        (doings.half, doings.begun) = (false, true);
        doings.answering += 1;
        drop(doings);
        Answering(self.clone())
    }

    fn standing(&self) -> (Standing, Instant) {
        let doings = self.0.lock();
        let standing = match *doings {
            Doings { answering: 1.., .. } => Standing::Answered,
            Doings { half: true, .. } => Standing::HalfSent,
            Doings { begun: false, .. } => Standing::Silent,
            _ => Standing::Between,
        };
        (standing, doings.since)
    }

    /// Ends when a head, or the first byte of the first, takes longer than `head`, or the next request longer than `idle`.
    ///
    /// Cancel safe.
    pub async fn is_late(&self, head: Duration, idle: Duration) {
        loop {
            let (standing, since) = self.standing();
            let time = match standing {
                Standing::HalfSent | Standing::Silent => head,
                Standing::Between => idle,
                Standing::Answered => Duration::MAX,
            };
            let left = time.saturating_sub(since.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut doings = self.0.0.lock();
        doings.answering = doings.answering.saturating_sub(1);
        doings.since = Instant::now();
    }
}

#[derive(Debug)]
struct Member {
    address: IpAddr,
    conduct: Arc<Conduct>,
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
    pub fn admit(&self, address: IpAddr, conduct: &Arc<Conduct>) -> Option<Place> {
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
        crowd.members.insert(id, Member { address, conduct: conduct.clone(), leave: leave.clone() });
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
        let idle = self.members.iter().filter(|(_, m)| of(m)).filter_map(|(id, m)| match m.conduct.standing() {
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

    fn silent() -> Arc<Conduct> {
        Arc::default()
    }

    fn half() -> Arc<Conduct> {
        let conduct = silent();
        conduct.reads();
        conduct
    }

    fn is_lost(place: &Place) -> bool {
        use std::future::Future;
        let mut wait = std::pin::pin!(place.is_lost());
        wait.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    fn crowd() -> Crowd {
        Crowd::new(AdmissionLimits { total: 4, per_address: 3 })
    }

    #[tokio::test]
    async fn who_is_answered_stays_and_half_a_head_goes_first() {
        let (crowd, here) = (crowd(), IpAddr::from([127, 0, 0, 1]));
        let answered = half();
        let guard = answered.answers();
        // Of a request's body nothing is a head.
        answered.reads();
        let first = crowd.admit(here, &answered).unwrap();
        let quiet = crowd.admit(here, &silent()).unwrap();
        let began = crowd.admit(here, &half()).unwrap();
        let next = crowd.admit(here, &half()).unwrap();
        assert_eq!([&first, &quiet, &began, &next].map(is_lost), [false, false, true, false]);
        assert_eq!(crowd.connections(), 3);
        let others = [silent(), silent()];
        let guards = [others[0].answers(), others[1].answers()];
        let (second, third) = (crowd.admit(here, &others[0]).unwrap(), crowd.admit(here, &others[1]).unwrap());
        assert_eq!([&first, &quiet, &next].map(is_lost), [false, true, true]);
        assert!(crowd.admit(here, &silent()).is_none(), "all of them are being answered");
        drop(guard);
        let last = crowd.admit(here, &silent()).unwrap();
        assert_eq!([&first, &second, &third, &last].map(is_lost), [true, false, false, false]);
        drop((first, second, third, last, guards));
        assert_eq!(crowd.connections(), 0);
    }

    #[tokio::test]
    async fn an_address_at_its_bound_costs_no_other_its_place() {
        let crowd = crowd();
        let [a, b]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let other = crowd.admit(b, &half()).unwrap();
        let many: Vec<Place> = (0..9).map(|_| crowd.admit(a, &half()).unwrap()).collect();
        assert_eq!((is_lost(&other), many.iter().filter(|place| is_lost(place)).count()), (false, 6));
        // The port is full: of all addresses, whoever has made no use of it for longest.
        let third = crowd.admit([10, 0, 0, 3].into(), &half()).unwrap();
        assert!(is_lost(&other) && !is_lost(&third));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_and_an_answer_has_any() {
        let (head, idle) = (Duration::from_secs(5), Duration::from_secs(30));
        // Timers are rounded up to milliseconds.
        let took = |begun: Instant, time: Duration| (time..time + LOOK / 2).contains(&begun.elapsed());
        let (begun, quiet) = (Instant::now(), silent());
        quiet.is_late(head, idle).await;
        assert!(took(begun, head));
        let conduct = half();
        let guard = conduct.answers();
        assert!(tokio::time::timeout(idle * 9, conduct.is_late(head, idle)).await.is_err());
        drop(guard);
        let begun = Instant::now();
        conduct.is_late(head, idle).await;
        assert!(took(begun, idle));
        conduct.reads();
        conduct.is_late(head, idle).await;
        assert!(took(begun, idle + head));
    }
}
