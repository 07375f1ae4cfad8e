//! The stores of limits: one, a ring of plain ones, or a cluster.
//!
//! Limits are spread over 64 slots, each of which is at one node, with all that a decision about it needs. Of plain nodes the place follows from slot and
//! addresses alone, so that all gateways find it without a word. A cluster says where its slots are: each node is asked when it is connected to and now and
//! then, what most of them say counts, and one that answers that a slot has moved is followed at once. A slot whose node is away is nobody else's meanwhile:
//! its limits are applied by parts, as with one store that is away, so no token is made twice.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{FromRedisValue, ScriptInvocation};
use tokio::task::JoinHandle;

use crate::access::Address;
use crate::ask::SLOTS;
use crate::connection::{Options, State, Store};
use crate::{Down, cluster};

/// Nodes that are connected to at most.
const MOST: usize = 64;
/// How often it is looked for what nodes say about their cluster.
const LOOK: Duration = Duration::from_millis(250);

struct Node {
    address: Address,
    store: Arc<Store>,
    task: Option<JoinHandle<()>>,
    /// It is configured, so it is never left.
    is_seed: bool,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

struct Known {
    nodes: Vec<Node>,
    /// Of each slot, its node's address.
    owners: Vec<Address>,
    runs: bool,
}

/// See the module.
pub struct Stores {
    options: Options,
    known: Mutex<Known>,
}

impl Stores {
    /// That of the options, and more plain nodes, over which limits are spread. Nothing is connected yet.
    ///
    /// # Errors
    /// A URL is none, in the words of who reads it.
    pub fn new(options: Options, more: &[String]) -> Result<Arc<Self>, String> {
        let mut nodes = Vec::new();
        for url in std::iter::once(&options.url).chain(more) {
            let address = Address::parse(url)?;
            let store = Store::new(Options { url: url.clone(), ..options.clone() })?;
            nodes.push(Node { address, store, task: None, is_seed: true });
        }
        let addresses: Vec<&Address> = nodes.iter().map(|node| &node.address).collect();
        let owners = (0..SLOTS).filter_map(|slot| place(slot, &addresses)).collect();
        Ok(Arc::new(Self { options, known: Mutex::new(Known { nodes, owners, runs: false }) }))
    }

    /// Keeps connections, and follows the cluster, for ever.
    pub async fn run(self: Arc<Self>) {
        {
            let mut known = self.known.lock();
            known.runs = true;
            known.nodes.iter_mut().for_each(Node::start);
        }
        loop {
            tokio::time::sleep(LOOK).await;
            self.look();
        }
    }

    /// How they do, taken together: up if every node of a slot is.
    #[must_use]
    pub fn state(&self) -> State {
        let known = self.known.lock();
        let mut all = State { up: true, ..State::default() };
        for node in &known.nodes {
            let state = node.store.state();
            all.up &= state.up || !known.owners.contains(&node.address);
            all.calls += state.calls;
            all.failures += state.failures;
            all.connects += state.connects;
            all.gateways = all.gateways.max(state.gateways);
        }
        all
    }

    /// Why one of them cannot be connected to, if that is so.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        let known = self.known.lock();
        known.nodes.iter().filter(|node| known.owners.contains(&node.address)).find_map(|node| node.store.why())
    }

    /// Live gateways, as far as is known; at least this one.
    #[must_use]
    pub fn gateways(&self) -> u32 {
        match self.known.lock().nodes.iter().map(|node| node.store.state().gateways).max() {
            None | Some(0) => self.options.gateways.max(1),
            Some(told) => u32::try_from(told).unwrap_or(u32::MAX),
        }
    }

    /// What the keys of a slot begin with. What is in braces decides in a cluster where they are.
    pub(crate) fn base(&self, slot: u64) -> String {
        base(&self.options.namespace, slot)
    }

    /// Makes a call at the node of the slot, within the deadline. One that was not done, since the slot has moved, is made once more where it is.
    ///
    /// # Errors
    /// [`Down`].
    pub(crate) async fn call<T: FromRedisValue>(&self, slot: u64, call: &ScriptInvocation<'_>) -> Result<T, Down> {
        let Some((store, address)) = self.at(slot) else { return Err(Down::Away) };
        match store.call(call).await {
            Err(Down::Moved(to)) => {
                let to = address.beside(&to).ok_or(Down::Away)?;
                self.moved(slot, &to).ok_or(Down::Away)?.call(call).await
            }
            Err(Down::Asks(to)) => {
                let to = address.beside(&to).ok_or(Down::Away)?;
                self.node(&to).ok_or(Down::Away)?.call_asking(call).await
            }
            answer => answer,
        }
    }

