//! The check of an answer of about 200 bytes: which model and version does it name?

use std::hint::black_box;

use holdfast_codec::answer::{Checker, Expected, Pieces};

use crate::ping::ANSWER;

pub(crate) fn run(count: u32) {
    let text = |text: &str| text.to_owned();
    let expected =
        Expected { upstream_model: text("m"), upstream_version: text("7"), model: text("m"), version: text("7") };
    crate::laps(count, |_| {
        let (mut checker, mut pieces) = (Checker::default(), Pieces::new());
        let matched = checker.feed(&expected, black_box(ANSWER.as_bytes()), &mut pieces);
        assert!(matched.is_ok() && checker.has_version() && checker.is_complete());
        black_box(&pieces);
    });
}
