//! From a placement key to the k replicas that may serve it, and no others.
//!
//! The subset is the first k members, in the key's order of preference, that are in service. A member that is merely unusable for a moment
//! (ejected, cooling off) stays in the subset and moves nothing; one that is out of service for long is passed over, which moves its own keys to
//! their next member and no other key. Whether a member is in service is decided elsewhere (`health`).

use crate::hash::{Purpose, stable_hash};

/// The replicas per key where the tenant says nothing else.
pub const DEFAULT_SUBSET: usize = 2;

/// The placement key of (tenant, model, pinned version): not the tenant alone, so that a changed pin moves the traffic; not the version alone,
/// so that tenants who share one can be kept apart.
#[must_use]
pub fn subset_key(tenant: &str, model: &str, version: &str) -> u64 {
    stable_hash(Purpose::Subset, &[tenant, model, version])
}

/// Replaces `out` by the first `k` members of `order` that are in service. Fewer, if fewer are.
pub fn subset(order: &[u32], k: usize, in_service: impl Fn(u32) -> bool, out: &mut Vec<u32>) {
    out.clear();
    out.extend(order.iter().copied().filter(|m| in_service(*m)).take(k));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_member_is_followed_by_the_next_in_order() {
        let mut out = Vec::new();
        let order = [4, 1, 3, 0, 2];
        for (k, gone, want) in [
            (2, None, vec![4, 1]),
            (2, Some(3), vec![4, 1]),
            (2, Some(4), vec![1, 3]),
            (2, Some(1), vec![4, 3]),
            (9, Some(0), vec![4, 1, 3, 2]),
            (0, None, vec![]),
        ] {
            subset(&order, k, |m| Some(m) != gone, &mut out);
            assert_eq!(out, want, "k {k}, without {gone:?}");
        }
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let key = subset_key("acme", "screen", "1");
        for other in [("acme", "screen", "2"), ("acme", "fraud", "1"), ("globex", "screen", "1")] {
            assert_ne!(key, subset_key(other.0, other.1, other.2));
        }
    }
}
