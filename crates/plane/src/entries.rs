//! A table's content as a persistent map: copies share what they have in common, and a comparison looks only at what they do not share.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;
use xxhash_rust::xxh3::xxh3_64;

use holdfast_config::{ResourceKind, Resources};

/// What a resource is called.
pub type Name = (ResourceKind, Arc<str>);

/// An edit copies one of so many parts.
const PARTS: usize = 1024;

type Part = BTreeMap<Name, Arc<Json>>;

/// Resources by kind and name. A copy costs nothing, an edit of a copy about a thousandth of the content.
#[derive(Clone, Debug)]
pub struct Entries(Arc<Vec<Arc<Part>>>);

/// One edit; `None` takes the resource away.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name.
    pub name: Arc<str>,
    /// Its content.
    pub value: Option<Arc<Json>>,
}

impl Default for Entries {
    fn default() -> Self {
        Self(Arc::new(vec![Arc::default(); PARTS]))
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.unshared(other).all(|(a, b)| a == b)
    }
}

impl Entries {
    /// How many there are. A walk over the parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|part| part.is_empty())
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, kind: ResourceKind, name: &str) -> Option<&Arc<Json>> {
        self.0.get(part_of(kind, name))?.get(&(kind, Arc::from(name)))
    }

    /// Makes one edit.
    pub fn apply(&mut self, edit: Edit) {
        let parts = Arc::make_mut(&mut self.0);
        let Some(part) = parts.get_mut(part_of(edit.kind, &edit.name)).map(Arc::make_mut) else { return };
        let key = (edit.kind, edit.name);
        let _ = match edit.value {
            Some(value) => part.insert(key, value),
            None => part.remove(&key),
        };
    }

    /// All of them, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Arc<Json>)> {
        self.0.iter().flat_map(|part| part.iter())
    }

    /// Those of one kind, in no order that means anything. Costs what there is of that kind, and a look into each part.
    pub fn of_kind(&self, kind: ResourceKind) -> impl Iterator<Item = (&Arc<str>, &Arc<Json>)> {
        let from: Name = (kind, Arc::from(""));
        self.0.iter().flat_map(move |part| {
            let rest = part.range(from.clone()..);
            rest.map_while(move |((of, name), value)| (*of == kind).then_some((name, value)))
        })
    }

    /// As the configuration has it, in order of kind and name.
    #[must_use]
    pub fn resources(&self) -> Resources {
        self.iter().map(|((kind, name), value)| ((*kind, name.to_string()), (**value).clone())).collect()
    }

    /// What leads from here to there, in order of kind and name.
    #[must_use]
    pub fn changes(&self, to: &Self) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (from, to) in self.unshared(to) {
            let edit = |key: &Name, value: Option<&Arc<Json>>| Edit {
                kind: key.0,
                name: key.1.clone(),
                value: value.cloned(),
            };
            edits.extend(from.keys().filter(|key| !to.contains_key(*key)).map(|key| edit(key, None)));
            let differs = |(key, value): &(&Name, &Arc<Json>)| from.get(*key) != Some(*value);
            edits.extend(to.iter().filter(differs).map(|(key, value)| edit(key, Some(value))));
        }
        edits.sort_unstable_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        edits
    }

    fn unshared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Part, &'a Part)> {
        let pairs = self.0.iter().zip(other.0.iter());
        pairs.filter(|(a, b)| !Arc::ptr_eq(a, b)).map(|(a, b)| (&**a, &**b))
    }
}

impl FromIterator<(Name, Arc<Json>)> for Entries {
    fn from_iter<T: IntoIterator<Item = (Name, Arc<Json>)>>(items: T) -> Self {
        let mut parts = vec![Part::new(); PARTS];
        for (key, value) in items {
            if let Some(part) = parts.get_mut(part_of(key.0, &key.1)) {
                part.insert(key, value);
            }
        }
        Self(Arc::new(parts.into_iter().map(Arc::new).collect()))
    }
}

impl From<Resources> for Entries {
    fn from(resources: Resources) -> Self {
        resources.into_iter().map(|((kind, name), value)| ((kind, Arc::from(name)), Arc::new(value))).collect()
    }
}

/// Only within one process: nothing rests on which part it is.
fn part_of(kind: ResourceKind, name: &str) -> usize {
    (xxh3_64(name.as_bytes()) as usize).wrapping_add(kind as usize) % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResourceKind::{Pin, Tenant};

    fn entries(of: &[(ResourceKind, &str, i64)]) -> Entries {
        of.iter().map(|(kind, name, value)| ((*kind, Arc::from(*name)), Arc::new(Json::from(*value)))).collect()
    }

    #[test]
    fn changes_lead_from_one_to_the_other() {
        let from = entries(&[(Tenant, "a", 1), (Pin, "a/m", 1), (Pin, "b/m", 1)]);
        let to = entries(&[(Tenant, "a", 1), (Pin, "a/m", 2), (Pin, "c/m", 3)]);
        let edits = from.changes(&to);
        let told: Vec<_> = edits.iter().map(|e| (e.kind, &*e.name, e.value.as_ref().map(|v| v.to_string()))).collect();
        let text = |t: &str| Some(t.to_owned());
        assert_eq!(told, [(Pin, "a/m", text("2")), (Pin, "b/m", None), (Pin, "c/m", text("3"))]);
        let mut reached = from.clone();
        edits.into_iter().for_each(|edit| reached.apply(edit));
        assert_eq!((&reached, reached.len()), (&to, 3));
        assert_ne!(from, to, "the copy was edited, not what it was copied from");
        assert!(to.changes(&to.clone()).is_empty());
        assert_eq!(Entries::from(to.resources()), to);
        assert_eq!(to.get(Pin, "c/m").map(|v| v.to_string()), text("3"));
    }

    #[test]
    fn an_edit_of_many_shares_all_but_one_part() {
        let many: Entries =
            (0..50_000).map(|n| ((Tenant, Arc::from(format!("t{n}"))), Arc::new(Json::from(n)))).collect();
        let mut edited = many.clone();
        edited.apply(Edit { kind: Tenant, name: "t7".into(), value: None });
        assert_eq!(many.unshared(&edited).count(), 1);
        assert_eq!((many.changes(&edited).len(), edited.len()), (1, 49_999));
    }
}
