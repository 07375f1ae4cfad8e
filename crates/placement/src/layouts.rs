//! How likely a random layout overflows: equal versions, each of one key, hashed to equal replicas under many sets of invented names.

use holdfast_types::{Bytes, Revision, Weight};

use crate::fit::{Fit, Pin, fit};
use crate::members::{Member, MemberList, MembersError};
use crate::rendezvous::Rendezvous;
use crate::subset::subset_key;

/// Equal versions on equal replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// How many versions.
    pub versions: u32,
    /// What each takes.
    pub size: Bytes,
    /// How many replicas.
    pub replicas: u32,
    /// What each has.
    pub memory: Bytes,
}

/// How often layouts overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overflow {
    /// The share of layouts in which some replica overflows.
    pub any: f64,
    /// The share of replicas that overflow.
    pub one: f64,
}

impl Case {
    /// The name of a replica in a set of names.
    #[must_use]
    pub fn replica(set: u32, index: u32) -> String {
        format!("replica-{set}-{index}")
    }

    /// The first `k` replicas of every version's key, under one set of names, as indexes of the replicas sorted by name.
    ///
    /// # Errors
    /// Too many replicas.
    pub fn orders(&self, set: u32, k: usize) -> Result<Vec<Vec<u32>>, MembersError> {
        let members = (0..self.replicas).map(|index| Member::new(Self::replica(set, index), Weight(1))).collect();
        let owners = Rendezvous::new(MemberList::new(Revision(1), members)?);
        let order = |version: u32| {
            let mut out = Vec::with_capacity(k);
            owners.first(subset_key(&format!("tenant-{version}"), "model", "1"), k, &mut out);
            out
        };
        Ok((0..self.versions).map(order).collect())
    }

    /// The layout of these orders with k replicas for each.
    #[must_use]
    pub fn lay_out(&self, orders: &[Vec<u32>], k: usize) -> Fit {
        let pins: Vec<Pin<'_>> = (0u32..).zip(orders).map(|(version, order)| Pin { version, order, k }).collect();
        let memories = vec![Some(self.memory); self.replicas as usize];
        fit(&memories, &vec![self.size; self.versions as usize], &pins)
    }

    /// What random layouts do with each of these k.
    ///
    /// # Errors
    /// Too many replicas.
    pub fn overflow(&self, ks: &[usize], layouts: u32) -> Result<Vec<Overflow>, MembersError> {
        let most = ks.iter().copied().max().unwrap_or(0);
        let mut counts = vec![(0u32, 0u32); ks.len()];
        for set in 0..layouts {
            let orders = self.orders(set, most)?;
            for (k, (any, all)) in ks.iter().zip(&mut counts) {
                let over = u32::try_from(self.lay_out(&orders, *k).overflows().count()).unwrap_or(u32::MAX);
                *any += over.min(1);
                *all += over;
            }
        }
        let of = |count: u32, of: f64| if of > 0.0 { f64::from(count) / of } else { 0.0 };
        let sets = f64::from(layouts);
        let found = counts
            .into_iter()
            .map(|(any, all)| Overflow { any: of(any, sets), one: of(all, sets * f64::from(self.replicas)) });
        Ok(found.collect())
    }
}
