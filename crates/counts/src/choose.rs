//! The choice of the least-loaded holder among two.

use std::hint::black_box;

use holdfast_placement::choose::{Candidate, Choice, choose};

pub(crate) fn run(count: u32) {
    crate::laps(count, |lap| {
        // In turn: one is less loaded, the other is, both are equal.
        let loads = [[1, 2], [2, 1], [1, 1]][lap as usize % 3];
        let candidates = loads.map(|in_flight| Candidate { in_flight, ..Candidate::IDLE });
        assert!(matches!(black_box(choose(black_box(&candidates), u64::from(lap))), Choice::Serve(_)));
    });
}
