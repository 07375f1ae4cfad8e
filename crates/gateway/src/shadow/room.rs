//! A bound on bytes that are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many bytes are free.
#[derive(Debug)]
pub(super) struct Room(AtomicUsize);

/// Bytes in use, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Taken(Arc<Room>, usize);

impl Room {
    pub(super) fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(bytes)))
    }

    /// So many bytes, if they are free.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let taken = self.0.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes));
        taken.is_ok().then(|| Taken(self.clone(), bytes))
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.0.fetch_add(self.1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let room = Room::of(10);
        let first = room.take(7).unwrap();
        assert!(room.take(4).is_none());
        let rest = room.take(3).unwrap();
        assert_eq!(room.free(), 0);
        drop((first, rest));
        assert_eq!(room.free(), 10);
    }
}
