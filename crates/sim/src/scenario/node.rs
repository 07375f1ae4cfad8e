//! One node of a cache tier, as a pure core: entries that end, tombstones, and fills that come too late.

/// What lies under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Empty,
    /// A value, of this version, until then.
    Value {
        version: u32,
        until: u64,
    },
    /// It was deleted at this time; fills that began before it are refused until then.
    Tombstone {
        at: u64,
        until: u64,
    },
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    slots: Vec<Slot>,
}

impl Node {
    /// An empty node for keys below `keys`.
    #[must_use]
    pub fn new(keys: usize) -> Self {
        Self { slots: vec![Slot::Empty; keys] }
    }

    /// The version under a key, if there is one and its time is not over.
    #[must_use]
    pub fn read(&self, now: u64, key: usize) -> Option<u32> {
        match self.slots.get(key) {
            Some(Slot::Value { version, until }) if *until > now => Some(*version),
            _ => None,
        }
    }

    /// A fill arrives whose value was asked of the origin at `begun`. A value that was asked for before the key was deleted may be the deleted one.
    pub fn fill(&mut self, now: u64, key: usize, version: u32, begun: u64, until: u64) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let refused = matches!(slot, Slot::Tombstone { at, until } if *until > now && begun <= *at);
        if !refused {
            *slot = Slot::Value { version, until };
        }
    }

    /// A delete arrives. Its tombstone has to outlast every fill that is on its way.
    pub fn delete(&mut self, now: u64, key: usize, until: u64) {
        if let Some(slot) = self.slots.get_mut(key) {
            *slot = Slot::Tombstone { at: now, until };
        }
    }

    /// The same without a tombstone: what a late fill undoes.
    pub fn drop_value(&mut self, key: usize) {
        if let Some(slot) = self.slots.get_mut(key) {
            *slot = Slot::Empty;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_fill_never_undoes_a_delete() {
        let mut node = Node::new(1);
        node.fill(10, 0, 1, 5, 100);
        assert_eq!((node.read(99, 0), node.read(100, 0)), (Some(1), None));
        node.delete(50, 0, 80);
        node.fill(60, 0, 1, 50, 160);
        assert_eq!(node.read(61, 0), None, "it was asked for before the delete");
        node.fill(70, 0, 2, 51, 170);
        assert_eq!(node.read(71, 0), Some(2));
    }
}
