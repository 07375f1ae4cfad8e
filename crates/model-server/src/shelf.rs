//! What this server holds: loaded versions, loads under way, and the memory that both take.
//!
//! Invariant: memory in use is the sum of the sizes held and the sizes being loaded, and never passes the total. A load takes its memory
//! when it begins, so two loads that fit one by one but not together cannot both begin. State changes are synchronous; waiting for the
//! load's time, and telling the outcome, belong to the caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_types::Bytes;
use tokio::sync::watch;

use crate::model::Model;

/// How a load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The versions are held.
    Loaded,
    /// It failed, with the reason.
    Failed(String),
}

/// Resolves when a load ends; a closed channel without an outcome means that the load was cancelled.
pub type Waiter = watch::Receiver<Option<Outcome>>;

/// The answer to a wish to load.
#[derive(Debug)]
pub enum Begin {
    /// A new load: the caller carries it out and reports [`Shelf::finish`] under this number.
    Started {
        /// The load's number.
        id: u64,
        /// The longest load time that a file asks for; `None` if none does.
        time: Option<Duration>,
        /// Ends with the load.
        waiter: Waiter,
    },
    /// The name is being loaded already; its outcome is this load's outcome too.
    Joined(Waiter),
    /// Exactly these files are held; nothing to do.
    Held,
    /// No room; nothing changed.
    NoRoom {
        /// What the load takes.
        needs: Bytes,
        /// What is free.
        free: Bytes,
    },
}

/// Why there is no model to serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing was ever loaded under the name.
    Unknown,
    /// No version is held, though the name is or was loaded.
    NoVersions,
    /// Other versions are held.
    NoVersion,
    /// This version is being loaded.
    NotReady,
}

/// A version's state, as the index tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It answers.
    Ready,
    /// It is being loaded.
    Loading,
    /// It is not held; the text says why, if something failed or was unloaded.
    Unavailable(String),
}

/// The models held by one server.
#[derive(Debug)]
pub struct Shelf {
    total: Bytes,
    used: u64,
    next_id: u64,
    /// Bounded: a name enters only by a load of files that exist, and the oldest reasons go first (see [`MAX_NAMES`]).
    slots: BTreeMap<String, Slot>,
}

/// The most names that are remembered after they were unloaded.
const MAX_NAMES: usize = 10_000;

#[derive(Debug, Default)]
struct Slot {
    held: BTreeMap<String, Arc<Model>>,
    loading: Option<Loading>,
    reason: String,
}

#[derive(Debug)]
struct Loading {
    id: u64,
    /// All that the name has once the load is done: new ones and those that stay.
    target: Vec<Arc<Model>>,
    fresh: Vec<String>,
    reserved: u64,
    done: watch::Sender<Option<Outcome>>,
}

impl Shelf {
    /// An empty shelf with this much memory.
    #[must_use]
    pub fn new(total: Bytes) -> Self {
        Self { total, used: 0, next_id: 0, slots: BTreeMap::new() }
    }

