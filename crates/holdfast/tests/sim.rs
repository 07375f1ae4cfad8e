//! `holdfast sim`: the same seeds print the same bytes, in words that programs rely on; wrong use is told apart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast")).args(["sim", "lease"]).args(args).output().unwrap()
}

#[test]
fn the_same_seeds_print_the_same_bytes() {
    for form in ["json", "table"] {
        let args = ["--seeds", "2", "--seed", "7", "--output", form];
        let (first, second) = (sim(&args), sim(&args));
        assert!(first.status.success() && !first.stdout.is_empty());
        assert_eq!(first.stdout, second.stdout);
        let other = sim(&["--seeds", "2", "--seed", "8", "--output", form]);
        assert_ne!(first.stdout, other.stdout);
    }
}

#[test]
fn the_rows_of_the_worked_case() {
    let out = sim(&["--seeds", "4", "--output", "json"]);
    let told: Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["chunk"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 25, 100]);
    let calls: Vec<f64> = rows.iter().map(|row| row["store_calls_per_second_mean"].as_f64().unwrap()).collect();
    assert!(calls.is_sorted_by(|a, b| a > b), "{calls:?}");
    for row in rows {
        assert_eq!(row["seeds"], 4);
        let of = |key: &str| row[key].as_f64().unwrap();
        assert!(of("worst_second_min") <= of("worst_second_mean") && of("worst_second_mean") <= of("worst_second_max"));
        // Requests, and each call to the store and its answer.
        let steps = 4.0 * 10.0 * (1_600.0 + 2.0 * of("store_calls_per_second_mean"));
        assert!((of("events") - steps).abs() < steps / 20.0, "{row}");
        assert!(of("over_admission_worst") <= of("over_admission_bound"));
    }
}

#[test]
fn fifty_gateways_ask_less_than_they_would_by_a_chunks_time() {
    let calls = |waiting: &str| {
        let args =
            ["--gateways", "50", "--seeds", "2", "--chunk-percent", "2.5", "--waiting", waiting, "--output", "json"];
        let told: Value = serde_json::from_slice(&sim(&args).stdout).unwrap();
        told["rows"][0]["store_calls_per_second_mean"].as_f64().unwrap()
    };
    let (turns, naive) = (calls("turns"), calls("chunk-time"));
    assert!(turns < 200.0 && naive > 700.0, "{turns} {naive}");
}

#[test]
fn wrong_use_exits_with_2() {
    for args in [["--gateways", "0"], ["--chunk-percent", "-1"], ["--seconds", "3"], ["--seeds", "0"]] {
        assert_eq!(sim(&args).status.code(), Some(2), "{args:?}");
    }
}
