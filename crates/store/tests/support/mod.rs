//! A store of either backend on a test's own server or file, and words for changes.
#![allow(dead_code, reason = "each test binary uses its part")]

use holdfast_store::{
    Change, Digest, Edit, Embedded, EmbeddedOptions, Json, Key, Place, Postgres, PostgresOptions, Purpose, RecordWrite,
    Resource, Space, Store, digest,
};
use holdfast_testkit::{PostgresServer, TempDir};
use holdfast_types::Revision;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Long enough for a busy machine; what must be quick says so itself.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where a backend's stores live.
pub enum Bench {
    Embedded(TempDir),
    Postgres(Box<PostgresServer>, TempDir),
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Bench {
    pub fn embedded() -> Self {
        Self::Embedded(TempDir::new())
    }

    pub async fn postgres() -> Self {
        Self::Postgres(Box::new(PostgresServer::start().await), TempDir::new())
    }

    /// A name that no other store of this process has.
    pub fn name() -> String {
        format!("store_{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens the store of a name.
    pub async fn open(&self, name: &str) -> Arc<dyn Store> {
        match self {
            Self::Embedded(dir) => {
                let options = EmbeddedOptions { deadline: PATIENCE, ..EmbeddedOptions::default() };
                Arc::new(Embedded::open(&dir.join(name), options).await.unwrap())
            }
            Self::Postgres(server, _) => Arc::new(Postgres::open(options(server, name)).await.unwrap()),
        }
    }

    /// A new, empty store.
    pub async fn fresh(&self) -> Arc<dyn Store> {
        self.open(&Self::name()).await
    }

    /// A second gateway's view of the store of a name: another handle where the backend has several, else the same one.
    pub async fn second(&self, name: &str, first: &Arc<dyn Store>) -> Arc<dyn Store> {
        match self {
            Self::Embedded(_) => Arc::clone(first),
            Self::Postgres(..) => self.open(name).await,
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        match self {
            Self::Embedded(dir) | Self::Postgres(_, dir) => dir.join(name),
        }
    }
}

pub fn options(server: &PostgresServer, schema: &str) -> PostgresOptions {
    PostgresOptions { schema: schema.to_owned(), deadline: PATIENCE, ..PostgresOptions::new(server.url()) }
}

pub fn json(value: impl serde::Serialize) -> Json {
    Json::of(&value).unwrap()
}

pub fn key(kind: &str, name: &str) -> Key {
    Key::new(kind, name).unwrap()
}

pub fn at(space: Space, kind: &str, name: &str) -> Place {
    Place { space, key: key(kind, name) }
}

pub fn desired(name: &str) -> Place {
    at(Space::Desired, "pin", name)
}

pub fn in_force(name: &str) -> Place {
    at(Space::InForce, "pin", name)
}

pub fn put(place: Place, value: impl serde::Serialize) -> Edit {
    Edit { place, value: Some(json(value)) }
}

pub fn gone(place: Place) -> Edit {
    Edit { place, value: None }
}

/// A change of what is desired, by an author who saw `base`.
pub fn change(base: u64, edits: Vec<Edit>) -> Change {
    let (author, reason) = ("ann".to_owned(), format!("after {base}"));
    Change { purpose: Purpose::Change, base: Some(Revision(base)), author, reason, at_ms: 1_700_000_000_000, edits }
}

pub fn flip(edits: Vec<Edit>) -> Change {
    Change { purpose: Purpose::Activation, base: None, author: "roll-out".to_owned(), ..change(0, edits) }
}

pub fn record(id: &str, expected: Option<u64>, value: Option<&str>) -> RecordWrite {
    RecordWrite { kind: "rollout".to_owned(), id: id.to_owned(), expected, value: value.map(json) }
}

/// Everything in a space at a revision, read in pages of a size.
pub async fn all(store: &dyn Store, space: Space, revision: Option<Revision>, size: usize) -> Vec<Resource> {
    let (mut items, mut revision, mut after) = (Vec::new(), revision, None);
    loop {
        let page = store.read(space, revision, after.clone(), size).await.unwrap();
        assert!(page.items.len() <= size);
        items.extend(page.items);
        revision = Some(page.revision);
        let Some(next) = page.next else { return items };
        assert!(after.is_none_or(|last| next > last), "the cursor stands still");
        after = Some(next);
    }
}

/// The digest of what a store gives out, from scratch.
pub async fn digest_of(store: &dyn Store, space: Space, revision: Option<Revision>) -> Digest {
    let resources = all(store, space, revision, 1_000).await;
    let content: BTreeMap<_, _> = resources.iter().map(|r| (&r.key, r.value.as_bytes())).collect();
    digest::of_space(content)
}
