//! A store of either backend, a desk before it, and words for what is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdfast_config::ResourceKind::{Pin, Tenant, Version as Ver};
use holdfast_config::{Frame, ResourceKind, Source, Split, Truth as Owner, assemble, load, split};
use holdfast_control::desk::{Activation, Ask, Desk, DeskSettings, PinMove, Retired, What};
use holdfast_plane::{Edit, Entries};
use holdfast_store::{Embedded, EmbeddedOptions, Postgres, PostgresOptions, Space, Store};
use holdfast_testkit::{PostgresServer, TempDir};
use holdfast_types::{ModelName, Revision, TenantId, Version};
use serde_json::{Value as Json, json};

pub const PATIENCE: Duration = Duration::from_secs(30);

pub enum Bench {
    Embedded(TempDir),
    Postgres(Box<PostgresServer>),
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Bench {
    pub fn embedded() -> Self {
        Self::Embedded(TempDir::new())
    }

    pub async fn postgres() -> Self {
        Self::Postgres(Box::new(PostgresServer::start().await))
    }

    /// An empty store, and a way to have a second handle to it where the backend has one.
    pub async fn store(&self) -> (Arc<dyn Store>, String) {
        let name = format!("desk_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        (self.open(&name).await, name)
    }

    async fn open(&self, name: &str) -> Arc<dyn Store> {
        match self {
            Self::Embedded(dir) => {
                let options = EmbeddedOptions { deadline: PATIENCE, ..EmbeddedOptions::default() };
                Arc::new(Embedded::open(&dir.join(name), options).await.unwrap())
            }
            Self::Postgres(server) => {
                let options = PostgresOptions {
                    schema: name.to_owned(),
                    deadline: PATIENCE,
                    ..PostgresOptions::new(server.url())
                };
                Arc::new(Postgres::open(options).await.unwrap())
            }
        }
    }

    pub async fn second(&self, name: &str, first: &Arc<dyn Store>) -> Arc<dyn Store> {
        match self {
            Self::Embedded(_) => first.clone(),
            Self::Postgres(_) => self.open(name).await,
        }
    }

    /// A desk over a store with the first content.
    pub async fn seeded(&self) -> (Arc<Desk>, Arc<dyn Store>, String) {
        let (store, name) = self.store().await;
        let desk = desk(&store, Owner::Store).await;
        desk.adopt_file(file(TEXT), frame(TEXT), 1, Retired::new(), None).await.unwrap();
        (desk, store, name)
    }
}

pub const TEXT: &str = "
auth: { trusted_header: x-tenant }
pools:
  - { name: p, protocol: open-inference, residency: repository, replicas: [{ name: r, url: 'http://127.0.0.1:1' }] }
models:
  - { name: m, pool: p, versions: [{ version: '1', size: 1 }, { version: '2', size: 1 }, { version: '3', size: 1 }] }
tenants:
  - { name: a, pins: { m: '1' } }
  - { name: b, pins: { m: '1' } }
  - { name: c }
";

pub fn file(text: &str) -> Split {
    split(&Source::text("c.yaml", text)).unwrap()
}

pub fn frame(text: &str) -> Frame {
    Frame::new(file(text).rest)
}

pub async fn desk(store: &Arc<dyn Store>, owner: Owner) -> Arc<Desk> {
    let settings = DeskSettings { owner, ..DeskSettings::default() };
    Desk::open(store.clone(), frame(TEXT), settings).await.unwrap()
}

pub fn ask(edits: Vec<Edit>) -> Ask {
    Ask {
        base: None,
        author: "ann".to_owned(),
        reason: "because".to_owned(),
        at_ms: 1_700_000_000_000,
        what: What::Edits(edits),
        dry_run: false,
        options: None,
        retired: Retired::new(),
        term: None,
    }
}

pub fn put(kind: ResourceKind, name: &str, value: Json) -> Edit {
    Edit { kind, name: name.into(), value: Some(Arc::new(value)) }
}

pub fn pin(name: &str, version: &str) -> Edit {
    put(Pin, name, version.into())
}

pub fn no_pin(name: &str) -> Edit {
    Edit { kind: Pin, name: name.into(), value: None }
}

pub fn tenant(name: &str) -> Edit {
    put(Tenant, name, json!({}))
}

pub fn no_version(name: &str) -> Edit {
    Edit { kind: Ver, name: name.into(), value: None }
}

pub fn activation(desk: &Desk, pins: &[(&str, &str)], term: u64) -> Activation {
    let moved = |(name, version): &(&str, &str)| {
        let (tenant, model) = name.split_once('/').unwrap();
        PinMove {
            tenant: TenantId::parse(tenant).unwrap(),
            model: ModelName::parse(model).unwrap(),
            version: Version::parse(version).unwrap(),
            share: 100,
        }
    };
    Activation {
        expected: desk.truth().head.in_force,
        author: "roll-out".to_owned(),
        reason: "warm".to_owned(),
        at_ms: 1_700_000_000_001,
        pins: pins.iter().map(moved).collect(),
        records: Vec::new(),
        term,
    }
}

/// `a/m=1 b/m=1`.
pub fn pins(entries: &Entries) -> String {
    let pins: BTreeMap<_, _> = entries.of_kind(Pin).collect();
    let words: Vec<String> = pins.into_iter().map(|(name, at)| format!("{name}={}", at.as_str().unwrap())).collect();
    words.join(" ")
}

/// What is promised of every truth, and that it is what the store holds.
pub async fn promises(desk: &Desk) {
    let truth = desk.refresh().await.unwrap();
    for entries in [&truth.desired, &truth.in_force] {
        let text = assemble(&desk.frame().rest, &entries.resources());
        load(&Source::text("again", &text)).unwrap();
    }
    for (name, at) in truth.in_force.of_kind(Pin) {
        let version = format!("{}/{}", name.split_once('/').unwrap().1, at.as_str().unwrap());
        assert!(truth.in_force.get(Ver, &version).is_some(), "{name} is at {version}");
    }
    let settings = DeskSettings::default();
    let anew = Desk::open(desk.store().clone(), (*desk.frame()).clone(), settings).await.unwrap().truth();
    assert_eq!(anew.head, truth.head);
    assert_eq!((&anew.desired, &anew.in_force, &anew.pending), (&truth.desired, &truth.in_force, &truth.pending));
    for (space, digest) in [(Space::Desired, truth.head.digests.desired), (Space::InForce, truth.head.digests.in_force)]
    {
        let header = desk.history(Some(Revision(truth.head.revision.0 + 1)), 1).await.unwrap().remove(0);
        assert_eq!(header.digests.of(space), digest);
    }
}
