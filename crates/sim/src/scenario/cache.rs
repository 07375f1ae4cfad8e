//! The world `cache`: cache nodes on a hash ring before an origin. Nodes are lost, join and flap; gateways learn of it one after the other; keys are
//! deleted meanwhile.
//!
//! The ring is the one of `placement`, who is in it is decided by `placement::health`; a node is [`super::node`].

use std::sync::Arc;
use std::time::Duration;

use holdfast_placement::hash::{Purpose, stable_hash};
use holdfast_placement::health::{Health, HealthConfig, HealthEvent};
use holdfast_placement::members::{Member, MemberList};
use holdfast_placement::ring::Ring;
use holdfast_types::{Mono, Revision, Weight};

use super::node::Node;
use super::{Ask, Broken, Knob, Report, Series, Set, World, knob};
use crate::chance::Chance;
use crate::queue::Queue;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Between two probes of a node.
const PROBE: u64 = 500 * MS;
/// A fill takes this long, half of it until the origin has read.
const FILL: u64 = 40 * MS;
/// A delete reaches its node after this time at most.
const DELETE: u64 = 2 * MS;

const KNOBS: &[Knob] = &[
    knob("nodes", 4, 1, 1_000, "cache nodes at the start"),
    knob("virtual_nodes", 100, 1, 1_000, "points of each on the ring"),
    knob("modulo", 0, 0, 1, "1: keys are placed by modulo, to compare"),
    knob("gateways", 4, 1, 64, "gateways, each with its own copy of the member list"),
    knob("reads", 870, 1, 1_000_000, "reads per second, a Poisson process"),
    knob("keys", 13_120, 1, 10_000_000, "keys, all read as often"),
    knob("ttl_ms", 20_000, 100, 3_600_000, "how long an entry lives, with a tenth of jitter either way"),
    knob("deletes", 0, 0, 100_000, "deletes per second"),
    knob("tombstones", 1, 0, 1, "0: a delete only removes, to compare"),
    knob("propagation_ms", 1_000, 1, 600_000, "within how long gateways learn of a new member list"),
    knob("seconds", 70, 10, 3_600, "how long"),
    knob("lose_at_s", 0, 0, 3_600, "when a node is lost; 0: none is"),
    knob("join_at_s", 0, 0, 3_600, "when a node joins; 0: none does"),
    knob("flaps", 0, 0, 1_000, "how often a node goes and comes"),
    knob("flap_at_s", 30, 1, 3_600, "when it begins to"),
    knob("flap_ms", 2_000, 100, 600_000, "how long it is gone, and there, each time"),
    knob("damped", 1, 0, 1, "0: one probe decides, to compare"),
];

/// See the module.
pub static WORLD: World = World {
    name: "cache",
    about: "cache nodes on a hash ring before an origin",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("origin_before", "of all reads: what reached the origin in the 10 s before anything happened"),
        ("origin_peak", "of all reads: the most that reached it over 2 s after that"),
        ("extra_of_hits", "what reached it in addition in the worst 2 s, of the reads that were hits"),
        ("origin_late", "of all reads: what reached it in the last 10 s"),
        ("moved", "of all keys: those that have another owner at the end than at the start"),
        ("list_changes", "new member lists"),
        ("stale_reads", "reads of what was deleted"),
        ("stale_longest_ms", "the longest time after a delete that it was read"),
        ("stale_agreed_ms", "the same where reader and deleter had one member list"),
    ],
    promises: &["CACHE-1"],
    run: simulate,
};

enum Ev {
    Read,
    Delete,
    Probe,
    Node { node: usize, up: bool },
    Learns { gateway: usize, list: usize },
    Filled { node: usize, key: usize, version: u32, begun: u64 },
    Deleted { node: usize, key: usize },
}

/// A member list, and who owns a key by it.
struct List {
    members: Vec<usize>,
    ring: Option<Ring>,
}

#[derive(Clone, Copy, Default)]
struct Second {
    reads: u64,
    origin: u64,
    stale: u64,
}

