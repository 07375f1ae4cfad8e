//! A change that is too large for one commit, in several of which each leaves a good state. Pure.
//!
//! The catalogue goes first, then the tenants, each with its pins in both spaces. Every beginning of that is a configuration, as long as nothing of
//! the catalogue is taken away or changed that a tenant who comes later may still need.

use std::collections::BTreeMap;

use holdfast_config::ResourceKind;
use holdfast_store::{Edit, Place};

/// What one commit may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) edits: usize,
    pub(super) bytes: usize,
}

impl Bounds {
    const fn hold(self, of: Self) -> bool {
        of.edits <= self.edits && of.bytes <= self.bytes
    }
}

/// The edits in commits within the bounds, or `None` if they do not go into one and cannot be parted.
pub(super) fn batches(edits: Vec<Edit>, bounds: Bounds, is_new: impl Fn(&Place) -> bool) -> Option<Vec<Vec<Edit>>> {
    if bounds.hold(weight(&edits)) {
        return Some(vec![edits]);
    }
    let mut catalogue = Vec::new();
    let mut tenants: BTreeMap<String, Vec<Edit>> = BTreeMap::new();
    for edit in edits {
        let name = edit.place.key.name();
        let tenant = name.split_once('/').map_or(name, |(tenant, _)| tenant).to_ascii_lowercase();
        match ResourceKind::parse(edit.place.key.kind()) {
            Some(ResourceKind::Tenant | ResourceKind::Pin | ResourceKind::Split) => {
                tenants.entry(tenant).or_default().push(edit);
            }
            _ => catalogue.push(edit),
        }
    }
    if !catalogue.iter().all(|edit| edit.value.is_some() && is_new(&edit.place)) {
        return None;
    }
    let (mut batches, mut batch, mut held) = (Vec::new(), Vec::new(), Bounds { edits: 0, bytes: 0 });
    for edits in std::iter::once(catalogue).chain(tenants.into_values()) {
        let more = weight(&edits);
        let both = Bounds { edits: held.edits + more.edits, bytes: held.bytes + more.bytes };
        if bounds.hold(both) {
            held = both;
        } else if bounds.hold(more) {
            batches.push(std::mem::take(&mut batch));
            held = more;
        } else {
            return None;
        }
        batch.extend(edits);
    }
    batches.push(batch);
    batches.retain(|batch| !batch.is_empty());
    Some(batches)
}

/// How much edits are, as the store counts.
fn weight(edits: &[Edit]) -> Bounds {
    let bytes = edits.iter().map(|Edit { place, value }| {
        place.key.kind().len() + 1 + place.key.name().len() + value.as_ref().map_or(0, |value| value.as_bytes().len())
    });
    Bounds { edits: edits.len(), bytes: bytes.sum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::{Json, Key, Space};

    fn put(space: Space, kind: &str, name: &str) -> Edit {
        let place = Place { space, key: Key::new(kind, name).unwrap() };
        Edit { place, value: Some(Json::of(&"x").unwrap()) }
    }

    fn of(tenants: usize) -> Vec<Edit> {
        let mut edits = vec![put(Space::Desired, "pool", "p"), put(Space::InForce, "pool", "p")];
        for n in 0..tenants {
            for space in Space::ALL {
                edits.push(put(space, "pin", &format!("t{n}/m")));
                edits.push(put(space, "tenant", &format!("t{n}")));
            }
        }
        edits
    }

    #[test]
    fn a_tenant_is_never_parted_and_the_catalogue_comes_first() {
        let bounds = |edits| Bounds { edits, bytes: 1 << 20 };
        let sizes = |tenants, edits| {
            let parts = batches(of(tenants), bounds(edits), |_| true)?;
            assert!(parts[0].iter().any(|edit| edit.place.key.kind() == "pool"));
            for batch in &parts {
                let mut of: BTreeMap<&str, usize> = BTreeMap::new();
                let names = batch.iter().map(|e| e.place.key.name()).filter(|name| name.starts_with('t'));
                names.for_each(|name| *of.entry(name.split('/').next().unwrap()).or_default() += 1);
                assert!(of.values().all(|n| *n == 4), "{of:?}");
            }
            Some(parts.iter().map(Vec::len).collect::<Vec<_>>())
        };
        assert_eq!(sizes(3, 14), Some(vec![14]));
        assert_eq!(sizes(3, 13), Some(vec![10, 4]));
        assert_eq!(sizes(3, 5), Some(vec![2, 4, 4, 4]));
        assert_eq!(sizes(3, 3), None, "a tenant does not fit");
        assert_eq!(batches(of(3), Bounds { edits: 99, bytes: 50 }, |_| true).map(|b| b.len()), Some(4));
    }

    #[test]
    fn a_catalogue_that_changes_is_not_parted() {
        let few = Bounds { edits: 6, bytes: 1 << 20 };
        assert!(batches(of(3), few, |place| place.space == Space::Desired).is_none());
        let mut gone = of(3);
        gone[0].value = None;
        assert!(batches(gone, few, |_| true).is_none());
    }
}
