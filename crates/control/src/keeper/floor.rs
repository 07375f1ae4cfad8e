//! What of the history may go. Pure.

use std::time::Duration;

use holdfast_config::History;
use holdfast_store::{Head, Header};
use holdfast_types::Revision;

/// What the decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Where the store stands.
    pub head: &'a Head,
    /// The oldest headers that are kept, oldest first; perhaps not all.
    pub oldest: &'a [Header],
    /// The oldest revision that a live gateway may answer under. `None`: it is not known of all of them.
    pub in_flight: Option<Revision>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// The floor to prune to: the newest revision that keeps what is to be kept. `None`: it is reached, or nothing may go now.
#[must_use]
pub fn floor(history: &History, seen: &Seen<'_>) -> Option<Revision> {
    let head = seen.head;
    let by_count = head.revision.0.saturating_sub(u64::from(history.revisions));
    // A revert without a number leads to the revision before the one in force.
    let revert = head.in_force.0.saturating_sub(1);
    let floor = by_count.min(revert).min(seen.in_flight?.0).min(by_age(history.keep, seen)?.0);
    (floor > head.floor.0).then_some(Revision(floor))
}

/// The last of the oldest revisions that are all older than that. A stamp in the future is a wrong one, and says nothing: that revision is as old
/// as a later one says.
fn by_age(keep: Duration, seen: &Seen<'_>) -> Option<Revision> {
    let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
    let old = |header: &&Header| header.at_ms.saturating_add(keep) <= seen.now_ms;
    let known = seen.oldest.iter().filter(|header| header.at_ms <= seen.now_ms);
    known.take_while(old).last().map(|header| header.revision)
}

#[cfg(test)]
mod tests;