struct Tier<'a> {
    set: &'a Set,
    chance: Chance,
    queue: Queue<Ev>,
    now: u64,
    nodes: Vec<Node>,
    up: Vec<bool>,
    health: Vec<Health>,
    lists: Vec<Arc<List>>,
    /// The list of each gateway.
    told: Vec<usize>,
    hashes: Vec<u64>,
    /// The version of each key at the origin, and when and under which list it was made.
    versions: Vec<(u32, u64, usize)>,
    /// Until when a gateway has a fill on its way, by gateway and key.
    filling: Vec<Vec<u64>>,
    seconds: Vec<Second>,
    stale: (u64, u64, u64),
    broken: Option<Broken>,
    acts: Vec<String>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let mut tier = Tier::new(ask.set, ask.seed);
    let acts = tier.plan(ask);
    tier.acts = acts;
    let end = ask.set.get("seconds") * SECOND;
    while let Some((at, event)) = tier.queue.take(end) {
        tier.now = at;
        tier.happens(event);
    }
    tier.report()
}

impl<'a> Tier<'a> {
    fn new(set: &'a Set, seed: u64) -> Self {
        let (nodes, keys, gateways) = (set.count("nodes"), set.count("keys"), set.count("gateways"));
        let damped = set.get("damped") == 1;
        let config = HealthConfig {
            fall: if damped { 3 } else { 1 },
            rise: if damped { 2 } else { 1 },
            eject_base: Duration::from_secs(if damped { 2 } else { 0 }),
            ..HealthConfig::default()
        };
        let mut tier = Self {
            set,
            chance: Chance::new(seed),
            queue: Queue::default(),
            now: 0,
            nodes: vec![Node::new(keys); nodes + 1],
            up: (0..=nodes).map(|ix| ix < nodes).collect(),
            health: vec![Health::new(config, Mono::ZERO); nodes + 1],
            lists: Vec::new(),
            told: vec![0; gateways],
            hashes: (0..keys as u64).map(|key| stable_hash(Purpose::CacheKey, &[key.to_le_bytes()])).collect(),
            versions: vec![(1, 0, 0); keys],
            filling: vec![vec![0; keys]; gateways],
            seconds: vec![Second::default(); set.count("seconds") + 1],
            stale: (0, 0, 0),
            broken: None,
            acts: Vec::new(),
        };
        let first = tier.list((0..nodes).collect());
        tier.lists.push(Arc::new(first));
        tier.warm();
        for event in [Ev::Read, Ev::Delete, Ev::Probe] {
            tier.queue.put(0, event);
        }
        tier
    }

    /// As it is after a long time: a key that is read k times in a TTL is there k / (1 + k) of the time, and ends at any time.
    fn warm(&mut self) {
        let (keys, ttl) = (self.hashes.len() as u64, self.set.get("ttl_ms"));
        let reads = self.set.get("reads") * ttl / 1_000;
        for key in 0..self.hashes.len() {
            let (there, until) = (self.chance.below(reads + keys) < reads, self.chance.below(ttl * MS));
            if let Some(node) = self.owner(0, key).filter(|_| there) {
                self.nodes[node].fill(0, key, 1, 0, until);
            }
        }
    }

    fn list(&self, members: Vec<usize>) -> List {
        let named = members.iter().map(|n| Member::new(format!("node{n:04}"), Weight(1))).collect();
        let list = MemberList::new(Revision(0), named).unwrap_or_default();
        let points = u32::try_from(self.set.get("virtual_nodes")).unwrap_or(100);
        let ring = (self.set.get("modulo") == 0).then(|| Ring::new(list, points).ok()).flatten();
        List { members, ring }
    }

