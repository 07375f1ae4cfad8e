//! How many replicas it takes: for the worked case, for traffic, for a configuration, and what has no answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod plan_support;

use holdfast_testkit::TempDir;
use plan_support::{json_of, plan, refused};
use serde_json::{Value, json};

const SMALL: &str = "plan residency --versions 40 --size 2GB --memory 24GB";

fn solved(told: &Value) -> [u64; 4] {
    ["on_average", "one_layout", "likely", "replicas"].map(|key| told[key].as_u64().unwrap())
}

/// The fullest replica of the given layout, in bytes.
fn fullest(told: &Value) -> u64 {
    let layout = told["pools"][0]["given"]["layout"].as_array().unwrap();
    layout.iter().map(|replica| replica["needed_bytes"].as_u64().unwrap()).max().unwrap()
}

#[test]
fn the_worked_case_takes_more_than_its_sum_and_what_it_takes_is_enough() {
    let told = json_of("plan residency --versions 400 --size 2GB --memory 24GB --solve replicas");
    let [on_average, one_layout, likely, replicas] = solved(&told["solved"]);
    // 11 of 12 places on each are for 800 copies, one stays free.
    assert_eq!(on_average, 73);
    assert!(one_layout > 73 && likely > 73 && replicas == likely.max(one_layout), "{told}");
    let pool = &told["pools"][0];
    assert_eq!((&pool["proposed"]["fits"], &pool["given"]["fits"]), (&json!(true), &json!(true)));
    assert!(pool["keys"].as_array().unwrap().iter().all(|key| key["proposed_k"].as_u64().unwrap() >= 2), "{pool}");
    assert_eq!(pool["proposed"]["left_without_holder"], json!([]), "two copies of everything: any one may be lost");
}

#[test]
fn one_replica_less_is_too_few() {
    let [on_average, one_layout, likely, _] = solved(&json_of(&format!("{SMALL} --solve replicas"))["solved"]);
    assert!(on_average <= one_layout && on_average <= likely);
    let given = |replicas: u64| fullest(&json_of(&format!("{SMALL} --layouts 1 --k 2 --replicas {replicas}")));
    let most = 22_000_000_000;
    assert!(given(one_layout) <= most && given(one_layout - 1) > most, "the room of one version stays free");
    let [.., surer, _] = solved(&json_of(&format!("{SMALL} --solve replicas --chance 0"))["solved"]);
    assert!(surer >= likely);
    let [single, ..] = solved(&json_of(&format!("{SMALL} --solve replicas --copies 1"))["solved"]);
    assert_eq!((single, on_average), (4, 8), "40 and 80 copies at 11 a replica");
}

#[test]
fn traffic_may_take_more_than_memory() {
    let told = json_of(&format!("{SMALL} --solve replicas --requests 9000 --skew 0 --bears 100"));
    let [_, one_layout, likely, replicas] = solved(&told["solved"]);
    let traffic = told["solved"]["traffic"].as_u64().unwrap();
    assert!(traffic > 90 && replicas == traffic.max(likely).max(one_layout), "even parts would take 90: {told}");
    assert!(
        plan(&format!("{SMALL} --solve replicas --bears 900")).contains("no replica gets more than 900 requests/s")
    );
    assert_eq!(json_of(&format!("{SMALL} --solve replicas"))["solved"]["traffic"], Value::Null);
}

#[test]
fn copies_of_everything_come_first_where_memory_is_short() {
    let case = "plan residency --versions 400 --size 2GB --replicas 60 --memory 24GB --layouts 1";
    let (usual, twice) = (json_of(case), json_of(&format!("{case} --copies 2")));
    let ks = |told: &Value| -> Vec<u64> {
        told["pools"][0]["keys"].as_array().unwrap().iter().map(|key| key["proposed_k"].as_u64().unwrap()).collect()
    };
    let twos = |told: &Value| ks(told).iter().filter(|k| **k >= 2).count();
    assert!(twos(&twice) > twos(&usual), "more keys have two");
    assert!(ks(&twice)[0] < ks(&usual)[0], "and the heaviest fewer");
    let short = ks(&twice).iter().filter(|k| **k < 2).count();
    let warnings = twice["warnings"].as_array().unwrap();
    let words = format!("{short} keys have fewer than 2 copies as proposed");
    assert!(warnings.iter().any(|w| w.as_str().unwrap().contains(&words)), "{words}: {warnings:?}");
}

#[test]
fn a_configuration_is_told_how_many_to_add() {
    let folder = TempDir::new();
    let file = folder.path().join("holdfast.yaml");
    let tenants: String = (0..12).map(|n| format!("  - {{ name: t{n}, pins: {{ screen: \"{n}\" }} }}\n")).collect();
    let versions: Vec<String> = (0..12).map(|n| format!("{{ version: \"{n}\", size: 3GB }}")).collect();
    let text = format!(
        "auth: {{ trusted_header: x-tenant }}\npools:\n  - name: screening\n    protocol: open-inference\n    residency: repository\n    replicas:\n\
         {}{}models:\n  - {{ name: screen, pool: screening, versions: [{}] }}\ntenants:\n{tenants}",
        "      - { name: r1, url: \"http://127.0.0.1:9001\", memory: 10GB }\n",
        "      - { name: r2, url: \"http://127.0.0.1:9002\", memory: 10GB }\n",
        versions.join(", ")
    );
    std::fs::write(&file, text).unwrap();
    let asked = format!("plan residency --config {} --solve replicas", file.display());
    let told = json_of(&asked);
    let pool = &told["pools"][0];
    let [on_average, one_layout, ..] = solved(&pool["solved"]);
    // 72 GB and 3 GB free on each: 7 n of memory.
    assert_eq!((on_average, &pool["replicas_now"]), (11, &json!(2)), "{told}");
    assert!(one_layout >= 11, "{told}");
    let names: Vec<&str> =
        pool["proposed"]["layout"].as_array().unwrap().iter().map(|r| r["replica"].as_str().unwrap()).collect();
    assert!(names.contains(&"r1") && names.contains(&"r2") && names.contains(&"added-0-0"), "{names:?}");
    let [larger, ..] = solved(&json_of(&format!("{asked} --memory 100GB"))["pools"][0]["solved"]);
    assert!(larger < on_average);
    assert!(
        plan(&format!("{asked} --memory 100GB --copies 1")).contains("pool screening: 12 pinned keys on 2 replicas")
    );
}

#[test]
fn what_has_no_answer_is_refused() {
    for (line, field, value) in [
        ("--versions 4 --size 2GB --memory 3GB", "--memory", "3GB"),
        ("--versions 4 --size 2GB --memory 24GB --copies 16", "--copies", "16"),
        ("--versions 4 --size 2GB --memory 24GB --chance 1.2", "--chance", "1.2"),
        ("--versions 4 --size 2GB --memory 24GB --bears 0", "--bears", "0"),
        ("--versions 4 --size 2GB --memory 24GB --requests 1000000 --bears 1", "--solve", "replicas"),
    ] {
        assert_eq!(refused(&format!("plan residency {line} --solve replicas")), (field.to_owned(), value.to_owned()));
    }
    for wrong in ["--replicas 4", "--k 3"] {
        let line = format!("{SMALL} --solve replicas {wrong}");
        let args: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(plan_support::holdfast(&args).status.code(), Some(2), "{wrong}");
    }
}
