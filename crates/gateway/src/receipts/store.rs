//! The last receipts, in a ring for each worker. A worker takes the lock of its own ring only, which nobody contends for but who looks something up, and
//! who does that looks at some hundred receipts at a time.

use std::sync::Arc;

use parking_lot::Mutex;

use super::packed::Packed;
use super::{Disk, Receipt};

/// How many receipts are looked at under one hold of a ring's lock: some ten microseconds.
const LOOK: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub struct Receipts {
    rings: Box<[Ring]>,
    /// The most receipts of one ring.
    each: usize,
    /// Keeps them on disk too, if that is asked for.
    disk: Option<Arc<Disk>>,
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ring(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    receipts: Vec<Packed>,
    /// The place of the next one, once the ring is full: the oldest.
    next: usize,
    /// How many came so far.
    puts: usize,
}

impl Kept {
    /// Replaces the oldest once it is full, and returns it: it is dropped outside the lock.
    fn put(&mut self, receipt: Packed, most: usize) -> Option<Packed> {
        self.puts += 1;
        if self.receipts.len() < most {
            // All of it at once: the most is known, and growing would copy it time and again.
            if self.receipts.capacity() == 0 {
                self.receipts.reserve_exact(most);
            }
            self.receipts.push(receipt);
            return None;
        }
        let place = self.receipts.get_mut(self.next)?;
        self.next = (self.next + 1) % most;
        Some(std::mem::replace(place, receipt))
    }

    /// Some of them, from the one that is `back` before the newest.
    fn newest(&self, back: usize) -> impl Iterator<Item = &Packed> {
        let count = self.receipts.len();
        let at = move |back: usize| (self.next + count).checked_sub(1 + back).map(|at| at % count.max(1));
        (back..count.min(back + LOOK)).filter_map(move |back| self.receipts.get(at(back)?))
    }
}

impl Receipts {
    /// Keeps so many in all, in equal parts for the workers. Zero: none.
    #[must_use]
    pub fn new(keep: usize, workers: usize) -> Self {
        let workers = if keep == 0 { 0 } else { workers.max(1) };
        let rings = std::iter::repeat_with(Ring::default).take(workers).collect();
        Self { rings, each: keep.div_ceil(workers.max(1)), disk: None }
    }

    /// Whether any are kept: ask before something is noted.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.rings.is_empty() || self.disk.is_some()
    }

    /// The same, with all of them on disk as well.
    #[must_use]
    pub fn with_disk(mut self, disk: Option<Arc<Disk>>) -> Self {
        self.disk = disk;
        self
    }

    /// Where they are kept on disk, if they are.
    #[must_use]
    pub const fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.as_ref()
    }

    /// Keeps one, in the ring of this thread.
    pub fn put(&self, receipt: Receipt) {
        let receipt = Packed::new(receipt);
        let Some(Ring(ring)) = self.rings.get(holdfast_telemetry::part() % self.rings.len().max(1)) else {
            if let Some(disk) = &self.disk {
                disk.offer(receipt);
            }
            return;
        };
        // A packed one owns hardly any memory that a copy would have to make.
        if let Some(disk) = &self.disk {
            disk.offer(receipt.clone());
        }
        let oldest = ring.lock().put(receipt, self.each);
        drop(oldest);
    }

    /// The receipt of a request.
    #[must_use]
    pub fn find(&self, id: &[u8]) -> Option<Receipt> {
        let mut found = self.look(1, |receipt| receipt.id() == id);
        found.pop()
    }

    /// The newest that are wanted, newest first.
    #[must_use]
    pub fn newest(&self, limit: usize, wants: impl Fn(&Packed) -> bool) -> Vec<Receipt> {
        let mut found = self.look(limit, wants);
        found.sort_by_key(|receipt| std::cmp::Reverse(receipt.ended));
        found.truncate(limit);
        found
    }

    /// At most `limit` of each ring.
    fn look(&self, limit: usize, wants: impl Fn(&Packed) -> bool) -> Vec<Receipt> {
        let mut all = Vec::new();
        for Ring(ring) in &self.rings {
            let (mut found, mut back) = (Vec::new(), 0);
            let begun = ring.lock().puts;
            loop {
                let kept = ring.lock();
                // What came meanwhile moved the others back by as much.
                let back_now = back + (kept.puts - begun);
                let left = limit - found.len();
                found.extend(kept.newest(back_now).filter(|receipt| wants(receipt)).take(left).map(Packed::unpack));
                back += LOOK;
                if back_now + LOOK >= kept.receipts.len() || found.len() >= limit {
                    break;
                }
            }
            all.extend(found);
        }
        all
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Duration;

    use holdfast_telemetry::{Endpoint, Outcome, Timing, use_part};
    use holdfast_types::Mono;

    pub(in crate::receipts) fn receipt(number: u64) -> Receipt {
        let at = Mono::ZERO.after(Duration::from_millis(number));
        Receipt {
            id: number.to_string().into(),
            begun: at,
            ended: at,
            resolved: None,
            replica: None,
            method: "POST",
            client: None,
            subject: None,
            answered: None,
            outcome: Outcome {
                endpoint: Endpoint::Infer,
                status: 200,
                error: None,
                attempts: 1,
                bytes_in: number,
                bytes_out: 0,
                timing: Timing::default(),
            },
            journal: Box::default(),
        }
    }

    fn ids(found: &[Receipt]) -> Vec<u64> {
        found.iter().map(|receipt| receipt.outcome.bytes_in).collect()
    }

    #[test]
    fn each_ring_keeps_its_part_and_the_oldest_goes_first() {
        let receipts = Receipts::new(2_000, 2);
        for number in 0..5_000 {
            use_part((number % 2) as usize);
            receipts.put(receipt(number));
        }
        assert_eq!(ids(&receipts.newest(10_000, |_| true)), (3_000..5_000).rev().collect::<Vec<_>>());
        assert_eq!(ids(&receipts.newest(3, |receipt| receipt.id().ends_with(b"0"))), [4_990, 4_980, 4_970]);
        for number in [3_000u64, 3_001, 4_000, 4_999] {
            assert_eq!(receipts.find(number.to_string().as_bytes()).map(|r| r.outcome.bytes_in), Some(number));
        }
        assert!(receipts.find(b"2999").is_none() && receipts.find(b"").is_none());
        // A thread beyond the workers shares a ring.
        use_part(7);
        receipts.put(receipt(9_999));
        assert_eq!(ids(&receipts.newest(1, |_| true)), [9_999]);
        use_part(0);
    }

    #[test]
    fn who_looks_while_others_put_sees_none_twice() {
        let (receipts, done) = (Receipts::new(3_000, 1), AtomicBool::new(false));
        (0..3_000).for_each(|number| receipts.put(receipt(number)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 3_000.. {
                    receipts.put(receipt(number));
                    if done.load(Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..200 {
                let seen = ids(&receipts.newest(3_000, |_| true));
                assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "{seen:?}");
            }
            done.store(true, Relaxed);
        });
    }

    #[test]
    fn none_and_few() {
        let none = Receipts::new(0, 4);
        none.put(receipt(1));
        assert!(!none.is_on() && none.newest(10, |_| true).is_empty() && none.find(b"1").is_none());
        let few = Receipts::new(1, 1);
        for number in 1..4 {
            few.put(receipt(number));
        }
        assert_eq!(ids(&few.newest(10, |_| true)), [3]);
    }
}
