//! Reads and writes over replicas: when they are done, when they are lost, and QUORUM-1 over every choice of who answers.

use holdfast_quorum::round::{Progress, Read, Stamp, Witness, Write};
use holdfast_quorum::shape::Quorum;
use proptest::prelude::*;

fn stamp(number: u64) -> Stamp {
    Stamp { number, writer: 1 }
}

#[test]
fn a_read_takes_the_highest_of_enough_and_knows_who_is_behind() {
    let mut read = Read::new(Quorum::new(5, 3, 3).unwrap());
    assert_eq!(read.answered(0, stamp(4)), Progress::Waits);
    assert_eq!(read.answered(0, stamp(9)), Progress::Waits, "one replica is heard once");
    assert_eq!(read.answered(3, stamp(7)), Progress::Waits);
    assert_eq!(read.answered(4, stamp(5)), Progress::Done(stamp(7)));
    assert_eq!(read.answered(1, stamp(3)), Progress::Waits, "it is done once");
    assert_eq!(read.stale().collect::<Vec<_>>(), [0, 1, 4]);
}

#[test]
fn what_cannot_be_done_any_more_is_told_at_once() {
    let mut write = Write::new(Quorum::new(5, 3, 3).unwrap(), stamp(1));
    assert_eq!(write.taken(2), Progress::Waits);
    assert_eq!((write.lost(0), write.lost(0), write.lost(1)), (Progress::Waits, Progress::Waits, Progress::Waits));
    assert_eq!(write.lost(2), Progress::Waits, "it has taken it");
    assert_eq!(write.lost(4), Progress::Lost);
    assert_eq!(write.taken(3), Progress::Waits, "who was refused is not done later");
    assert_eq!(write.missed().collect::<Vec<_>>(), [0, 1, 4]);
}

proptest! {
    /// Writes and reads one after the other, each heard by some replicas in some order.
    #[test]
    fn quorum_1_holds_where_reads_meet_writes(
        (n, r, w) in (1u32..6).prop_flat_map(|n| (Just(n), 1..=n, 1..=n)),
        operations in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<u8>()), 1..60),
    ) {
        let shape = Quorum::new(n, r, w).unwrap();
        let (mut replicas, mut witness) = (vec![Stamp::default(); n as usize], Witness::default());
        let mut missed = false;
        for (is_write, from, gone) in operations {
            let order: Vec<u32> = (0..n).map(|at| (at + from.index(n as usize) as u32) % n).collect();
            let up: Vec<u32> = order.into_iter().filter(|replica| gone & (1 << replica) == 0).collect();
            let floor = witness.floor(7);
            let mut read = Read::new(shape);
            let newest = up.iter().find_map(|replica| match read.answered(*replica, replicas[*replica as usize]) {
                Progress::Done(version) => Some(version),
                _ => None,
            });
            let Some(newest) = newest else { continue };
            missed |= Witness::read(floor, newest).is_err();
            prop_assert!(!missed || !shape.reads_meet_writes(), "{:?}", shape);
            if is_write {
                let mut write = Write::new(shape, newest.next(3));
                for replica in up.iter().rev() {
                    let held = &mut replicas[*replica as usize];
                    *held = write.version.max(*held);
                    if let Progress::Done(version) = write.taken(*replica) {
                        witness.written(7, version);
                        break;
                    }
                }
            }
        }
    }
}
