//! Which replica of the subset serves this request: the least loaded that holds the version.
//!
//! Load is what this gateway counts where it sends, plus what the replica reports beyond that; the count leads, because a report is late. A
//! replica that has just come back has a share that grows (slow start), so an empty counter attracts no herd. Nothing outside the given
//! candidates is ever chosen. No allocation, no division.

use holdfast_types::Weight;

/// Full share: [`Candidate::ease`] of a replica that is not in slow start.
pub const FULL_SHARE: u16 = 1024;

/// What is known about one replica of the subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// It holds the version, proven.
    pub holds: bool,
    /// It is up: neither ejected nor down.
    pub usable: bool,
    /// It asked for a pause (429, 503) that is not over. It still holds: no load is started elsewhere because of it.
    pub cooling: bool,
    /// Requests in flight, counted here.
    pub in_flight: u32,
    /// Requests that the replica reports beyond those counted here (other gateways' requests, its own queue).
    pub reported: u32,
    /// Its share.
    pub weight: Weight,
    /// The most requests in flight from here. None: no bound.
    pub concurrency: Option<u32>,
    /// Its slow-start share per 1024; above [`FULL_SHARE`] counts as full.
    pub ease: u16,
}

impl Candidate {
    /// An idle holder of weight 1.
    pub const IDLE: Self = Self {
        holds: true,
        usable: true,
        cooling: false,
        in_flight: 0,
        reported: 0,
        weight: Weight(1),
        concurrency: None,
        ease: FULL_SHARE,
    };

    /// May take a request now.
    fn free(&self) -> bool {
        self.serves() && !self.cooling && self.concurrency.is_none_or(|bound| self.in_flight < bound)
    }

    fn serves(&self) -> bool {
        self.holds && self.usable && self.weight.0 > 0
    }

    /// Load after taking this request, and capacity to divide it by.
    fn load(&self) -> (u128, u128) {
        let ease = self.ease.clamp(1, FULL_SHARE);
        (u128::from(self.in_flight) + u128::from(self.reported) + 1, u128::from(self.weight.0) * u128::from(ease))
    }
}

/// What to do with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Send it to the candidate at this index.
    Serve(usize),
    /// There are holders, but each is at its bound or cooling off: wait or shed, load nothing.
    Busy,
    /// No usable candidate holds the version.
    NoHolder,
}

