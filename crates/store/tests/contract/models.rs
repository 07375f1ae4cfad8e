//! A random history against a model in memory: every revision stays readable as it was.

use crate::support::{Bench, all, at, change, digest_of, flip, gone, put};
use holdfast_store::{Edit, Error, Json, Place, Space, Store, digest};
use holdfast_types::Revision;
use std::collections::BTreeMap;

type Content = BTreeMap<Place, (Json, Revision)>;

/// A small generator with a fixed seed: a failure comes again.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn edit(&mut self, space: Space) -> Edit {
        let kind = ["pin", "pin_x", "tenant"][usize::try_from(self.below(3)).unwrap()];
        let name = ["a", "a/b", "a-b", "b", "b.c/d", "z"][usize::try_from(self.below(6)).unwrap()];
        let place = at(space, kind, name);
        if self.below(3) == 0 { gone(place) } else { put(place, self.below(3)) }
    }
}

async fn grow(store: &dyn Store, revisions: u64) -> Vec<Content> {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let mut states = vec![Content::new()];
    let mut desired = 0;
    for revision in 1..=revisions {
        let activation = draw.below(2) == 0;
        let mut edits: BTreeMap<Place, Edit> = BTreeMap::new();
        for _ in 0..draw.below(7) {
            let space = if activation || draw.below(3) == 0 { Space::InForce } else { Space::Desired };
            let edit = draw.edit(space);
            edits.insert(edit.place.clone(), edit);
        }
        let edits: Vec<Edit> = edits.into_values().rev().collect();
        let mut state = states.last().unwrap().clone();
        for Edit { place, value } in edits.clone() {
            match value {
                Some(value) if state.get(&place).is_some_and(|(old, _)| *old == value) => {}
                Some(value) => drop(state.insert(place, (value, Revision(revision)))),
                None => drop(state.remove(&place)),
            }
        }
        let header = store.append(if activation { flip(edits) } else { change(desired, edits) }).await.unwrap();
        desired = store.head().await.unwrap().desired.0;
        for space in Space::ALL {
            let content = state.iter().filter(|(place, _)| place.space == space);
            let scratch = digest::of_space(content.map(|(place, (value, _))| (&place.key, value.as_bytes())));
            assert_eq!(header.digests.of(space), scratch, "{space} at {revision}");
        }
        states.push(state);
    }
    states
}

fn shown(content: &Content, space: Space) -> Vec<(Place, Json, Revision)> {
    let here = content.iter().filter(|(place, _)| place.space == space);
    here.map(|(place, (value, revision))| (place.clone(), value.clone(), *revision)).collect()
}

pub async fn every_revision_reads_as_it_was(bench: Bench) {
    let store = bench.fresh().await;
    let states = grow(&*store, 40).await;
    for (revision, content) in states.iter().enumerate() {
        for space in Space::ALL {
            let size = [1, 2, 5, 1_000][revision % 4];
            let read = all(&*store, space, Some(Revision(revision as u64)), size).await;
            let read: Vec<_> = read.into_iter().map(|r| (Place { space, key: r.key }, r.value, r.revision)).collect();
            assert_eq!(read, shown(content, space), "{space} at {revision} in pages of {size}");
        }
    }
    for (from, to) in [(0, 40), (40, 0), (7, 8), (20, 20), (33, 12), (3, 39)] {
        differences(&*store, &states, from, to).await;
    }
}

