//! What was told lately, in bounded memory: each once while it is remembered.
//!
//! Two generations: `new` is filled, `old` was filled before it. What comes again within one is known; what was long ago is new again.

use std::collections::HashSet;

use parking_lot::Mutex;

/// So many parts, each with a lock of its own.
const PARTS: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Once {
    parts: [Mutex<Told>; PARTS],
    /// Of one generation of one part.
    most: usize,
}

#[derive(Debug, Default)]
struct Told {
    new: HashSet<u64>,
    old: HashSet<u64>,
}

impl Once {
    /// One that remembers about so many, at about 16 bytes each.
    #[must_use]
    pub fn new(remember: usize) -> Self {
        Self { parts: Default::default(), most: (remember / (2 * PARTS)).max(1) }
    }

    /// Whether it comes for the first time, as far as is remembered. `what` is a hash: its upper bits are as good as its lower ones.
    #[must_use]
    pub fn is_first(&self, what: u64) -> bool {
        let Some(part) = self.parts.get((what >> 60) as usize % PARTS) else { return false };
        let mut told = part.lock();
        if told.new.contains(&what) {
            return false;
        }
        if told.new.len() >= self.most {
            told.old = std::mem::take(&mut told.new);
        }
        let is_new = !told.old.contains(&what);
        told.new.insert(what);
        is_new
    }

    /// How many are remembered.
    #[must_use]
    pub fn kept(&self) -> usize {
        let sizes = self.parts.iter().map(|part| {
            let part = part.lock();
            part.new.len() + part.old.len()
        });
        sizes.sum()
    }
}
