//! When the keys of an issuer are fetched, and for how long they are used: a machine without a clock.
//!
//! Keys are fetched anew in the background, with jitter, long before they are too old. An issuer that is away is asked again with growing pauses; meanwhile
//! the keys stay in use up to a stated age. A token with an unknown key, or with a bad signature under a known one (an issuer may have put another key under
//! the same name), has the keys fetched once, with a pause after it that all such tokens share: whoever sends tokens decides nothing about the issuer's load.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_types::Mono;

/// The times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// From one good fetch to the next, on average.
    pub refresh: Duration,
    /// How old keys may be that are still used.
    pub keep: Duration,
    /// The least time between two fetches that tokens ask for.
    pub cooldown: Duration,
}

/// What comes of a token whose key is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The keys are to be fetched now, and whoever is told so does it; the token may wait for that.
    Fetch,
    /// They are being fetched; the token may wait for that.
    Wait,
    /// They have been fetched for such a token a moment ago: it is refused.
    No,
}

/// See the module.
#[derive(Debug)]
pub struct Keeper {
    policy: Policy,
    fetched: Option<Mono>,
    next: Mono,
    in_flight: bool,
    /// When the last fetch that a token asked for began.
    asked: Option<Mono>,
    failures: u32,
    /// Names that were not there after a fetch for them, and until when they are not asked for again.
    missing: VecDeque<(u64, Mono)>,
}

/// The most names that are remembered as missing.
const MISSING: usize = 64;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

impl Keeper {
    /// Nothing has been fetched, and it is time to.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            fetched: None,
            next: Mono::ZERO,
            in_flight: false,
            asked: None,
            failures: 0,
            missing: VecDeque::new(),
        }
    }

    /// When the next fetch is due. None: one is on its way.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        (!self.in_flight).then_some(self.next)
    }

    /// Notes that a fetch begins. False: one is on its way already.
    pub fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.in_flight, true)
    }

    /// Notes a good fetch. Returns until when its keys may be used. `random` is any number.
    pub fn fetched(&mut self, now: Mono, random: u64) -> Mono {
        self.in_flight = false;
        self.failures = 0;
        self.fetched = Some(now);
        // 0.8 to 1 times the interval: gateways that were started together drift apart, and none is later than was said.
        let part = self.policy.refresh / 5;
        self.next = now.after(self.policy.refresh - scaled(part, random));
        now.after(self.policy.keep)
    }

    /// Notes a fetch that failed.
    pub fn failed(&mut self, now: Mono, random: u64) {
        self.in_flight = false;
        let pause = FIRST_RETRY * 2u32.saturating_pow(self.failures.min(6));
        let pause = pause.min(LAST_RETRY).min(self.policy.refresh);
        self.failures = self.failures.saturating_add(1);
        self.next = now.after(pause - scaled(pause / 2, random));
    }

    /// How many fetches have failed in a row.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// The age of the keys. None: there are none.
    #[must_use]
    pub fn age(&self, now: Mono) -> Option<Duration> {
        self.fetched.map(|at| now.since(at))
    }

    /// A token's key is not known, or its signature is not that of the key. `name` tells its key from others.
    pub fn ask(&mut self, now: Mono, name: u64) -> Asked {
        if self.in_flight {
            return Asked::Wait;
        }
        let is_early = self.asked.is_some_and(|at| now < at.after(self.policy.cooldown));
        self.missing.retain(|(_, until)| now < *until);
        // While the issuer is away, the pauses of the background hold for tokens too.
        let is_away = self.failures > 0 && now < self.next;
        if is_early || is_away || self.missing.iter().any(|(one, _)| *one == name) {
            return Asked::No;
        }
        self.asked = Some(now);
        self.in_flight = true;
        if self.missing.len() == MISSING {
            self.missing.pop_front();
        }
        self.missing.push_back((name, now.after(self.policy.refresh.max(self.policy.cooldown))));
        Asked::Fetch
    }
}

/// From zero to all of a span.
fn scaled(span: Duration, random: u64) -> Duration {
    span.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: Policy = Policy {
        refresh: Duration::from_secs(300),
        keep: Duration::from_secs(3_600),
        cooldown: Duration::from_secs(30),
    };

    fn at(seconds: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn one_fetch_for_many_unknown_keys() {
        let mut keeper = Keeper::new(POLICY);
        assert!(keeper.begin() && !keeper.begin());
        assert_eq!(keeper.next(), None);
        assert_eq!(keeper.fetched(at(1), 0), at(3_601));
        assert_eq!(keeper.ask(at(10), 1), Asked::Fetch);
        assert!(!keeper.begin(), "it has begun");
        assert_eq!((2..100).map(|name| keeper.ask(at(11), name)).filter(|a| *a != Asked::Wait).count(), 0);
        keeper.fetched(at(12), 0);
        assert_eq!(keeper.ask(at(12), 1), Asked::No);
        assert_eq!(keeper.ask(at(39), 200), Asked::No, "the pause is shared by all names");
        assert_eq!(keeper.ask(at(40), 1), Asked::No, "a name that was looked for is remembered");
        assert_eq!(keeper.ask(at(40), 201), Asked::Fetch);
    }

    #[test]
    fn an_issuer_that_is_away_is_asked_with_growing_pauses() {
        let mut keeper = Keeper::new(POLICY);
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            assert!(keeper.begin());
            keeper.failed(at(now), 0);
            let next = keeper.next().unwrap();
            assert_eq!(keeper.ask(at(now), now), Asked::No, "tokens do not pass the pause by");
            pauses.push(next.since(at(now)).as_secs());
            now += pauses.last().unwrap();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    proptest! {
        #[test]
        fn jitter_stays_within_what_was_said(random: u64, failures in 0u32..10) {
            let mut keeper = Keeper::new(POLICY);
            (0..failures).for_each(|_| keeper.failed(at(5), random));
            let pause = keeper.next().unwrap().since(at(5));
            prop_assert!(failures == 0 || (pause >= FIRST_RETRY / 2 && pause <= LAST_RETRY), "{pause:?}");
            keeper.fetched(at(5), random);
            let pause = keeper.next().unwrap().since(at(5));
            prop_assert!(pause <= POLICY.refresh && pause >= POLICY.refresh * 4 / 5, "{pause:?}");
        }

        #[test]
        fn tokens_cause_at_most_one_fetch_in_each_pause(steps in proptest::collection::vec((0u64..20, any::<u64>(), any::<bool>()), 1..200)) {
            let mut keeper = Keeper::new(POLICY);
            keeper.begin();
            keeper.fetched(at(1), 0);
            let (mut now, mut fetches) = (1, Vec::new());
            for (step, name, good) in steps {
                now += step;
                if keeper.ask(at(now), name) == Asked::Fetch {
                    fetches.push(now);
                    if good { keeper.fetched(at(now), name); } else { keeper.failed(at(now), name); }
                }
            }
            prop_assert!(fetches.windows(2).all(|pair| pair[1] - pair[0] >= 30), "{fetches:?}");
        }
    }
}
