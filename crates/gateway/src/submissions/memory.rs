//! The last submissions that the ledger was asked for, in bounded memory: two generations, of which the older one goes when the younger one is full.

use std::collections::HashMap;

use holdfast_submission::{Key, Record};

/// See the module.
#[derive(Debug)]
pub struct Memory {
    young: HashMap<Key, Record>,
    old: HashMap<Key, Record>,
    half: usize,
}

impl Memory {
    /// Of so many submissions at most, and of half as many at least.
    pub fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (most / 2).max(1) }
    }

    /// What is remembered of a submission and still counts.
    pub fn get(&self, key: &Key, now: u64) -> Option<&Record> {
        self.young.get(key).or_else(|| self.old.get(key)).filter(|record| record.until > now)
    }

    /// Remembers one.
    pub fn put(&mut self, key: Key, record: Record) {
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, record);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// All that still count.
    pub fn all(&self, now: u64) -> Vec<(Key, Record)> {
        let all = self.old.iter().chain(&self.young).filter(|(_, record)| record.until > now);
        all.map(|(key, record)| (*key, record.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::{ModelName, Revision, Version};

    #[test]
    fn it_is_bounded_and_forgets_the_oldest_first() {
        let record = |until| Record {
            model: ModelName::parse("m").unwrap(),
            version: Version::parse("1").unwrap(),
            revision: Revision(1),
            arms: None,
            until,
        };
        let mut memory = Memory::new(100);
        for n in 0..1_000u16 {
            let mut key = [0; 16];
            key[..2].copy_from_slice(&n.to_be_bytes());
            memory.put(Key(key), record(u64::from(n) + 1));
            assert!(memory.len() <= 100);
            assert!(memory.get(&Key(key), u64::from(n)).is_some());
            assert!(memory.get(&Key(key), u64::from(n) + 1).is_none(), "its time is over");
        }
        let last: Vec<u64> = memory.all(0).iter().map(|(_, record)| record.until).collect();
        assert!(last.len() >= 50 && last.iter().all(|until| *until > 900), "{last:?}");
    }
}
