//! Do the pins fit? The arithmetic of guaranteed mode, over the real layout.
//!
//! Two questions are kept apart. On average: the sum of size times k against the sum of memory, a necessary condition only. Per replica: each
//! pinned key takes the first k of its order, versions that several keys share on one replica count once, and the result is compared with that
//! replica's own memory. A random layout overflows single replicas long before the average does, so only the second answer admits pins.

use std::collections::BTreeSet;

use holdfast_types::Bytes;

/// One pinned key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin<'a> {
    /// The pinned version, as an index into the sizes.
    pub version: u32,
    /// The replicas in the key's order of preference, as indexes into the memories.
    pub order: &'a [u32],
    /// Replicas that are to hold it.
    pub k: usize,
}

/// What one replica is to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaFit {
    /// The distinct versions, by index.
    pub versions: Vec<u32>,
    /// Their sizes together.
    pub needed: Bytes,
    /// The memory there is. None: not known, and taken as enough.
    pub memory: Option<Bytes>,
}

impl ReplicaFit {
    /// By how much the versions pass the memory. Zero: they fit.
    #[must_use]
    pub fn overflow(&self) -> Bytes {
        Bytes(self.memory.map_or(0, |m| self.needed.0.saturating_sub(m.0)))
    }
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Size times k over all pins, shared copies counted once for each key: the ceiling of what may be needed.
    pub ceiling: Bytes,
    /// What the layout needs: each version once on each replica.
    pub needed: Bytes,
    /// The memory of all replicas together. None: some replica's is not known.
    pub memory: Option<Bytes>,
    /// By replica.
    pub replicas: Vec<ReplicaFit>,
    /// Pins that name fewer replicas than their k (by index), with the replicas that they have.
    pub short: Vec<(usize, usize)>,
}

impl Fit {
    /// The replicas that overflow, and by how much.
    pub fn overflows(&self) -> impl Iterator<Item = (u32, Bytes)> {
        (0u32..).zip(self.replicas.iter().map(ReplicaFit::overflow)).filter(|(_, over)| over.0 > 0)
    }

    /// No replica overflows: guaranteed mode is possible with this layout.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.overflows().next().is_none()
    }

    /// The necessary condition alone: all memory together would do.
    #[must_use]
    pub fn fits_on_average(&self) -> bool {
        self.memory.is_none_or(|m| self.needed <= m)
    }
}

/// Lays the pins out. Indexes out of range are left out: an unknown version has no size, an unknown replica no place.
#[must_use]
pub fn fit(memories: &[Option<Bytes>], sizes: &[Bytes], pins: &[Pin]) -> Fit {
    let mut held: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); memories.len()];
    let size = |version: u32| sizes.get(version as usize).map_or(0, |s| s.0);
    let (mut ceiling, mut short) = (0u64, Vec::new());
    for (index, pin) in pins.iter().enumerate() {
        let k = u64::try_from(pin.k).unwrap_or(u64::MAX);
        ceiling = ceiling.saturating_add(size(pin.version).saturating_mul(k));
        if pin.order.len() < pin.k {
            short.push((index, pin.order.len()));
        }
        for replica in pin.order.iter().take(pin.k) {
            if let Some(versions) = held.get_mut(*replica as usize) {
                versions.insert(pin.version);
            }
        }
    }
    let replicas: Vec<ReplicaFit> = held
        .into_iter()
        .zip(memories)
        .map(|(versions, memory)| {
            let needed = Bytes(versions.iter().fold(0, |sum, v| sum.saturating_add(size(*v))));
            ReplicaFit { versions: versions.into_iter().collect(), needed, memory: *memory }
        })
        .collect();
    let needed = Bytes(replicas.iter().fold(0, |sum, r| sum.saturating_add(r.needed.0)));
    let memory = memories.iter().try_fold(0u64, |sum, m| m.map(|m| sum.saturating_add(m.0))).map(Bytes);
    Fit { ceiling: Bytes(ceiling), needed, memory, replicas, short }
}

