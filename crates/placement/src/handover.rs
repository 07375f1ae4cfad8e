//! A key's replicas have changed with the configuration: who goes on serving it until one of the new ones can.
//!
//! The subset of a key is where it belongs. While no member of it holds the version, those of the former members that held it when they left are
//! asked as well, each until its own deadline. They are given nothing to load. As soon as one member holds the version, the subset is alone again:
//! at no time do members and leavers both serve, and never longer than the deadline is anybody asked who is no member.

use holdfast_types::Mono;

use crate::residency::ReplicaIx;

/// A replica that was a member, held the version when it ceased to be one, and serves until a member can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaver {
    /// Which.
    pub replica: ReplicaIx,
    /// Not asked from this moment on.
    pub until: Mono,
}

/// The most leavers of one key; a subset has 16 members at most.
pub const MAX_LEAVERS: usize = 16;

/// Who leaves a key at `now`, when `members` take the place of `before`: those of `before` that hold the version, and the leavers of an earlier
/// change whose time is not over. None if one of the members holds the version already. `until` is the deadline of those that leave now.
#[must_use]
pub fn leavers(
    now: Mono,
    until: Mono,
    before: (&[ReplicaIx], &[Leaver]),
    members: &[ReplicaIx],
    holds: impl Fn(ReplicaIx) -> bool,
) -> Vec<Leaver> {
    if members.iter().any(|r| holds(*r)) {
        return Vec::new();
    }
    let (left, leaving) = before;
    let mut all: Vec<Leaver> = Vec::new();
    let fresh = left.iter().filter(|r| holds(**r)).map(|r| Leaver { replica: *r, until });
    for leaver in leaving.iter().copied().chain(fresh) {
        let known = all.iter().any(|l| l.replica == leaver.replica);
        if leaver.until > now && !known && !members.contains(&leaver.replica) && all.len() < MAX_LEAVERS {
            all.push(leaver);
        }
    }
    all
}

/// Whether a leaver is asked at `now`.
#[must_use]
pub fn serves(now: Mono, leaver: &Leaver, a_member_holds: bool) -> bool {
    !a_member_holds && now < leaver.until
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const A: ReplicaIx = ReplicaIx(0);
    const B: ReplicaIx = ReplicaIx(1);
    const C: ReplicaIx = ReplicaIx(2);

    fn at(secs: u64) -> Mono {
        Mono(secs * 1_000_000_000)
    }

    #[test]
    fn a_holder_stays_until_a_member_holds_or_its_time_is_over() {
        let left = leavers(at(10), at(70), (&[A, B], &[]), &[C], |r| r == A);
        assert_eq!(left, [Leaver { replica: A, until: at(70) }], "B held nothing");
        assert!(serves(at(69), &left[0], false));
        assert!(!serves(at(70), &left[0], false), "its time is over");
        assert!(!serves(at(11), &left[0], true), "a member holds");
    }

    #[test]
    fn nobody_leaves_slowly_where_a_member_holds() {
        assert_eq!(leavers(at(10), at(70), (&[A, B], &[]), &[B], |_| true), []);
    }

    #[test]
    fn a_second_change_prolongs_nothing_and_who_comes_back_is_a_member() {
        let first = leavers(at(10), at(70), (&[A], &[]), &[B], |r| r == A);
        let second = leavers(at(40), at(100), (&[B], &first), &[C], |r| r == A);
        assert_eq!(second, first);
        assert_eq!(leavers(at(50), at(110), (&[C], &second), &[A], |_| false), []);
    }

    const DRAIN: Duration = Duration::from_secs(60);

    #[derive(Clone, Debug)]
    enum Step {
        Members(BTreeSet<u32>),
        Holds(u32, bool),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::collection::btree_set(0u32..6, 1..3).prop_map(Step::Members),
            (0u32..6, any::<bool>()).prop_map(|(r, holds)| Step::Holds(r, holds)),
            (0u64..50).prop_map(Step::Pass),
        ]
    }

    #[derive(Default)]
    struct World {
        now: Mono,
        members: Vec<ReplicaIx>,
        leavers: Vec<Leaver>,
        holding: BTreeSet<ReplicaIx>,
        /// When each was a member last.
        member_until: BTreeMap<ReplicaIx, Mono>,
    }

    impl World {
        fn served_by(&self) -> Vec<ReplicaIx> {
            let held = self.members.iter().any(|r| self.holding.contains(r));
            let leaving = self.leavers.iter().filter(|l| serves(self.now, l, held)).map(|l| l.replica);
            let asked = self.members.iter().copied().chain(leaving);
            asked.filter(|r| self.holding.contains(r)).collect()
        }

        fn step(&mut self, step: &Step) {
            match step {
                Step::Members(next) => {
                    let next: Vec<ReplicaIx> = next.iter().map(|r| ReplicaIx(*r)).collect();
                    let before = (&*self.members, &*self.leavers);
                    let leavers =
                        leavers(self.now, self.now.after(DRAIN), before, &next, |r| self.holding.contains(&r));
                    self.member_until.extend(self.members.iter().map(|r| (*r, self.now)));
                    (self.members, self.leavers) = (next, leavers);
                }
                Step::Holds(r, true) => drop(self.holding.insert(ReplicaIx(*r))),
                Step::Holds(r, false) => drop(self.holding.remove(&ReplicaIx(*r))),
                Step::Pass(secs) => self.now = self.now.after(Duration::from_secs(*secs)),
            }
        }
    }

    proptest! {
        #[test]
        fn no_change_of_members_makes_a_gap_and_none_is_asked_for_longer_than_its_time(
            steps in prop::collection::vec(step(), 1..60)
        ) {
            let mut world = World { now: at(1), ..World::default() };
            for step in &steps {
                let before = world.served_by();
                world.step(step);
                let after = world.served_by();
                if let Step::Members(_) = step {
                    prop_assert!(before.is_empty() || !after.is_empty(), "{step:?} took {before:?} away");
                }
                let member_serves = world.members.iter().any(|r| world.holding.contains(r));
                for replica in after {
                    let member = world.members.contains(&replica);
                    prop_assert!(member || !member_serves, "{replica:?} serves beside a member");
                    let was = world.member_until.get(&replica).copied();
                    prop_assert!(member || was.is_some_and(|was| world.now < was.after(DRAIN)), "{replica:?} serves for ever");
                }
            }
        }

        #[test]
        fn while_somebody_holds_it_and_time_is_left_there_is_somebody_to_ask(
            changes in prop::collection::vec(prop::collection::btree_set(0u32..6, 1..3), 1..8)
        ) {
            // The first to hold it stays well; nobody else comes to hold it, and all happens within its time.
            let holder = ReplicaIx(9);
            let mut world = World { now: at(1), members: vec![holder], ..World::default() };
            world.holding.insert(holder);
            for next in changes {
                world.step(&Step::Members(next));
                world.step(&Step::Pass(7));
                prop_assert_eq!(world.served_by(), vec![holder]);
            }
        }
    }
}