async fn differences(store: &dyn Store, states: &[Content], from: usize, to: usize) {
    let value = |at: usize, place: &Place| states[at].get(place).map(|(value, _)| value.clone());
    let mut places: Vec<&Place> = states[from].keys().chain(states[to].keys()).collect();
    places.sort();
    places.dedup();
    let expected: Vec<_> =
        places.iter().map(|p| ((*p).clone(), value(from, p), value(to, p))).filter(|(_, a, b)| a != b).collect();
    for size in [1, 3, 1_000] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.diff(Revision(from as u64), Revision(to as u64), after, size).await.unwrap();
            found.extend(page.items.into_iter().map(|d| (d.place, d.before, d.after)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{from} to {to} in pages of {size}");
    }
}

pub async fn both_spaces_page_by_page(bench: Bench) {
    let store = bench.fresh().await;
    let states = grow(&*store, 12).await;
    for place in states[12].keys().chain(states[6].keys()) {
        for revision in [6, 12] {
            let got = store.get(place.clone(), Some(Revision(revision))).await.unwrap().map(|r| (r.value, r.revision));
            assert_eq!(got.as_ref(), states[usize::try_from(revision).unwrap()].get(place), "{place} at {revision}");
        }
    }
    for revision in 1..=12_u64 {
        let edits = store.edits(Revision(revision), None, 1_000).await.unwrap().items;
        let (before, after) =
            (&states[usize::try_from(revision).unwrap() - 1], &states[usize::try_from(revision).unwrap()]);
        let mut state = before.clone();
        for Edit { place, value } in edits {
            assert_ne!(before.get(&place).map(|(v, _)| v), value.as_ref(), "an edit without effect");
            match value {
                Some(value) => drop(state.insert(place, (value, Revision(revision)))),
                None => drop(state.remove(&place)),
            }
        }
        assert_eq!(&state, after, "the edits of {revision} lead from the state before to the state after");
    }
    for space in Space::ALL {
        assert_eq!(digest_of(&*store, space, None).await, store.head().await.unwrap().digests.of(space));
    }
}

pub async fn what_is_kept_after_a_prune_reads_as_before(bench: Bench) {
    let store = bench.fresh().await;
    let states = grow(&*store, 30).await;
    let head = store.head().await.unwrap();
    let too_far = store.prune(Revision(31), 100, None).await;
    assert!(matches!(too_far, Err(Error::NoRevision { .. })), "{too_far:?}");
    for (floor, limit) in [(9, 1), (20, 3), (15, 10), (30, 1_000)] {
        let mut calls = 0;
        loop {
            let pruned = store.prune(Revision(floor), limit, None).await.unwrap();
            assert!(pruned.removed <= 3 * limit as u64, "bounded: {pruned:?}");
            let floor = usize::try_from(pruned.floor.0).unwrap();
            for (revision, content) in states.iter().enumerate().skip(floor) {
                for space in Space::ALL {
                    let read = all(&*store, space, Some(Revision(revision as u64)), 4).await;
                    let read: Vec<_> =
                        read.into_iter().map(|r| (Place { space, key: r.key }, r.value, r.revision)).collect();
                    assert_eq!(read, shown(content, space), "{space} at {revision} above {floor}");
                }
            }
            calls += 1;
            if !pruned.more {
                break;
            }
        }
        assert!(calls > 1 || limit > 1, "one row at a time takes more than one call");
    }
    let gone = store.read(Space::Desired, Some(Revision(29)), None, 10).await;
    assert!(matches!(gone, Err(Error::NoRevision { floor: Revision(30), .. })), "{gone:?}");
    assert!(store.diff(Revision(20), Revision(30), None, 10).await.is_err());
    assert_eq!(store.history(None, 100).await.unwrap().len(), 1);
    let now = store.head().await.unwrap();
    assert_eq!((now.digests, now.revision, now.floor), (head.digests, head.revision, Revision(30)));
    let refused = store.append(change(0, vec![])).await.unwrap_err();
    let Error::Conflict(conflict) = refused else { panic!("{refused:?}") };
    assert!(conflict.more, "the list of what changed since is not whole");

    let file = bench.file("pruned");
    store.backup(file.clone()).await.unwrap();
    let other = bench.fresh().await;
    other.restore(file).await.unwrap();
    assert_eq!(other.head().await.unwrap(), now);
    for space in Space::ALL {
        assert_eq!(all(&*other, space, None, 7).await, all(&*store, space, None, 7).await);
    }
    store.append(change(30, vec![put(at(Space::Desired, "pin", "a"), "new")])).await.unwrap();
    assert_eq!(store.diff(Revision(30), Revision(31), None, 10).await.unwrap().items.len(), 1);
    let fenced = store.lead().await.unwrap().unwrap();
    assert!(matches!(store.prune(Revision(31), 10, Some(fenced.term() - 1)).await, Err(Error::Fenced { .. })));
}