    /// All the memory there is.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.total
    }

    /// The memory of what is held and of what is being loaded.
    #[must_use]
    pub fn used(&self) -> Bytes {
        Bytes(self.used)
    }

    /// Begins to load all of `models` under `name`. Versions held with the same digest stay as they are; other held versions keep
    /// answering until the load is done and are then replaced or dropped.
    pub fn begin(&mut self, name: &str, models: Vec<Model>) -> Begin {
        self.forget_beyond_bound();
        let slot = self.slots.entry(name.to_owned()).or_default();
        if let Some(loading) = &slot.loading {
            return Begin::Joined(loading.done.subscribe());
        }
        let is_held = |model: &Model| slot.held.get(model.version.as_str()).is_some_and(|h| h.digest == model.digest);
        let fresh: Vec<&Model> = models.iter().filter(|model| !is_held(model)).collect();
        if fresh.is_empty() && models.len() == slot.held.len() {
            return Begin::Held;
        }
        let needs = fresh.iter().fold(0u64, |sum, model| sum.saturating_add(model.size.0));
        let free = self.total.0.saturating_sub(self.used);
        if needs > free {
            return Begin::NoRoom { needs: Bytes(needs), free: Bytes(free) };
        }
        // Dropping versions that left the disk reads nothing and so takes no time.
        let time = if fresh.is_empty() {
            Some(Duration::ZERO)
        } else {
            fresh.iter().filter_map(|model| model.load_time).max()
        };
        let fresh = fresh.iter().map(|model| model.version.as_str().to_owned()).collect();
        let (done, waiter) = watch::channel(None);
        self.used += needs;
        self.next_id += 1;
        let id = self.next_id;
        let target = models.into_iter().map(Arc::new).collect();
        slot.reason.clear();
        slot.loading = Some(Loading { id, target, fresh, reserved: needs, done });
        Begin::Started { id, time, waiter }
    }

    /// Ends load `id` of `name`: puts the versions on the shelf, or gives the memory back and keeps the reason. Returns false, and does
    /// nothing, if that load was cancelled before.
    pub fn finish(&mut self, name: &str, id: u64, outcome: Outcome) -> bool {
        let Some(slot) = self.slots.get_mut(name) else { return false };
        let Some(loading) = slot.loading.take_if(|loading| loading.id == id) else { return false };
        self.used -= loading.reserved;
        match &outcome {
            Outcome::Failed(reason) => slot.reason.clone_from(reason),
            Outcome::Loaded => {
                let before = size_of(&slot.held);
                slot.held = loading.target.into_iter().map(|m| (m.version.as_str().to_owned(), m)).collect();
                self.used = self.used - before + size_of(&slot.held);
            }
        }
        loading.done.send_replace(Some(outcome));
        true
    }

    /// Gives up load `id` of `name`; those who wait see a closed channel. Returns false if it had ended before.
    pub fn cancel(&mut self, name: &str, id: u64) -> bool {
        let Some(slot) = self.slots.get_mut(name) else { return false };
        let Some(loading) = slot.loading.take_if(|loading| loading.id == id) else { return false };
        self.used -= loading.reserved;
        "load cancelled".clone_into(&mut slot.reason);
        true
    }

    /// Drops all versions of a name and cancels a load of it. Requests that run keep their model until they end. Returns how many versions
    /// were dropped and whether a load was cancelled; `None` if there was neither.
    pub fn unload(&mut self, name: &str) -> Option<(usize, bool)> {
        let slot = self.slots.get_mut(name)?;
        let cancelled = slot.loading.take();
        let dropped = std::mem::take(&mut slot.held);
        if cancelled.is_none() && dropped.is_empty() {
            return None;
        }
        self.used -= cancelled.as_ref().map_or(0, |loading| loading.reserved) + size_of(&dropped);
        "unloaded".clone_into(&mut slot.reason);
        Some((dropped.len(), cancelled.is_some()))
    }

    /// The model that answers for a name and, if given, a version. Without one it is the largest held, as servers of this protocol do.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, Missing> {
        let slot = self.slots.get(name).ok_or(Missing::Unknown)?;
        let Some(version) = version else {
            let largest = slot.held.values().max_by_key(|model| version_key(model.version.as_str()));
            return largest.cloned().ok_or(Missing::NoVersions);
        };
        let loads = slot.loading.as_ref().is_some_and(|loading| loading.fresh.iter().any(|fresh| fresh == version));
        match slot.held.get(version) {
            Some(model) => Ok(model.clone()),
            None if loads => Err(Missing::NotReady),
            None => Err(Missing::NoVersion),
        }
    }

    /// The state of one version.
    #[must_use]
    pub fn state(&self, name: &str, version: &str) -> State {
        match (self.find(name, Some(version)), self.slots.get(name)) {
            (Ok(_), _) => State::Ready,
            (Err(Missing::NotReady), _) => State::Loading,
            (Err(_), slot) => State::Unavailable(slot.map(|slot| slot.reason.clone()).unwrap_or_default()),
        }
    }

    /// The versions of a name that are held, in order.
    #[must_use]
    pub fn versions(&self, name: &str) -> Vec<String> {
        let mut versions: Vec<String> =
            self.slots.get(name).map(|slot| slot.held.keys().cloned().collect()).unwrap_or_default();
        versions.sort_by(|a, b| version_key(a).cmp(&version_key(b)));
        versions
    }

    /// Everything held, by name and version.
    pub fn held(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.slots.values().flat_map(|slot| slot.held.values())
    }

    fn forget_beyond_bound(&mut self) {
        if self.slots.len() >= MAX_NAMES {
            self.slots.retain(|_, slot| slot.loading.is_some() || !slot.held.is_empty());
        }
    }
}

fn size_of(held: &BTreeMap<String, Arc<Model>>) -> u64 {
    held.values().map(|model| model.size.0).sum()
}

