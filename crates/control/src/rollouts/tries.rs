//! Loads that failed, as tries. A gateway counts the loads of a version on a replica that failed in a row, whoever wanted them; of a roll-out, each
//! further one since it was planned is one try that failed, and a count that stays is none. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdfast_decide::rollout::Artifact;
use holdfast_types::GatewayName;

use super::reports::Reports;
use super::running::Pair;

/// What gateways were heard to count.
#[derive(Clone, Debug, Default)]
pub(super) struct Tries {
    heard: HashMap<Pair, BTreeMap<GatewayName, u32>>,
    /// Versions whose loads have failed for a roll-out before this was begun: the first count that is heard of them is an old one.
    doubted: BTreeSet<Artifact>,
}

impl Tries {
    /// Takes counts in, and gives how many tries they are more than was heard before. A lower one began anew.
    pub(super) fn further(&mut self, pair: &Pair, counts: &[(GatewayName, u32)]) -> u32 {
        if counts.is_empty() {
            return 0;
        }
        let heard = self.heard.entry(pair.clone()).or_default();
        let more = counts.iter().map(|(gateway, count)| match heard.insert(gateway.clone(), *count) {
            Some(before) if before <= *count => count - before,
            None if self.doubted.contains(&pair.1) => 0,
            _ => *count,
        });
        more.fold(0, u32::saturating_add)
    }

    /// Takes everything in that gateways count.
    pub(super) fn follow(&mut self, reports: &Reports) {
        for (pair, counts) in reports.failures() {
            self.further(&pair, counts);
        }
    }

    /// What was heard of these versions, for a roll-out that begins now.
    pub(super) fn of_these(&self, artifacts: &BTreeSet<Artifact>) -> Self {
        let heard = self.heard.iter().filter(|((_, artifact), _)| artifacts.contains(artifact));
        Self {
            heard: heard.map(|(pair, counts)| (pair.clone(), counts.clone())).collect(),
            doubted: self.doubted.intersection(artifacts).cloned().collect(),
        }
    }

    pub(super) fn doubt(&mut self, artifact: Artifact) {
        self.doubted.insert(artifact);
    }

    /// Lets go of versions that are not there any more.
    pub(super) fn keep(&mut self, is_there: impl Fn(&Artifact) -> bool) {
        self.heard.retain(|(_, artifact), _| is_there(artifact));
        self.doubted.retain(is_there);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::{ModelName, PoolName, ReplicaName, Version};

    fn pair() -> Pair {
        let (pool, model) = (PoolName::parse("gpu").unwrap(), ModelName::parse("m").unwrap());
        (ReplicaName::parse("r").unwrap(), Artifact { pool, model, version: Version::parse("2").unwrap() })
    }

    fn hear(tries: &mut Tries, counts: &[(&str, u32)]) -> u32 {
        let counts: Vec<_> = counts.iter().map(|(name, n)| (GatewayName::parse(name).unwrap(), *n)).collect();
        tries.further(&pair(), &counts)
    }

    #[test]
    fn each_further_failure_is_one_try_and_a_count_that_stays_is_none() {
        let mut tries = Tries::default();
        let said: Vec<u32> = [1, 1, 3, 3, 1, 2].into_iter().map(|count| hear(&mut tries, &[("a", count)])).collect();
        assert_eq!(said, [1, 0, 2, 0, 1, 1], "a lower count began anew");
        assert_eq!(hear(&mut tries, &[]), 0);
        assert_eq!(hear(&mut tries, &[("b", 1), ("a", 2)]), 1, "each gateway counts by itself");
        assert_eq!(hear(&mut tries, &[("b", 2)]), 1);
        assert_eq!(hear(&mut tries, &[("a", 2), ("b", 2)]), 0, "who was away for a while has tried nothing");
    }

    #[test]
    fn what_failed_before_is_no_try_of_a_new_roll_out() {
        let (mut tries, about) = (Tries::default(), BTreeSet::from([pair().1]));
        hear(&mut tries, &[("a", 3)]);
        assert_eq!(hear(&mut tries.of_these(&about), &[("a", 4)]), 1);
        assert_eq!(hear(&mut tries.of_these(&BTreeSet::new()), &[("a", 4)]), 4);
        tries.keep(|_| false);
        assert_eq!(hear(&mut tries.of_these(&about), &[("a", 4)]), 4);
        // Of what had failed when a leadership was taken up, the counts are not known.
        tries.doubt(pair().1);
        let mut doubted = tries.of_these(&about);
        assert_eq!((hear(&mut doubted, &[("a", 4)]), hear(&mut doubted, &[("a", 5)])), (0, 1));
    }
}
