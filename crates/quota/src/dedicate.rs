//! When a tenant gets a pool of its own, and when it goes back into the shared one.
//!
//! By agreement at once; else on a signal that is sustained and repeated: the tenant used much of the shared pool in most of the last windows. One spike,
//! however high, is one window or two, and several spikes far apart are as few; limits and fair shares are there for those. Back again once it has used
//! little in all of the last windows: between the two lines nothing changes. There are so many pools and no more; who would be one too many is told of, for a
//! person to decide, and so is every other change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_types::Mono;

/// When a tenant has enough of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long a window is.
    pub window: Duration,
    /// What the shared pool serves in a second, in the costs that are added.
    pub capacity: u64,
    /// A window is high in which a tenant used so many thousandths of that or more.
    pub high_permille: u64,
    /// A window is low in which it used less than so many.
    pub low_permille: u64,
    /// How many windows are looked at, 64 at most.
    pub windows: u32,
    /// How many of those have to be high.
    pub high_windows: u32,
    /// The most dedicated pools.
    pub ceiling: usize,
}

/// Why a tenant gets a pool of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was agreed.
    Agreed,
    /// It has used much of the shared pool for long.
    Sustained,
}

/// What is to be done, each with an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Give it a pool, by a change of the table.
    Promote {
        /// Which tenant.
        tenant: u64,
        /// Why.
        why: Why,
    },
    /// Take it back.
    Demote {
        /// Which tenant.
        tenant: u64,
    },
    /// It should have one, and there are as many as there may be. Told once.
    Full {
        /// Which tenant.
        tenant: u64,
        /// Why.
        why: Why,
    },
}

/// What is known of a tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    used: u64,
    /// One bit for each window, the last one lowest.
    high: u64,
    low: u64,
    /// Windows that were seen, 64 at most.
    seen: u32,
    agreed: bool,
    /// It was told that there is no pool left.
    told: bool,
}

/// See the module. As large as the number of tenants that have used something in the last windows.
#[derive(Clone, Debug)]
pub struct Watch {
    rules: Rules,
    past: BTreeMap<u64, Past>,
    dedicated: BTreeSet<u64>,
    next: Option<Mono>,
}

impl Watch {
    /// Nobody has a pool.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let windows = rules.windows.clamp(1, 64);
        // One window alone is a spike.
        let high_windows = rules.high_windows.clamp(2.min(windows), windows);
        let rules = Rules { windows, high_windows, ..rules };
        Self { rules, past: BTreeMap::new(), dedicated: BTreeSet::new(), next: None }
    }

    /// Whether a tenant has a pool of its own.
    #[must_use]
    pub fn is_dedicated(&self, tenant: u64) -> bool {
        self.dedicated.contains(&tenant)
    }

    /// How many have.
    #[must_use]
    pub fn dedicated(&self) -> usize {
        self.dedicated.len()
    }

    /// An agreement is made, or ends.
    pub fn agree(&mut self, tenant: u64, agreed: bool) -> Vec<Notice> {
        let past = self.past.entry(tenant).or_default();
        (past.agreed, past.told) = (agreed, false);
        let mut found = Vec::new();
        if agreed && !self.dedicated.contains(&tenant) {
            self.promote(tenant, Why::Agreed, &mut found);
        }
        found
    }

    /// A tenant has used so much, in whichever pool; and what a look has found, if one was due.
    pub fn used(&mut self, now: Mono, tenant: u64, cost: u64) -> Vec<Notice> {
        let found = self.look(now);
        let past = self.past.entry(tenant).or_default();
        past.used = past.used.saturating_add(cost);
        found
    }

    /// Looks, if a window is over. A silent pool is to be looked at, too.
    pub fn look(&mut self, now: Mono) -> Vec<Notice> {
        let mut found = Vec::new();
        let next = *self.next.get_or_insert(now.after(self.rules.window));
        if now < next {
            return found;
        }
        let late = now.since(next).as_nanos().checked_div(self.rules.window.as_nanos()).unwrap_or(0);
        let over = u32::try_from(late).unwrap_or(u32::MAX).saturating_add(1);
        self.next = Some(next.after(self.rules.window.saturating_mul(over)));
        // Windows in which nothing came are windows; more than all that are looked at tell nothing more.
        let silent = (over - 1).min(self.rules.windows);
        for _ in 0..=silent {
            self.closes();
        }
        // Who goes back makes room for who comes.
        for tenant in self.dedicated.clone() {
            self.goes_back(tenant, &mut found);
        }
        let tenants: Vec<u64> = self.past.keys().copied().filter(|tenant| !self.dedicated.contains(tenant)).collect();
        for tenant in tenants {
            self.comes(tenant, &mut found);
        }
        self.past.retain(|tenant, past| past.high != 0 || past.agreed || self.dedicated.contains(tenant));
        found
    }

    /// A window is over.
    fn closes(&mut self) {
        let seconds = self.rules.window.as_nanos();
        // used / (capacity x window) in thousandths, without a division.
        let whole = u128::from(self.rules.capacity) * seconds;
        for past in self.past.values_mut() {
            let mine = u128::from(past.used) * 1_000 * 1_000_000_000;
            let (high, low) = (u128::from(self.rules.high_permille), u128::from(self.rules.low_permille));
            past.high = (past.high << 1) | u64::from(mine >= high * whole);
            past.low = (past.low << 1) | u64::from(mine < low * whole);
            past.seen = past.seen.saturating_add(1).min(64);
            past.used = 0;
        }
    }

    /// The bits of the windows that are looked at.
    const fn looked(&self) -> u64 {
        u64::MAX >> (64 - self.rules.windows)
    }

    fn goes_back(&mut self, tenant: u64, found: &mut Vec<Notice>) {
        let looked = self.looked();
        let Some(past) = self.past.get_mut(&tenant) else { return };
        if !past.agreed && past.seen >= self.rules.windows && past.low & looked == looked {
            past.seen = 0;
            self.dedicated.remove(&tenant);
            found.push(Notice::Demote { tenant });
        }
    }

    fn comes(&mut self, tenant: u64, found: &mut Vec<Notice>) {
        let looked = self.looked();
        let Some(past) = self.past.get_mut(&tenant) else { return };
        past.high &= looked;
        if past.agreed {
            self.promote(tenant, Why::Agreed, found);
        } else if past.high.count_ones() >= self.rules.high_windows {
            self.promote(tenant, Why::Sustained, found);
        } else {
            past.told = false;
        }
    }

    fn promote(&mut self, tenant: u64, why: Why, found: &mut Vec<Notice>) {
        let Some(past) = self.past.get_mut(&tenant) else { return };
        if self.dedicated.len() < self.rules.ceiling {
            // It is looked at afresh: what was before was in the shared pool.
            (past.seen, past.told) = (0, false);
            self.dedicated.insert(tenant);
            found.push(Notice::Promote { tenant, why });
        } else if !past.told {
            past.told = true;
            found.push(Notice::Full { tenant, why });
        }
    }
}