/// For each replica the pins (by index) that its loss leaves without a holder that is certain. A replica that is to hold more than it has room for is not:
/// which of its versions are there at a moment depends on what was asked. That another key holds the same version elsewhere is no help, since a key is never
/// served outside its own subset.
#[must_use]
pub fn left_alone(fit: &Fit, pins: &[Pin]) -> Vec<Vec<usize>> {
    let mut alone = vec![Vec::new(); fit.replicas.len()];
    let is_certain = |replica: u32| fit.replicas.get(replica as usize).is_some_and(|r| r.overflow() == Bytes(0));
    for (index, pin) in pins.iter().enumerate() {
        let subset = || pin.order.iter().copied().take(pin.k);
        for lost in subset().filter(|lost| !subset().any(|other| other != *lost && is_certain(other))) {
            if let Some(pins) = alone.get_mut(lost as usize) {
                pins.push(index);
            }
        }
    }
    alone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{Member, MemberList};
    use crate::rendezvous::Rendezvous;
    use crate::subset::subset_key;
    use holdfast_types::{Revision, Weight};

    const GB: u64 = 1_000_000_000;

    #[test]
    fn shared_versions_count_once_on_a_replica() {
        let pins = [
            Pin { version: 0, order: &[0, 1, 2], k: 2 },
            Pin { version: 0, order: &[1, 2, 0], k: 2 },
            Pin { version: 1, order: &[1, 0], k: 1 },
        ];
        let found = fit(&[Some(Bytes(2)), Some(Bytes(4)), None], &[Bytes(2), Bytes(3)], &pins);
        assert_eq!(found.replicas.iter().map(|r| r.needed.0).collect::<Vec<_>>(), [2, 5, 2]);
        assert_eq!(found.overflows().collect::<Vec<_>>(), [(1, Bytes(1))]);
        assert_eq!((found.ceiling, found.needed, found.memory), (Bytes(11), Bytes(9), None));
        assert!(!found.fits() && found.fits_on_average());
    }

    #[test]
    fn fewer_replicas_than_k_are_reported() {
        let found = fit(&[Some(Bytes(9))], &[Bytes(1)], &[Pin { version: 0, order: &[0], k: 2 }]);
        assert_eq!(found.short, [(0, 1)]);
    }

    #[test]
    fn a_replica_that_overflows_is_no_holder_to_rely_on() {
        let pins = [Pin { version: 0, order: &[0, 1], k: 2 }, Pin { version: 1, order: &[0, 1], k: 1 }];
        let sizes = [Bytes(3), Bytes(3)];
        let alone = |memory| left_alone(&fit(&[Some(Bytes(memory)), Some(Bytes(4))], &sizes, &pins), &pins);
        assert_eq!(alone(6), [vec![1], vec![]]);
        assert_eq!(alone(5), [vec![1], vec![0]], "the first replica may hold either");
        // Nothing fits, so no loss is safe, however many replicas are to hold a version.
        let order: Vec<u32> = (0..3).collect();
        let many: Vec<Pin<'_>> = (0..9).map(|version| Pin { version, order: &order, k: 3 }).collect();
        let found = fit(&[Some(Bytes(4)); 3], &[Bytes(1); 9], &many);
        assert!(left_alone(&found, &many).iter().all(|keys| keys.len() == 9));
    }

    /// 400 versions of 2 GB on 60 replicas of 24 GB: 800 GB per copy, 1,440 GB in all.
    fn layout(k: usize, seed: u32) -> Fit {
        let members = (0..60).map(|i| Member::new(format!("r{i}-{seed}"), Weight(1))).collect();
        let members = MemberList::new(Revision(1), members).unwrap();
        let owners = Rendezvous::new(members);
        let orders: Vec<Vec<u32>> = (0..400)
            .map(|i| {
                let mut order = Vec::new();
                owners.first(subset_key(&format!("t{i}"), "m", "1"), k, &mut order);
                order
            })
            .collect();
        let pins: Vec<Pin> = (0u32..).zip(&orders).map(|(version, order)| Pin { version, order, k }).collect();
        fit(&[Some(Bytes(24 * GB)); 60], &[Bytes(2 * GB); 400], &pins)
    }

    #[test]
    fn the_worked_case_of_sizing() {
        assert_eq!(layout(1, 0).needed, Bytes(800 * GB));
        let three = layout(3, 0);
        assert_eq!((three.needed, three.memory), (Bytes(2400 * GB), Some(Bytes(1440 * GB))));
        assert!(!three.fits_on_average());
    }

    #[test]
    fn single_replicas_overflow_long_before_the_average_does() {
        // With 12 slots a replica and a mean of 6.67, about two of three random layouts overflow somewhere.
        let overflowing = (0..200).filter(|seed| !layout(1, *seed).fits()).count();
        assert!((110..=160).contains(&overflowing), "{overflowing} of 200");
        assert!(layout(1, 0).fits_on_average());
    }
}