/// Orders versions: numbers by value, and above all other texts.
fn version_key(version: &str) -> (Option<u64>, &str) {
    (version.parse().ok(), version)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Place;

    fn model(name: &str, version: &str, size: u64, mark: u64) -> Model {
        let file = format!(
            r#"{{"version":"{version}","labels":["a"],"bias":[{mark}],"weights":{{}},"size":"{size}","load_time":"{size}ms"}}"#
        );
        Model::parse(file.as_bytes(), Place { name, version: None }).unwrap()
    }

    fn started(begin: Begin) -> (u64, Waiter) {
        match begin {
            Begin::Started { id, waiter, .. } => (id, waiter),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn memory_is_taken_when_a_load_begins() {
        let mut shelf = Shelf::new(Bytes(10));
        let (a, waiter) = started(shelf.begin("a", vec![model("a", "1", 6, 0)]));
        assert!(matches!(
            shelf.begin("b", vec![model("b", "1", 5, 0)]),
            Begin::NoRoom { needs: Bytes(5), free: Bytes(4) }
        ));
        assert!(matches!(shelf.begin("a", vec![model("a", "1", 6, 0)]), Begin::Joined(_)));
        assert_eq!(shelf.find("a", Some("1")), Err(Missing::NotReady));
        assert_eq!(shelf.find("a", None), Err(Missing::NoVersions));
        assert_eq!(shelf.find("c", None), Err(Missing::Unknown));
        assert!(shelf.finish("a", a, Outcome::Loaded));
        assert_eq!(*waiter.borrow(), Some(Outcome::Loaded));
        assert!(matches!(shelf.begin("a", vec![model("a", "1", 6, 0)]), Begin::Held));
        assert_eq!((shelf.state("a", "1"), shelf.used()), (State::Ready, Bytes(6)));
    }

    #[test]
    fn a_failed_or_cancelled_load_gives_its_memory_back() {
        let mut shelf = Shelf::new(Bytes(10));
        let (id, _) = started(shelf.begin("a", vec![model("a", "1", 10, 0)]));
        assert!(shelf.finish("a", id, Outcome::Failed("bad weights".into())));
        assert_eq!((shelf.state("a", "1"), shelf.used()), (State::Unavailable("bad weights".into()), Bytes(0)));
        let (id, waiter) = started(shelf.begin("a", vec![model("a", "1", 10, 0)]));
        assert_eq!(shelf.unload("a"), Some((0, true)));
        assert!(waiter.has_changed().is_err(), "the waiter must see the cancel");
        assert!(!shelf.finish("a", id, Outcome::Loaded), "a cancelled load must not land");
        assert_eq!((shelf.used(), shelf.unload("a")), (Bytes(0), None));
    }

    #[test]
    fn a_reload_keeps_the_old_until_the_new_is_there() {
        let mut shelf = Shelf::new(Bytes(10));
        let (id, _) = started(shelf.begin("a", vec![model("a", "1", 2, 0), model("a", "2", 2, 0)]));
        shelf.finish("a", id, Outcome::Loaded);
        let old = shelf.find("a", Some("2")).unwrap();
        let (id, _) = started(shelf.begin("a", vec![model("a", "2", 3, 1), model("a", "10", 1, 0)]));
        assert_eq!(shelf.used(), Bytes(8), "old and new are both in memory");
        assert_eq!(shelf.find("a", Some("2")).unwrap().digest, old.digest);
        shelf.finish("a", id, Outcome::Loaded);
        assert_ne!(shelf.find("a", Some("2")).unwrap().digest, old.digest);
        assert_eq!(shelf.find("a", Some("1")), Err(Missing::NoVersion));
        assert_eq!((shelf.versions("a"), shelf.used()), (vec!["2".to_owned(), "10".to_owned()], Bytes(4)));
        assert_eq!(shelf.find("a", None).unwrap().version.as_str(), "10", "largest by number, not by text");
    }

    proptest! {
        #[test]
        fn memory_in_use_is_what_is_held_and_loading(steps in proptest::collection::vec((0u8..4, 0u8..3, 1u64..6), 1..60)) {
            let mut shelf = Shelf::new(Bytes(10));
            let mut open: Vec<(String, u64)> = Vec::new();
            for (what, name, size) in steps {
                let name = format!("m{name}");
                match what {
                    0 => {
                        if let Begin::Started { id, .. } = shelf.begin(&name, vec![model(&name, "1", size, size)]) {
                            open.push((name, id));
                        }
                    }
                    1 => { shelf.unload(&name); }
                    2 => { if let Some((name, id)) = open.pop() { shelf.finish(&name, id, Outcome::Loaded); } }
                    _ => { if let Some((name, id)) = open.pop() { shelf.cancel(&name, id); } }
                }
                let loading: u64 = shelf.slots.values().filter_map(|s| s.loading.as_ref()).map(|l| l.reserved).sum();
                let held: u64 = shelf.held().map(|model| model.size.0).sum();
                prop_assert_eq!(shelf.used(), Bytes(held + loading));
                prop_assert!(shelf.used() <= shelf.total());
            }
        }
    }
}
