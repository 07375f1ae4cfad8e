//! Draws from the faults what happens to one request.
//!
//! Draws come from a seeded generator that starts anew whenever the faults are set, so a drill repeats exactly as long as its requests come
//! in the same order.

use std::time::Duration;

use crate::body::Delivery;
use crate::faults::{Faults, Share};

/// What happens to one inference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferPlan {
    /// The process ends here.
    pub die: bool,
    /// Extra time.
    pub delay: Duration,
    /// No end.
    pub hang: bool,
    /// This status instead of an answer.
    pub error: Option<u16>,
    /// Another version answers and says so.
    pub wrong_version: bool,
    /// Another version answers and does not say so.
    pub wrong_weights: bool,
    /// No version in the answer.
    pub omit_version: bool,
    /// As if nothing were loaded.
    pub not_found: bool,
    /// Wrong name and version at the end.
    pub late_mismatch: bool,
    /// How the body leaves.
    pub delivery: Delivery,
}

/// What happens to one load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadPlan {
    /// Nothing unusual.
    Normal,
    /// It fails with this text.
    Fail(String),
    /// It never ends.
    Hang,
}

/// Draws the faults of each request.
#[derive(Debug)]
pub struct Injector {
    faults: Faults,
    seed: u64,
    dice: SplitMix,
    inferences: u64,
    left: u64,
}

impl Injector {
    /// An injector of these faults; equal seeds give equal draws.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        let left = faults.limit.unwrap_or(u64::MAX);
        Self { faults, seed, dice: SplitMix(seed), inferences: 0, left }
    }

    /// Replaces the faults; draws, counts and the limit start anew.
    pub fn set(&mut self, faults: Faults) {
        *self = Self::new(faults, self.seed);
    }

    /// The faults as set.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Whether readiness and index lie now.
    #[must_use]
    pub fn lies(&self) -> bool {
        self.faults.ready_lies && self.left > 0
    }

    /// Draws for one inference.
    pub fn infer(&mut self) -> InferPlan {
        self.inferences = self.inferences.saturating_add(1);
        let die = self.faults.die_after_requests.is_some_and(|after| self.inferences > after);
        if !self.faults.meets_inference() || !self.take() {
            return InferPlan { die, ..InferPlan::default() };
        }
        let faults = &self.faults;
        // Every draw is made for every request, so that switching one fault does not shift the draws of another.
        let mut hit = |share: Share| self.dice.share() < share.0;
        let (hang, error) = (hit(faults.hang), hit(faults.error_rate));
        let (wrong_version, wrong_weights) = (hit(faults.wrong_version_rate), hit(faults.wrong_weights_rate));
        InferPlan {
            die,
            delay: faults.infer_delay.unwrap_or_default().0,
            hang,
            error: error.then_some(faults.error_status.unwrap_or(500)),
            wrong_version,
            wrong_weights,
            omit_version: faults.omit_version,
            not_found: faults.ready_lies,
            late_mismatch: faults.late_mismatch,
            delivery: Delivery {
                chunks: faults.stream_chunks.map(|chunks| (chunks.bytes.get(), chunks.every.0)),
                cut: faults.reset_after_bytes,
            },
        }
    }

    /// Draws for one load.
    pub fn load(&mut self) -> LoadPlan {
        let met = self.faults.load_hangs || self.faults.load_fails.is_some();
        if !met || !self.take() {
            return LoadPlan::Normal;
        }
        match &self.faults.load_fails {
            _ if self.faults.load_hangs => LoadPlan::Hang,
            Some(text) => LoadPlan::Fail(text.clone()),
            None => LoadPlan::Normal,
        }
    }

    fn take(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
        true
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    /// A number from 0 to just below 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(settings: &[&str]) -> Faults {
        Faults::from_settings(settings).unwrap()
    }

    #[test]
    fn shares_hold_and_repeat() {
        let draw = || {
            let mut injector = Injector::new(faults(&["error_rate=0.01", "error_status=503"]), 7);
            (0..20_000).map(|_| injector.infer().error).collect::<Vec<_>>()
        };
        let errors = draw();
        let count = errors.iter().flatten().count();
        assert!((150..250).contains(&count), "{count} of 20,000 at a share of 0.01");
        assert_eq!(errors, draw());
    }

    #[test]
    fn a_limit_counts_only_what_a_fault_could_meet() {
        let mut injector = Injector::new(faults(&["load_fails=x", "limit=2"]), 1);
        assert_eq!(injector.infer(), InferPlan::default());
        assert_eq!(injector.load(), LoadPlan::Fail("x".into()));
        assert_eq!(injector.load(), LoadPlan::Fail("x".into()));
        assert_eq!(injector.load(), LoadPlan::Normal);
        injector.set(faults(&["hang=true", "limit=1"]));
        assert_eq!((injector.infer().hang, injector.infer().hang), (true, false));
    }

    #[test]
    fn death_comes_after_the_stated_number() {
        let mut injector = Injector::new(faults(&["die_after_requests=2"]), 1);
        assert_eq!([0; 3].map(|_| injector.infer().die), [false, false, true]);
    }
}
