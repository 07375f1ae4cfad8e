//! A store that loses answers: after it has committed, before, and instead.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_control::rollouts::Head;
use holdfast_store::backup::Summary;
use holdfast_store::*;
use holdfast_testkit::TempDir;
use holdfast_types::Revision;

use crate::gateway::Gateways;
use crate::kills::next;
use crate::support::*;

const SEEDS: u64 = 40;
const AT_ONCE: u64 = 8;

struct Forgetful {
    inner: Arc<dyn Store>,
    random: AtomicU64,
    on: AtomicBool,
    lost: AtomicU64,
}

impl Forgetful {
    fn lose(&self, applied: Applied) -> Error {
        self.lost.fetch_add(1, Ordering::Relaxed);
        Error::Unavailable { what: "the line broke".to_owned(), applied }
    }
}

impl Store for Forgetful {
    fn commit(&self, commit: Commit) -> Fut<'_, Committed> {
        let mut random = self.random.fetch_add(1, Ordering::Relaxed);
        let fate = if self.on.load(Ordering::Relaxed) { next(&mut random) % 8 } else { 7 };
        Box::pin(async move {
            match fate {
                0 | 1 => {
                    self.inner.commit(commit).await?;
                    Err(self.lose(Applied::Maybe))
                }
                2 => Err(self.lose(Applied::Maybe)),
                3 => Err(self.lose(Applied::No)),
                _ => self.inner.commit(commit).await,
            }
        })
    }

    fn head(&self) -> Fut<'_, holdfast_store::Head> {
        self.inner.head()
    }
    fn read(
        &self,
        space: Space,
        at: Option<Revision>,
        after: Option<Key>,
        limit: usize,
    ) -> Fut<'_, Page<Resource, Key>> {
        self.inner.read(space, at, after, limit)
    }
    fn get(&self, place: Place, at: Option<Revision>) -> Fut<'_, Option<Resource>> {
        self.inner.get(place, at)
    }
    fn edits(&self, revision: Revision, after: Option<Place>, limit: usize) -> Fut<'_, Page<Edit, Place>> {
        self.inner.edits(revision, after, limit)
    }
    fn history(&self, before: Option<Revision>, limit: usize) -> Fut<'_, Vec<Header>> {
        self.inner.history(before, limit)
    }
    fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Fut<'_, Page<Difference, Place>> {
        self.inner.diff(from, to, after, limit)
    }
    fn record(&self, kind: String, id: String) -> Fut<'_, Option<Record>> {
        self.inner.record(kind, id)
    }
    fn records(&self, kind: String, after: Option<String>, limit: usize) -> Fut<'_, Vec<Record>> {
        self.inner.records(kind, after, limit)
    }
    fn watch(&self) -> Watch {
        self.inner.watch()
    }
    fn lead(&self) -> Fut<'_, Option<Leader>> {
        self.inner.lead()
    }
    fn prune(&self, floor: Revision, limit: usize, term: Option<u64>) -> Fut<'_, Pruned> {
        self.inner.prune(floor, limit, term)
    }
    fn backup(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.inner.backup(file)
    }
    fn restore(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.inner.restore(file)
    }
    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}

async fn one(seed: u64) -> u64 {
    let dir = TempDir::new();
    let (inner, random) = (embedded(&dir).await, AtomicU64::new(seed << 32));
    let store = Arc::new(Forgetful { inner, random, on: AtomicBool::new(false), lost: AtomicU64::new(0) });
    let mut plane = Plane::start(store.clone(), settings(), &Gateways::new()).await;
    plane.seed(&table(3, 2, 2)).await;
    plane.gateways(2).await;
    let all = names(2, 2);
    plane.pin(&all, "2", None).await;
    store.on.store(true, Ordering::Relaxed);
    plane.drive();
    let heads = plane.settled(&format!("seed {seed}")).await;
    assert!(all.iter().all(|name| plane.in_force(name) == "2"), "seed {seed}: {heads:#?}");
    assert!(heads.iter().all(|h: &Head| h.stages.keys().eq(["done"])), "seed {seed}: {heads:#?}");
    plane.steps().await;
    plane.nothing_broken();
    store.lost.load(Ordering::Relaxed)
}

#[test]
fn answers_that_are_lost_cost_time_and_nothing_else() {
    let lane = |lane: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        (0..SEEDS).filter(|seed| seed % AT_ONCE == lane).map(|seed| runtime.block_on(one(seed))).sum::<u64>()
    };
    let lost = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..AT_ONCE).map(|number| scope.spawn(move || lane(number))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).sum::<u64>()
    });
    assert!(lost > SEEDS * 2, "only {lost} answers were lost");
}
