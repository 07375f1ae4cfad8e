//! Which revisions still have requests in flight: nothing that the oldest of them needs may be collected.

use std::sync::Arc;

use parking_lot::Mutex;

use holdfast_types::Revision;

/// The mark of one revision. Its holders are the requests in flight under it, and the table itself.
#[derive(Debug)]
pub struct RevisionUse(Revision);

/// One request under a revision. Counted for as long as it lives.
#[derive(Clone, Debug)]
pub struct RevisionGuard(Arc<RevisionUse>);

impl RevisionUse {
    /// Counts a request in.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> RevisionGuard {
        RevisionGuard(self.clone())
    }
}

impl RevisionGuard {
    /// The revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.0.0
    }
}

/// All revisions that are in use, oldest first.
#[derive(Debug, Default)]
pub struct Revisions(Mutex<Vec<Arc<RevisionUse>>>);

impl Revisions {
    /// Begins a revision.
    pub fn begin(&self, revision: Revision) -> Arc<RevisionUse> {
        let mark = Arc::new(RevisionUse(revision));
        let mut all = self.0.lock();
        all.retain(|mark| Arc::strong_count(mark) > 1);
        all.push(mark.clone());
        mark
    }

    /// The oldest revision that has requests in flight or is in force.
    #[must_use]
    pub fn oldest(&self) -> Option<Revision> {
        let mut all = self.0.lock();
        all.retain(|mark| Arc::strong_count(mark) > 1);
        all.first().map(|mark| mark.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_with_a_request() {
        let revisions = Revisions::default();
        let first = revisions.begin(Revision(1));
        let request = first.enter();
        drop(first);
        let second = revisions.begin(Revision(2));
        assert_eq!((revisions.oldest(), request.revision()), (Some(Revision(1)), Revision(1)));
        drop(request);
        assert_eq!(revisions.oldest(), Some(Revision(2)));
        drop(second);
        assert_eq!(revisions.oldest(), None);
    }
}
