//! What a layout comes to, as it is and as it could be.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_placement::cold::of_layout;
use holdfast_placement::fit::{Fit, Pin, fit, left_alone};
use holdfast_placement::proposal::{Terms, Wish, propose};
use holdfast_types::Bytes;
use serde_json::{Value, json};

use super::super::figure::round;
use super::input::{MOST_K, Pool};

/// Keys that are named where many may be meant.
const NAMED: usize = 20;
/// A key is given another holder while it brings one of its holders more than this part of an even replica's traffic.
const ENOUGH: u64 = 4;

/// One layout.
pub struct Laid {
    /// The replicas of each key.
    pub ks: Vec<usize>,
    /// Where that leads.
    pub fit: Fit,
    /// By replica: the keys that its loss leaves without a holder that is certain.
    pub alone: Vec<Vec<usize>>,
    /// Loads in a second, where not all fits.
    pub loads: f64,
}

/// What was found about a pool.
pub struct Found {
    /// All pinned versions once.
    pub full_copy: Bytes,
    /// As it is.
    pub given: Laid,
    /// As it could be.
    pub proposed: Laid,
}

impl Laid {
    fn new(pool: &Pool, ks: Vec<usize>) -> Self {
        let pins = pool.keys.iter().zip(&ks).map(|(key, k)| Pin { version: key.version, order: &key.order, k: *k });
        let pins: Vec<Pin<'_>> = pins.collect();
        let rates: Vec<f64> = pool.keys.iter().map(|key| key.rate).collect();
        let fit = fit(&pool.memories, &pool.sizes, &pins);
        Self { alone: left_alone(&fit, &pins), fit, loads: of_layout(&pool.memories, &pool.sizes, &pins, &rates), ks }
    }

    /// Loads until everything is where it is to be.
    pub fn to_warm(&self) -> usize {
        self.fit.replicas.iter().map(|r| r.versions.len()).sum()
    }

    /// Keys that have fewer holders than this.
    pub fn short_of(&self, copies: usize) -> usize {
        self.ks.iter().filter(|k| **k < copies).count()
    }

    /// Keys that some loss of one replica leaves without a holder that is certain.
    pub fn alone_total(&self) -> usize {
        self.alone.iter().flatten().collect::<BTreeSet<_>>().len()
    }

    /// The replica whose loss leaves most keys without a holder.
    pub fn worst_loss(&self) -> Option<(usize, &[usize])> {
        let losses = self.alone.iter().enumerate().filter(|(_, keys)| !keys.is_empty());
        losses.max_by_key(|(index, keys)| (keys.len(), usize::MAX - index)).map(|(index, keys)| (index, &**keys))
    }

    /// How many keys have each k.
    pub fn counts(&self) -> BTreeMap<usize, usize> {
        let mut out = BTreeMap::new();
        for k in &self.ks {
            *out.entry(*k).or_default() += 1;
        }
        out
    }

    /// For programs.
    pub fn json(&self, pool: &Pool) -> Value {
        let named = |index: usize| pool.replicas.get(index).map_or("", String::as_str);
        let label = |key: &usize| pool.keys.get(*key).map_or("", |key| key.label.as_str());
        let layout = self.fit.replicas.iter().enumerate().map(|(index, replica)| {
            json!({
                "replica": named(index), "versions": replica.versions.len(), "needed_bytes": replica.needed.0,
                "memory_bytes": replica.memory.map(|m| m.0), "overflow_bytes": replica.overflow().0,
            })
        });
        let losses = self.alone.iter().enumerate().filter(|(_, keys)| !keys.is_empty()).map(|(index, keys)| {
            let names: Vec<&str> = keys.iter().take(NAMED).map(label).collect();
            json!({ "replica": named(index), "keys": names, "total": keys.len() })
        });
        json!({
            "needed_bytes": self.fit.needed.0, "needed_gb": gb(self.fit.needed.0), "fits": self.fit.fits(),
            "fits_on_average": self.fit.fits_on_average(), "layout": layout.collect::<Vec<_>>(),
            "left_without_holder": losses.collect::<Vec<_>>(), "cold_loads_to_warm": self.to_warm(),
            "cold_loads_per_second": round(self.loads, 3), "keys_by_k": self.counts(),
        })
    }
}

/// Bytes as GB.
pub fn gb(bytes: u64) -> f64 {
    round(bytes as f64 / 1e9, 3)
}

/// Lays a pool out. So many copies of everything come before heavy keys get more.
pub fn find(pool: &Pool, first: usize) -> Found {
    let mut pinned = vec![false; pool.sizes.len()];
    for key in &pool.keys {
        if let Some(is) = pinned.get_mut(key.version as usize) {
            *is = true;
        }
    }
    let sizes = pool.sizes.iter().zip(&pinned).filter(|(_, pinned)| **pinned).map(|(size, _)| size.0);
    let full_copy = Bytes(sizes.fold(0, u64::saturating_add));
    let given = Laid::new(pool, pool.keys.iter().map(|key| key.k).collect());
    Found { full_copy, given, proposed: Laid::new(pool, proposal(pool, first)) }
}

fn proposal(pool: &Pool, first: usize) -> Vec<usize> {
    let traffic: Vec<u64> = pool.keys.iter().map(|key| (key.rate * 1_000.0) as u64).collect();
    let wishes = pool.keys.iter().zip(&traffic);
    let wishes = wishes.map(|(key, traffic)| Wish { version: key.version, order: &key.order, traffic: *traffic });
    let wishes: Vec<Wish<'_>> = wishes.collect();
    let all = traffic.iter().fold(0u64, |sum, t| sum.saturating_add(*t));
    let even = all / u64::try_from(pool.replicas.len()).unwrap_or(1).max(1);
    let reserve = pool.sizes.iter().copied().max().unwrap_or_default();
    propose(&pool.memories, &pool.sizes, &wishes, Terms { most: MOST_K, first, enough: even / ENOUGH, reserve })
}

/// A pool's figures for programs.
pub fn json(pool: &Pool, found: &Found) -> Value {
    let keys = pool.keys.iter().zip(found.given.ks.iter().zip(&found.proposed.ks));
    let keys = keys.map(|(key, (k, proposed))| {
        json!({ "key": key.label, "requests_per_second": round(key.rate, 3), "k": k, "proposed_k": proposed })
    });
    json!({
        "pool": pool.name, "full_copy_bytes": found.full_copy.0, "full_copy_gb": gb(found.full_copy.0),
        "memory_bytes": found.given.fit.memory.map(|m| m.0), "memory_gb": found.given.fit.memory.map(|m| gb(m.0)),
        "mean_replication": replication(found).map(|mean| round(mean, 2)), "keys": keys.collect::<Vec<_>>(),
        "given": found.given.json(pool), "proposed": found.proposed.json(pool),
    })
}

/// The copies of everything that all memory together holds: a ceiling, and an average.
pub fn replication(found: &Found) -> Option<f64> {
    let memory = found.given.fit.memory?.0 as f64;
    (found.full_copy.0 > 0).then(|| memory / found.full_copy.0 as f64)
}