    /// What happens to nodes, each an act.
    fn plan(&mut self, ask: &Ask<'_>) -> Vec<String> {
        let (set, nodes) = (ask.set, ask.set.count("nodes"));
        let victim = usize::try_from(ask.seed).unwrap_or(0) % nodes.max(1);
        let mut acts: Vec<(u64, usize, bool)> = Vec::new();
        let at = |name: &str| Some(set.get(name) * SECOND).filter(|at| *at > 0);
        acts.extend(at("lose_at_s").map(|at| (at, victim, false)));
        acts.extend(at("join_at_s").map(|at| (at, nodes, true)));
        for nth in 0..set.get("flaps") {
            let (from, span) = (set.get("flap_at_s") * SECOND, set.get("flap_ms") * MS);
            acts.push((from + 2 * nth * span, victim, false));
            acts.push((from + (2 * nth + 1) * span, victim, true));
        }
        for (_, (at, node, up)) in acts.iter().enumerate().filter(|(ix, _)| !ask.without.contains(ix)) {
            self.queue.put(*at, Ev::Node { node: *node, up: *up });
        }
        let told = |(at, node, up): &(u64, usize, bool)| {
            format!("{:>8.3} s  node {node} {}", *at as f64 / SECOND as f64, if *up { "comes" } else { "goes" })
        };
        acts.iter().map(told).collect()
    }

    fn happens(&mut self, event: Ev) {
        match event {
            Ev::Read => {
                self.read();
                let next = self.now + self.chance.exponential(SECOND / self.set.get("reads").max(1));
                self.queue.put(next, Ev::Read);
            }
            Ev::Delete => {
                if let Some(mean) = SECOND.checked_div(self.set.get("deletes")) {
                    self.delete();
                    let next = self.now + self.chance.exponential(mean);
                    self.queue.put(next, Ev::Delete);
                }
            }
            Ev::Probe => self.probe(),
            Ev::Node { node, up } => {
                self.up[node] = up;
                // What comes back is empty: it was another process.
                self.nodes[node] = Node::new(self.hashes.len());
            }
            Ev::Learns { gateway, list } => self.told[gateway] = list.max(self.told[gateway]),
            Ev::Filled { node, key, version, begun } if self.up[node] => {
                let ttl = self.set.get("ttl_ms") * MS;
                let until = self.now + ttl - ttl / 10 + self.chance.below(ttl / 5);
                self.nodes[node].fill(self.now, key, version, begun, until);
            }
            Ev::Deleted { node, key } if self.set.get("tombstones") == 1 => {
                self.nodes[node].delete(self.now, key, self.now + 10 * FILL);
            }
            Ev::Deleted { node, key } => self.nodes[node].drop_value(key),
            Ev::Filled { .. } => {}
        }
    }

    fn owner(&self, list: usize, key: usize) -> Option<usize> {
        let list = &self.lists[list];
        let hash = self.hashes[key];
        match &list.ring {
            None => list.members.get(usize::try_from(hash % (list.members.len().max(1) as u64)).unwrap_or(0)).copied(),
            Some(ring) => {
                let mut first = Vec::with_capacity(1);
                ring.first(hash, 1, &mut first);
                list.members.get(*first.first()? as usize).copied()
            }
        }
    }

    fn pick(&mut self) -> (usize, usize) {
        let below = |chance: &mut Chance, end: usize| usize::try_from(chance.below(end.max(1) as u64)).unwrap_or(0);
        (below(&mut self.chance, self.told.len()), below(&mut self.chance, self.hashes.len()))
    }

    fn second(&mut self) -> &mut Second {
        let last = self.seconds.len() - 1;
        let at = usize::try_from(self.now / SECOND).unwrap_or(0).min(last);
        &mut self.seconds[at]
    }

    fn read(&mut self) {
        let (gateway, key) = self.pick();
        self.second().reads += 1;
        let list = self.told[gateway];
        let owner = self.owner(list, key).filter(|node| self.up[*node]);
        if let Some(version) = owner.and_then(|node| self.nodes[node].read(self.now, key)) {
            return self.hit(list, key, version);
        }
        // One fill for each key of a gateway; who comes meanwhile waits for it.
        if self.filling[gateway][key] > self.now {
            return;
        }
        self.second().origin += 1;
        self.filling[gateway][key] = self.now + FILL;
        let version = self.versions[key].0;
        if let Some(node) = owner {
            self.queue.put(self.now + FILL, Ev::Filled { node, key, version, begun: self.now });
        }
    }

