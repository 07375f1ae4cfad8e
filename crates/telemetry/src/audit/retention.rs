//! Which files are due to go: whole ones, the oldest first, never the one that is written. Pure.

use std::time::Duration;

use super::record::Tip;

/// A file of the log, by its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of its first record.
    pub(super) first: u64,
    /// When that was written, in milliseconds since 1970.
    pub(super) began: u64,
    /// What it says that came before it.
    pub(super) before: Tip,
    /// Its bytes.
    pub(super) size: u64,
}

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) age: Duration,
    pub(super) total: u64,
}

/// How many of the oldest files go, and why. `pieces` are in order, the last is the one that is written.
pub(super) fn due(pieces: &[Piece], bounds: Bounds, now: u64) -> Option<(usize, &'static str)> {
    let age = u64::try_from(bounds.age.as_millis()).unwrap_or(u64::MAX);
    let oldest = now.saturating_sub(age);
    // A file is as old as its last record, which is older than the first of the next.
    let by_age = pieces.iter().skip(1).take_while(|next| next.began < oldest).count();
    let mut total: u64 = pieces.iter().map(|p| p.size).sum();
    let mut by_size = 0;
    for piece in pieces.iter().take(pieces.len().saturating_sub(1)) {
        if total <= bounds.total {
            break;
        }
        total -= piece.size;
        by_size += 1;
    }
    match (by_age, by_size) {
        (0, 0) => None,
        (age, size) if age >= size => Some((age, "age")),
        (_, size) => Some((size, "size")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(began: &[u64]) -> Vec<Piece> {
        let piece = |(at, began): (usize, &u64)| Piece {
            first: at as u64 * 10 + 1,
            began: *began,
            before: Tip::START,
            size: 100,
        };
        began.iter().enumerate().map(piece).collect()
    }

    #[test]
    fn whole_files_go_when_their_last_record_is_too_old_or_the_log_too_large() {
        let all = pieces(&[1_000, 2_000, 3_000, 4_000]);
        let due = |age, total, now| due(&all, Bounds { age: Duration::from_millis(age), total }, now);
        assert_eq!(due(10_000, 400, 5_000), None);
        // At 7001 records up to 2000 are over 5 s old: the first file ends before 2000, the second may not.
        assert_eq!(due(5_000, 400, 7_000), None);
        assert_eq!(due(5_000, 400, 7_001), Some((1, "age")));
        assert_eq!(due(10_000, 399, 5_000), Some((1, "size")));
        assert_eq!(due(10_000, 200, 5_000), Some((2, "size")));
        assert_eq!(due(5_000, 150, 7_001), Some((3, "size")));
        // The file that is written stays, whatever the bounds.
        assert_eq!(due(0, 0, u64::MAX), Some((3, "age")));
        assert_eq!(super::due(&pieces(&[1]), Bounds { age: Duration::ZERO, total: 0 }, u64::MAX), None);
        assert_eq!(super::due(&[], Bounds { age: Duration::ZERO, total: 0 }, 0), None);
    }
}
