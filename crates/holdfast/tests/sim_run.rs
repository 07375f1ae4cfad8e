//! `holdfast sim run`: all scenarios over some seeds, the same bytes for the same seeds, and what is told of a run that goes wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("sim").args(args).output().unwrap()
}

fn told(args: &[&str]) -> Vec<Value> {
    let out = sim(args);
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// In CI; `make sim` runs 1,000.
const SEEDS: &str = "30";

#[test]
fn every_scenario_goes_as_expected() {
    let all = told(&["run", "--all", "--seeds", SEEDS, "--output", "json"]);
    assert!(all.len() >= 10, "{all:?}");
    for scenario in all {
        assert!(scenario["passed"] == true && scenario["runs"] == 30, "{scenario:#}");
    }
}

#[test]
fn the_same_seeds_print_the_same_bytes() {
    let names: Vec<String> = told(&["list", "--output", "json"])[0]["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].as_str().unwrap().to_owned())
        .collect();
    for name in &names {
        let args = ["run", name, "--seeds", "2", "--seed", "5", "--log"];
        let (first, second) = (sim(&args), sim(&args));
        assert!(first.status.success() && first.stdout == second.stdout, "{name}");
        assert_ne!(first.stdout, sim(&["run", name, "--seeds", "2", "--seed", "6", "--log"]).stdout, "{name}");
    }
}

#[test]
fn what_goes_wrong_is_told_with_its_seed_and_its_acts() {
    // Without damping every coming and going makes a new list.
    let args = ["run", "cache-flapping", "--seeds", "3", "--set", "damped=0", "--output", "json"];
    let out = sim(&args);
    assert_eq!(out.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&out.stdout).unwrap();
    let wrong = &told["wrong"];
    assert!(told["passed"] == false && wrong["seed"] == 1 && told["runs"] == 1, "{told:#}");
    assert!(wrong["what"].as_str().unwrap().contains("list_changes"), "{told:#}");
    let (acts, of) = (wrong["acts"].as_array().unwrap().len() as u64, wrong["of_acts"].as_u64().unwrap());
    assert!(acts > 0 && acts < of, "some of the acts are enough: {told:#}");
}

#[test]
fn what_is_there_to_compare_goes_wrong() {
    for (scenario, knob, figure) in [
        ("region-loss", "damped=0", "outs is"),
        ("region-loss", "gradual=0", "origin_peak is"),
        ("region-loss", "room_percent=110", "crowded is"),
        ("cache-outage-arms", "fallback=0", "moved is"),
        ("spike-and-sustained", "heavy_s=30", "heavy_moves is"),
        ("spike-and-sustained", "spike_s=70", "spiky_moves is"),
        ("growth", "room=20", "fullest is"),
    ] {
        let out = sim(&["run", scenario, "--seeds", "1", "--set", knob, "--output", "json"]);
        assert_eq!(out.status.code(), Some(1), "{scenario} {knob}: {out:?}");
        let told: Value = serde_json::from_slice(&out.stdout).unwrap();
        let found = told["figures"].as_array().unwrap().iter().any(|f| {
            let [least, most] = ["least", "most"].map(|k| f[k].as_f64().unwrap());
            let expected = f["expected"].as_array();
            let name = figure.trim_end_matches(" is");
            let outside = expected.is_some_and(|e| least < e[0].as_f64().unwrap() || most > e[1].as_f64().unwrap());
            f["name"] == name && outside
        });
        assert!(found, "{scenario} {knob}: {told:#}");
    }
}

#[test]
fn a_scenario_of_ones_own_runs_from_a_file_and_is_drawn() {
    let folder = std::env::temp_dir().join(format!("holdfast-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, plot) = (folder.join("own.yaml"), folder.join("own.svg"));
    let shown = sim(&["show", "lease-outage"]);
    let text = String::from_utf8(shown.stdout).unwrap().replace("name: lease-outage", "name: own");
    std::fs::write(&file, text).unwrap();
    let out = sim(&["run", file.to_str().unwrap(), "--seeds", "2", "--plot", plot.to_str().unwrap()]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.starts_with("own: as expected; 2 runs from seed 1"), "{text}");
    assert!(std::fs::read_to_string(&plot).unwrap().contains("<polyline"));
    std::fs::write(&file, "name: own\nabout: x\nworld: lease\nset: { gateway: 3 }\n").unwrap();
    let out = sim(&["run", file.to_str().unwrap()]);
    let words = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(2) && words.contains("set.gateway: "), "{words}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn wrong_use_exits_with_2() {
    for args in [
        vec!["run", "region-loss", "--set", "regions=1"],
        vec!["run"],
        vec!["run", "no-such-scenario"],
        vec!["run", "pin-flip", "--seeds", "0"],
        vec!["run", "pin-flip", "--set", "gateways"],
        vec!["run", "pin-flip", "--set", "nodes=3"],
        vec!["show", "no-such-scenario"],
    ] {
        assert_eq!(sim(&args).status.code(), Some(2), "{args:?}");
    }
}