    fn hit(&mut self, list: usize, key: usize, version: u32) {
        let (current, since, under) = self.versions[key];
        if version == current {
            return;
        }
        let old = self.now - since;
        self.second().stale += 1;
        self.stale.0 += 1;
        self.stale.1 = self.stale.1.max(old);
        if list == under && list + 1 == self.lists.len() {
            self.stale.2 = self.stale.2.max(old);
        }
        let ttl = self.set.get("ttl_ms") * MS;
        let bound = self.set.get("propagation_ms") * MS + ttl + ttl / 10 + FILL;
        if old > bound {
            let what = format!("CACHE-1: what was deleted was read {} ms later", old / MS);
            self.broken.get_or_insert(Broken { at: self.now / MS, what });
        }
    }

    fn delete(&mut self) {
        let (gateway, key) = self.pick();
        let list = self.told[gateway];
        self.versions[key] = (self.versions[key].0 + 1, self.now, list);
        if let Some(node) = self.owner(list, key) {
            let at = self.now + self.chance.below(DELETE);
            self.queue.put(at, Ev::Deleted { node, key });
        }
    }

    /// Looks at all nodes; who is well or not any more makes a new list, which gateways learn of one after the other.
    fn probe(&mut self) {
        let now = Mono(self.now);
        let mut changed = false;
        for (health, up) in self.health.iter_mut().zip(&self.up) {
            let event = if *up { HealthEvent::ProbeOk } else { HealthEvent::ProbeFailed };
            changed |= health.apply(now, event).is_some();
        }
        let joins =
            self.up.last() == Some(&true) && !self.lists.iter().any(|l| l.members.contains(&(self.up.len() - 1)));
        if changed || joins {
            let spare = self.up.len() - 1;
            let well = |n: &usize| self.health[*n].usable() && (*n != spare || self.up[spare]);
            let members: Vec<usize> = (0..self.up.len()).filter(well).collect();
            if self.lists.last().is_none_or(|l| l.members != members) {
                let list = self.list(members);
                self.lists.push(Arc::new(list));
                for gateway in 0..self.told.len() {
                    let at = self.now + self.chance.below(self.set.get("propagation_ms") * MS);
                    self.queue.put(at, Ev::Learns { gateway, list: self.lists.len() - 1 });
                }
            }
        }
        self.queue.put(self.now + PROBE, Ev::Probe);
    }

    fn report(self) -> Report {
        let share = |seconds: &[Second]| {
            let sum = |of: fn(&Second) -> u64| seconds.iter().map(of).sum::<u64>() as f64;
            sum(|s| s.origin) / sum(|s| s.reads).max(1.0)
        };
        let happens = ["lose_at_s", "join_at_s", if self.set.get("flaps") > 0 { "flap_at_s" } else { "" }];
        let first = happens.iter().map(|name| self.set.count(name)).filter(|at| *at > 0).min();
        let end = self.set.count("seconds");
        let first = first.unwrap_or(end / 2).min(end);
        let before = share(&self.seconds[first.saturating_sub(10)..first]);
        let after = self.seconds.get(first..end).unwrap_or_default();
        let peak = after.windows(2).map(share).fold(0.0, f64::max);
        let last = self.lists.len() - 1;
        let moved = (0..self.hashes.len()).filter(|key| self.owner(0, *key) != self.owner(last, *key)).count();
        let ms = |ns: u64| (ns / 1_000) as f64 / 1_000.0;
        let figures = vec![
            ("origin_before", before),
            ("origin_peak", peak),
            ("extra_of_hits", (peak - before) / (1.0 - before).max(1e-9)),
            ("origin_late", share(&self.seconds[end.saturating_sub(10)..end])),
            ("moved", moved as f64 / self.hashes.len().max(1) as f64),
            ("list_changes", last as f64),
            ("stale_reads", self.stale.0 as f64),
            ("stale_longest_ms", ms(self.stale.1)),
            ("stale_agreed_ms", ms(self.stale.2)),
        ];
        let of = |name, value: fn(&Second) -> u64| Series {
            name,
            values: self.seconds.iter().take(end).map(|s| value(s) as f64).collect(),
        };
        let series =
            vec![of("reads/s", |s| s.reads), of("origin reads/s", |s| s.origin), of("stale reads/s", |s| s.stale)];
        Report { broken: self.broken.clone(), figures, series, acts: self.acts.clone(), log: Vec::new() }
    }
}
