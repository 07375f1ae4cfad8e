//! What is due, in the order of its time; what is due at one time comes in the order in which it was put in.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct Due<E> {
    at: u64,
    number: u64,
    what: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Events and their times, in nanoseconds.
pub struct Queue<E> {
    due: BinaryHeap<Due<E>>,
    put: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { due: BinaryHeap::new(), put: 0 }
    }
}

impl<E> Queue<E> {
    /// Puts an event in.
    pub fn put(&mut self, at: u64, what: E) {
        self.put += 1;
        self.due.push(Due { at, number: self.put, what });
    }

    /// Takes the next event out, if its time is not after `until`.
    pub fn take(&mut self, until: u64) -> Option<(u64, E)> {
        if self.due.peek()?.at > until {
            return None;
        }
        self.due.pop().map(|due| (due.at, due.what))
    }

    /// Events that were ever put in.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.put
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_order_of_times_and_then_of_coming() {
        let mut queue = Queue::default();
        for (at, what) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b'), (9, 'e')] {
            queue.put(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.take(8)).map(|(_, what)| what).collect();
        assert_eq!((order.as_str(), queue.take(9)), ("abcd", Some((9, 'e'))));
    }
}