/// The least loaded holder; among equals, the one that `random` picks.
#[must_use]
pub fn choose(candidates: &[Candidate], random: u64) -> Choice {
    let mut best: Option<(u128, u128)> = None;
    let mut ties = 0u64;
    let mut held = false;
    for candidate in candidates {
        held |= candidate.serves();
        if !candidate.free() {
            continue;
        }
        let (load, capacity) = candidate.load();
        // load / capacity against best, cross-multiplied.
        match best.map(|(l, c)| (load * c).cmp(&(l * capacity))) {
            None | Some(std::cmp::Ordering::Less) => (best, ties) = (Some((load, capacity)), 1),
            Some(std::cmp::Ordering::Equal) => ties += 1,
            Some(std::cmp::Ordering::Greater) => {}
        }
    }
    let Some((load, capacity)) = best else { return if held { Choice::Busy } else { Choice::NoHolder } };
    let equal = |c: &Candidate| {
        let (l, k) = c.load();
        c.free() && l * capacity == load * k
    };
    let nth = usize::try_from(random.checked_rem(ties).unwrap_or(0)).unwrap_or(0);
    let picked = candidates.iter().enumerate().filter(|(_, c)| equal(c)).nth(nth);
    picked.map_or(Choice::NoHolder, |(index, _)| Choice::Serve(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDLE: Candidate = Candidate::IDLE;

    #[test]
    fn decisions_at_the_boundary() {
        let none = Candidate { holds: false, ..IDLE };
        let down = Candidate { usable: false, ..IDLE };
        let cooling = Candidate { cooling: true, ..IDLE };
        let full = Candidate { in_flight: 4, concurrency: Some(4), ..IDLE };
        let nearly = Candidate { in_flight: 3, concurrency: Some(4), ..IDLE };
        let weightless = Candidate { weight: Weight(0), ..IDLE };
        let heavy = Candidate { in_flight: 5, weight: Weight(3), ..IDLE };
        let light = Candidate { in_flight: 1, ..IDLE };
        let lighter_but_reported = Candidate { in_flight: 0, reported: 9, ..IDLE };
        let easing = Candidate { ease: 102, ..IDLE };
        for (name, candidates, want) in [
            ("nobody", vec![], Choice::NoHolder),
            ("no holder", vec![none, none], Choice::NoHolder),
            ("the holder is down", vec![none, down], Choice::NoHolder),
            ("weight 0 never serves", vec![weightless], Choice::NoHolder),
            ("at its bound", vec![full, none], Choice::Busy),
            ("cooling off", vec![cooling, none], Choice::Busy),
            ("one below its bound", vec![full, nearly], Choice::Serve(1)),
            ("least in flight", vec![nearly, light], Choice::Serve(1)),
            ("6/3 equals 2/1: random 0 takes the first", vec![heavy, light], Choice::Serve(0)),
            ("a report corrects", vec![lighter_but_reported, light], Choice::Serve(1)),
            ("slow start: 1/0.1 is more than 4/1", vec![easing, nearly], Choice::Serve(1)),
            ("only holders, however idle the others", vec![none, nearly], Choice::Serve(1)),
        ] {
            assert_eq!(choose(&candidates, 0), want, "{name}");
        }
        assert_eq!(choose(&[heavy, light], 1), Choice::Serve(1), "random breaks the tie");
    }

    #[test]
    fn loads_follow_weights() {
        let mut candidates = [1u32, 2, 5].map(|w| Candidate { weight: Weight(w), ..IDLE });
        for i in 0..800u64 {
            let Choice::Serve(at) = choose(&candidates, i) else { panic!("all are free") };
            candidates[at].in_flight += 1;
        }
        assert_eq!(candidates.map(|c| c.in_flight), [100, 200, 500]);
    }

    #[test]
    fn a_returned_replica_attracts_no_herd() {
        // Two replicas have 30 in flight each; the third has restarted with an empty counter and a tenth of its share.
        let mut candidates = [IDLE; 3];
        candidates[0].in_flight = 30;
        candidates[1].in_flight = 30;
        candidates[2].ease = FULL_SHARE / 10;
        for i in 0..30 {
            let Choice::Serve(at) = choose(&candidates, i) else { panic!("all are free") };
            candidates[at].in_flight += 1;
        }
        assert!(candidates[2].in_flight <= 5, "{candidates:?}");
    }

    fn candidate() -> impl Strategy<Value = Candidate> {
        let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2));
        (flags, 0u32..6, 0u32..3, 0u32..4, prop::option::of(0u32..6), 0u16..1100).prop_map(
            |((holds, usable, cooling), in_flight, reported, weight, concurrency, ease)| Candidate {
                holds,
                usable,
                cooling,
                in_flight,
                reported,
                weight: Weight(weight),
                concurrency,
                ease,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_free_and_no_free_one_is_less_loaded(
            candidates in prop::collection::vec(candidate(), 0..6), random in any::<u64>()
        ) {
            let ratio = |c: &Candidate| {
                let (load, capacity) = c.load();
                load as f64 / capacity as f64
            };
            match choose(&candidates, random) {
                Choice::Serve(at) => {
                    prop_assert!(candidates[at].free());
                    for other in candidates.iter().filter(|c| c.free()) {
                        prop_assert!(ratio(&candidates[at]) <= ratio(other) + 1e-12);
                    }
                }
                Choice::Busy => {
                    prop_assert!(!candidates.iter().any(Candidate::free));
                    prop_assert!(candidates.iter().any(|c| c.holds && c.usable && c.weight.0 > 0));
                }
                Choice::NoHolder => prop_assert!(!candidates.iter().any(|c| c.holds && c.usable && c.weight.0 > 0)),
            }
        }
    }
}
