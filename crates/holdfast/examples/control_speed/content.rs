//! The tables that are measured with.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_config::{Frame, ResourceKind, Source, split};
use holdfast_plane::{Edit, Table};
use holdfast_store::digest::{Tree, leaf};
use holdfast_types::Revision;
use serde_json::json;

/// Models, each with so many versions.
const MODELS: usize = 10;
const VERSIONS: usize = 10;
const REPLICAS: usize = 20;

/// A table of so many tenants with a pin each, and the settings of a process that serves it. Its replicas are nowhere.
pub fn table(tenants: usize) -> (Arc<Table>, Frame) {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let holds: Vec<_> = (0..MODELS * VERSIONS)
        .map(|n| json!({"model": format!("m{}", n % MODELS), "version": (n / MODELS).to_string()}))
        .collect();
    let replicas: Vec<_> =
        (0..REPLICAS).map(|n| json!({"name": format!("r{n}"), "url": format!("http://h{n}.invalid:{}", nowhere.port()), "holds": holds})).collect();
    let versions: Vec<_> = (0..VERSIONS).map(|n| json!({"version": n.to_string()})).collect();
    let models: Vec<_> =
        (0..MODELS).map(|n| json!({"name": format!("m{n}"), "pool": "main", "versions": versions})).collect();
    let rows = (0..tenants).map(|n| {
        format!("  - {{ name: t{n}, subset: 2, pins: {{ m{}: \"{}\" }} }}\n", n % MODELS, n / MODELS % VERSIONS)
    });
    let text = format!(
        "auth: {{ trusted_header: x-tenant }}\npools: {}\nmodels: {}\ntenants:\n{}",
        json!([{"name": "main", "protocol": "open-inference", "residency": "static", "replicas": replicas}]),
        json!(models),
        rows.collect::<String>()
    );
    let taken = split(&Source::text("speed.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}"));
    let table = Table { revision: Revision(1), entries: taken.resources.into(), ..Table::default() };
    (Arc::new(table), Frame::new(taken.rest))
}

/// A table that goes on, with the digests of its parts.
pub struct Growing {
    /// As it is now.
    pub table: Arc<Table>,
    tree: Tree<(&'static str, Arc<str>)>,
}

impl Growing {
    /// From this table on.
    pub fn from(table: &Table) -> Self {
        let mut tree = Tree::default();
        for ((kind, name), value) in table.entries.iter() {
            tree.set((kind.as_str(), name.clone()), Some(leaf(value.to_string().as_bytes())));
        }
        let table = Table { digest: tree.root().to_string().into(), ..table.clone() };
        Self { table: Arc::new(table), tree }
    }

    /// The next table: the pin of one tenant at another version.
    pub fn moved(&mut self, tenant: usize) -> Arc<Table> {
        let name: Arc<str> = format!("t{tenant}/m{}", tenant % MODELS).into();
        let pin = self.table.entries.get(ResourceKind::Pin, &name);
        let now = pin.and_then(|pin| pin.as_str()?.parse::<usize>().ok()).expect("a pin");
        let value = json!(((now + 1) % VERSIONS).to_string());
        let mut table = (*self.table).clone();
        self.tree.set((ResourceKind::Pin.as_str(), name.clone()), Some(leaf(value.to_string().as_bytes())));
        table.entries.apply(Edit { kind: ResourceKind::Pin, name, value: Some(Arc::new(value)) });
        (table.revision, table.digest) = (Revision(table.revision.0 + 1), self.tree.root().to_string().into());
        self.table = Arc::new(table);
        self.table.clone()
    }
}
