//! Windows of what arms have shown: bounded, joined in any order, and good enough for quantiles.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use holdfast_assign::stats::Sums;
use holdfast_assign::window::{Bounds, NotTaken, Series, Sketch, Window};
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { width: 1_000, keep: 4, metrics: 2 };

fn starts(series: &Series) -> Vec<u64> {
    series.windows().map(|window| window.start).collect()
}

#[test]
fn windows_begin_at_multiples_and_the_oldest_go() {
    let mut series = Series::default();
    for now in [1_500, 1_999, 2_000, 3_100, 5_000] {
        series.at(now, BOUNDS).unwrap().requests += 1;
    }
    assert_eq!(starts(&series), [2_000, 3_000, 5_000], "5000 - 4 * 1000 is over");
    series.at(6_200, BOUNDS).unwrap().requests += 1;
    assert_eq!(starts(&series), [3_000, 5_000, 6_000]);
    // A clock that goes back finds its window, as long as there is room for it.
    series.at(3_900, BOUNDS).unwrap().requests += 1;
    assert_eq!(series.windows().next().unwrap().requests, 2);
    series.at(4_000, BOUNDS).unwrap();
    assert!(series.at(900, BOUNDS).is_none(), "older than all that are kept");
    assert_eq!(starts(&series), [3_000, 4_000, 5_000, 6_000]);
    series.forget(9_999, BOUNDS);
    assert_eq!(starts(&series), [6_000]);
    series.forget(u64::MAX, BOUNDS);
    assert!(series.is_empty());
}

#[test]
fn metrics_are_bounded_over_all_windows_and_values_are_numbers() {
    let mut series = Series::default();
    for (now, metric, value, want) in [
        (0, "click", 1.0, Ok(())),
        (1_000, "spent", 2.5, Ok(())),
        (1_000, "third", 1.0, Err(NotTaken::Metrics)),
        (2_000, "click", 0.0, Ok(())),
        (2_000, "click", f64::NAN, Err(NotTaken::Value)),
        (2_000, "click", f64::INFINITY, Err(NotTaken::Value)),
        // The only window with `spent` and the first one with `click` are forgotten: there is room again.
        (5_000, "click", 1.0, Ok(())),
        (5_000, "third", 1.0, Ok(())),
        (100, "click", 1.0, Err(NotTaken::Time)),
    ] {
        let bounds = Bounds { keep: if now == 100 { 2 } else { 4 }, ..BOUNDS };
        assert_eq!(series.outcome(now, metric, value, bounds), want, "{now} {metric} {value}");
    }
    let clicks: u64 = series.windows().filter_map(|w| w.outcomes.get("click")).map(|sums| sums.count).sum();
    assert_eq!(clicks, 2);
}

#[test]
fn numbers_that_no_values_have_are_no_sums() {
    assert!(Sums::of(3, 1.0, 2.0).is_some() && Sums::of(0, 0.0, 0.0).is_some());
    for (count, mean, squares) in [(0, 1.0, 0.0), (1, f64::NAN, 0.0), (1, 0.0, -1.0), (1, 0.0, f64::INFINITY)] {
        assert!(Sums::of(count, mean, squares).is_none());
    }
}

fn window() -> impl Strategy<Value = Window> {
    let outcomes = prop::collection::vec((0..3_usize, -100.0..100.0_f64), 0..8);
    (0..3_u64, 0..50_u64, 0..20_u64, prop::collection::vec(0..1_u64 << 40, 0..20), outcomes).prop_map(
        |(start, people, requests, latencies, outcomes)| {
            let mut window = Window { start: start * 1_000, requests, ..Window::default() };
            window.people.insert("user".into(), people);
            for value in latencies {
                window.sketch.add(value);
                window.latency.add(value as f64);
            }
            for (metric, value) in outcomes {
                window.outcomes.entry(["a", "b", "c"][metric].into()).or_default().add(value);
            }
            window
        },
    )
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
}

proptest! {
    /// Whichever gateway saw what, and in whatever order their windows come: the same comes out.
    #[test]
    fn windows_are_joined_in_any_order(windows in prop::collection::vec(window(), 0..12)) {
        let forth = Series::of(windows.clone());
        let back = Series::of(windows.iter().rev().cloned());
        prop_assert_eq!(starts(&forth), starts(&back));
        for (a, b) in forth.windows().zip(back.windows()) {
            prop_assert_eq!((&a.people, a.requests, &a.sketch), (&b.people, b.requests, &b.sketch));
            prop_assert!(near(a.latency.mean, b.latency.mean) && near(a.latency.squares(), b.latency.squares()));
            prop_assert!(a.outcomes.keys().eq(b.outcomes.keys()));
            for (x, y) in a.outcomes.values().zip(b.outcomes.values()) {
                prop_assert!(x.count == y.count && near(x.mean, y.mean) && near(x.squares(), y.squares()));
            }
        }
        let all: u64 = windows.iter().map(|window| window.requests).sum();
        prop_assert_eq!(forth.windows().map(|window| window.requests).sum::<u64>(), all);
    }

    /// A quantile is that of the values, but for the width of a slot; and a sketch is bounded, whatever comes.
    #[test]
    fn quantiles_are_near(mut values in prop::collection::vec(0..1_u64 << 36, 1..300), part in 0.0..1.0_f64) {
        let mut sketch = Sketch::default();
        values.iter().for_each(|value| sketch.add(*value));
        values.sort_unstable();
        let rank = ((part * values.len() as f64).ceil() as usize).clamp(1, values.len());
        let (want, got) = (values[rank - 1] as f64, sketch.quantile(part).unwrap());
        prop_assert!((want - got).abs() <= want * 0.0625 + 1e-9, "{} {}", want, got);
        prop_assert!(sketch.slots().count() <= 280);
        prop_assert_eq!(&Sketch::of(sketch.slots()), &sketch);
    }
}

#[test]
fn a_value_beyond_all_slots_is_in_the_last_and_no_value_has_no_quantile() {
    let mut sketch = Sketch::default();
    assert_eq!(sketch.quantile(0.5), None);
    sketch.add(u64::MAX);
    sketch.add((1 << 36) - 1);
    assert_eq!(sketch.slots().map(|(_, count)| count).collect::<Vec<_>>(), [2]);
    assert_eq!(Sketch::of([(u16::MAX, 3), (1, 0)]), Sketch::default(), "what is no slot, and what nobody is in");
}
