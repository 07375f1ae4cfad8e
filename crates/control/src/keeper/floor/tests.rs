use super::*;
use holdfast_store::{Digests, Purpose};
use proptest::prelude::*;

const DAY: u64 = 86_400_000;
const NOW: u64 = 1_000 * DAY;

fn history(days: u64, revisions: u32) -> History {
    History { keep: Duration::from_millis(days * DAY), revisions }
}

fn header(revision: u64, at_ms: u64) -> Header {
    Header {
        revision: Revision(revision),
        purpose: Purpose::Change,
        parent: Revision(revision.saturating_sub(1)),
        author: String::new(),
        reason: String::new(),
        at_ms,
        edits: 1,
        term: None,
        digests: Digests::default(),
    }
}

/// A store whose revisions have these ages in days, the first one first; a negative age is a stamp in the future.
fn headers(ages: &[i64]) -> Vec<Header> {
    let at = |age: i64| NOW.saturating_add_signed(-age * DAY.cast_signed());
    (1..).zip(ages).map(|(revision, age)| header(revision, at(*age))).collect()
}

fn head(revision: u64, in_force: u64, floor: u64) -> Head {
    Head { revision: Revision(revision), in_force: Revision(in_force), floor: Revision(floor), ..Head::default() }
}

/// The floor of a store without requests in flight in which the last revision is in force.
fn of(ages: &[i64], days: u64, revisions: u32) -> Option<u64> {
    let (headers, last) = (headers(ages), ages.len() as u64);
    let (head, in_flight) = (head(last, last, 0), Some(Revision(last)));
    floor(&history(days, revisions), &Seen { head: &head, oldest: &headers, in_flight, now_ms: NOW }).map(|r| r.0)
}

#[test]
fn what_is_young_or_among_the_last_is_kept() {
    let ages = [100, 95, 91, 90, 89, 3, 2, 1, 0, 0];
    for (days, revisions, expected) in [
        (90, 1, Some(4)),
        (90, 6, Some(4)),
        (90, 7, Some(3)),
        (90, 9, Some(1)),
        (90, 10, None),
        (90, 1_000, None),
        (200, 1, None),
        (0, 4, Some(6)),
        // Never above what a revert leads to.
        (0, 1, Some(9)),
    ] {
        assert_eq!(of(&ages, days, revisions), expected, "{days} days, {revisions} revisions");
    }
}

#[test]
fn a_wrong_clock_neither_holds_the_history_nor_gives_a_young_revision_away() {
    // In the middle of old ones: it is old as well.
    assert_eq!(of(&[100, -500, 100, 95, 1, 0], 90, 1), Some(4));
    // Before a young one: nobody knows.
    assert_eq!(of(&[100, 100, -500, 1, 0], 90, 1), Some(2));
    assert_eq!(of(&[-500, -500, -500], 90, 1), None);
    // An old stamp after a young one does not make the young one old.
    assert_eq!(of(&[100, 1, 100, 100, 0], 90, 1), Some(1));
}

#[test]
fn requests_in_flight_and_the_way_back_hold_it() {
    let headers = headers(&[100; 20]);
    let with = |head: &Head, in_flight| {
        floor(&history(90, 1), &Seen { head, oldest: &headers, in_flight, now_ms: NOW }).map(|r| r.0)
    };
    assert_eq!(with(&head(20, 20, 0), Some(Revision(20))), Some(19));
    assert_eq!(with(&head(20, 20, 0), Some(Revision(7))), Some(7));
    assert_eq!(with(&head(20, 12, 0), Some(Revision(20))), Some(11), "a revert leads to the revision before 12");
    assert_eq!(with(&head(20, 20, 0), None), None, "a gateway has not spoken");
    assert_eq!(with(&head(20, 20, 7), Some(Revision(7))), None, "it is reached");
    assert_eq!(with(&head(20, 0, 0), Some(Revision(20))), None, "nothing is in force yet");
}

proptest! {
    #[test]
    fn nothing_that_is_to_be_kept_goes_and_the_floor_only_rises(
        ages in prop::collection::vec(-30_i64..200, 1..60),
        (days, revisions) in (0_u64..150, 1_u32..60),
        (at, in_force, in_flight) in (0_u64..60, 0_u64..60, prop::option::of(0_u64..60)),
        seen in 0_usize..60,
    ) {
        let headers = headers(&ages);
        let last = ages.len() as u64;
        let (at, in_force) = (at.min(last), in_force.min(last));
        let head = head(last, in_force, at);
        let oldest = headers.get(at.saturating_sub(1) as usize..).unwrap_or_default();
        let oldest = &oldest[..seen.min(oldest.len())];
        let told = Seen { head: &head, oldest, in_flight: in_flight.map(Revision), now_ms: NOW };
        let history = history(days, revisions);
        let Some(Revision(floor)) = floor(&history, &told) else { return Ok(()) };
        prop_assert!(floor > at && floor < in_force && floor + u64::from(revisions) <= last);
        prop_assert!(in_flight.is_some_and(|oldest| floor <= oldest));
        // All that goes, and the floor itself, is older than that, or has a stamp that says nothing.
        let keep = days * DAY;
        prop_assert!(oldest.iter().filter(|h| h.revision.0 <= floor).all(|h| h.at_ms + keep <= NOW || h.at_ms > NOW));
        prop_assert!(oldest.iter().any(|h| h.revision.0 >= floor && h.at_ms + keep <= NOW));
        // Less is kept only if one of the bounds is lowered.
        let longer = History { keep: history.keep + Duration::from_secs(86_400), revisions: history.revisions + 1 };
        prop_assert!(super::floor(&longer, &told).is_none_or(|longer| longer.0 <= floor));
    }
}