    fn at(&self, slot: u64) -> Option<(Arc<Store>, Address)> {
        let known = self.known.lock();
        let owner = known.owners.get(usize::try_from(slot % SLOTS).ok()?)?;
        let node = known.nodes.iter().find(|node| node.address == *owner)?;
        Some((node.store.clone(), owner.clone()))
    }

    /// The slot is there from now on.
    fn moved(&self, slot: u64, to: &Address) -> Option<Arc<Store>> {
        let store = self.node(to)?;
        if let Some(owner) = usize::try_from(slot % SLOTS)
            .ok()
            .and_then(|slot| self.known.lock().owners.get_mut(slot).map(|owner| std::mem::replace(owner, to.clone())))
            && owner != *to
        {
            tracing::info!(slot, %to, "a slot of limits has moved");
        }
        Some(store)
    }

    /// The node with this address; it is connected to if it is new. None: there are too many.
    fn node(&self, address: &Address) -> Option<Arc<Store>> {
        let mut known = self.known.lock();
        if let Some(node) = known.nodes.iter().find(|node| node.address == *address) {
            return Some(node.store.clone());
        }
        if known.nodes.len() >= MOST {
            return None;
        }
        let store = Store::new(Options { url: address.to_string(), ..self.options.clone() }).ok()?;
        let mut node = Node { address: address.clone(), store: store.clone(), task: None, is_seed: false };
        if known.runs {
            node.start();
        }
        known.nodes.push(node);
        Some(store)
    }

    /// Follows what most of the nodes that answer say about their cluster, and leaves nodes that are of no use.
    fn look(&self) {
        let views: Vec<_> = {
            let known = self.known.lock();
            let view = |node: &Node| node.store.view().map(|view| (node.address.clone(), view));
            known.nodes.iter().filter_map(view).collect()
        };
        if views.is_empty() {
            return;
        }
        for slot in 0..SLOTS {
            let says = |(from, view): &(Address, cluster::View)| from.beside(view.owner(cluster::slot_of(slot))?);
            let said: Vec<Address> = views.iter().filter_map(says).collect();
            let most = said.iter().find(|one| said.iter().filter(|other| other == one).count() * 2 > views.len());
            if let Some(most) = most {
                self.moved(slot, most);
            }
        }
        let mut known = self.known.lock();
        let owners = std::mem::take(&mut known.owners);
        known.nodes.retain(|node| node.is_seed || owners.contains(&node.address));
        known.owners = owners;
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        self.known.lock().nodes.clear();
    }
}

impl Node {
    fn start(&mut self) {
        if self.task.is_none() {
            self.task = Some(tokio::spawn(self.store.clone().run()));
        }
    }
}

/// What the keys of a slot begin with.
pub(crate) fn base(namespace: &str, slot: u64) -> String {
    format!("holdfast:{namespace}:{{{}}}", slot % SLOTS)
}

/// The node of a slot among plain ones: that with the highest number for it (rendezvous hashing), so that one node more takes its part from all others and
/// moves nothing else.
fn place(slot: u64, nodes: &[&Address]) -> Option<Address> {
    let weigh = |address: &Address| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ mix(slot);
        address.to_string().bytes().for_each(|byte| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        mix(hash)
    };
    nodes.iter().max_by_key(|address| weigh(address)).map(|&address| address.clone())
}

fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_node_more_moves_only_what_it_takes() {
        let nodes: Vec<Address> =
            (1..=4).map(|n| Address::parse(&format!("redis://10.0.0.{n}:6379")).unwrap()).collect();
        let of = |count: usize| -> Vec<Address> {
            let some: Vec<&Address> = nodes[..count].iter().collect();
            (0..SLOTS).map(|slot| place(slot, &some).unwrap()).collect()
        };
        let (three, four) = (of(3), of(4));
        for node in &nodes {
            let count = four.iter().filter(|owner| *owner == node).count();
            assert!((6..=30).contains(&count), "{count} of 64 slots at {node}");
        }
        assert!(three.iter().zip(&four).all(|(before, after)| before == after || *after == nodes[3]));
        // All gateways find the same, in whatever order they name them.
        let turned: Vec<&Address> = nodes.iter().rev().collect();
        assert!((0..SLOTS).all(|slot| place(slot, &turned).unwrap() == four[slot as usize]));
    }
}
