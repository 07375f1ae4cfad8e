//! Planning memory: the worked figures, a configuration's own layout, traffic, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod plan_support;

use holdfast_testkit::TempDir;
use plan_support::{json_of, plan, refused, row};
use serde_json::{Value, json};

const WORKED: &str = "plan residency --versions 400 --size 2GB --replicas 60 --memory 24GB";

#[test]
fn the_worked_case_has_its_digits() {
    let text = plan(WORKED);
    assert!(text.starts_with(
        "400 versions x 2 GB = 800 GB per full copy; 60 replicas x 24 GB = 1,440 GB\n\
         mean replication at most 1.8; 12 versions a replica\n"
    ));
    assert!(row(&text, "1 ").starts_with("1 800 GB fits"), "{text}");
    assert!(row(&text, "3 ").starts_with("3 2,400 GB does not fit"), "{text}");
    let told = json_of(&format!("{WORKED} --k 3"));
    let figures = ["full_copy_gb", "memory_gb", "mean_replication", "needed_gb"].map(|key| told[key].as_f64().unwrap());
    assert_eq!(figures, [800.0, 1_440.0, 1.8, 2_400.0]);
    assert_eq!((&told["fits"], &told["fits_on_average"]), (&json!(false), &json!(false)));
    assert_eq!(told["warnings"], json!(["k = 3 needs 2,400 GB of 1,440 GB and does not fit"]));
    let one = told["by_k"][0]["overflow_chance"].as_f64().unwrap();
    assert!((0.6..0.73).contains(&one), "k = 1 overflows one replica in about 2 of 3 layouts: {one}");
    assert_eq!((&told["by_k"][0]["fits"], &told["by_k"][0]["fits_on_average"]), (&json!(false), &json!(true)));
}

#[test]
fn heavy_tenants_are_proposed_more_replicas_than_the_tail_and_nobody_overflows() {
    let told = json_of(&format!("{WORKED} --layouts 1 --k 1"));
    let pool = &told["pools"][0];
    let ks: Vec<u64> = pool["keys"].as_array().unwrap().iter().map(|key| key["proposed_k"].as_u64().unwrap()).collect();
    assert!(ks[0] >= 4 && ks[100..].iter().all(|k| (1..=2).contains(k)), "{ks:?}");
    assert_eq!((&pool["given"]["fits"], &pool["proposed"]["fits"]), (&json!(true), &json!(true)));
    assert!(pool["proposed"]["needed_gb"].as_f64().unwrap() <= 1_440.0);
    let alone = |laid: &Value| {
        laid["left_without_holder"].as_array().unwrap().iter().map(|l| l["total"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(alone(&pool["given"]), 400, "one holder each");
    assert_eq!(alone(&pool["proposed"]), ks.iter().filter(|k| **k == 1).count() as u64);
    let too_many = json_of(&format!("{WORKED} --layouts 1 --k 3"));
    assert!(
        too_many["pools"][0]["given"]["cold_loads_per_second"].as_f64().unwrap() > 1.0,
        "what does not fit is loaded"
    );
    assert_eq!(pool["proposed"]["cold_loads_per_second"], 0.0);
}

#[test]
fn where_nothing_fits_no_loss_is_called_safe() {
    let tight = "plan residency --versions 40 --size 2GB --replicas 4 --memory 4GB --layouts 1";
    for k in ["", " --k 3", " --k 4"] {
        let text = plan(&format!("{tight}{k}"));
        assert!(!text.contains("no loss of one replica"), "{text}");
        assert!(text.contains("as given: 4 replicas are to hold more than fits"), "{text}");
        let told = json_of(&format!("{tight}{k}"));
        assert_eq!(told["pools"][0]["given"]["left_without_holder"].as_array().unwrap().len(), 4, "{told}");
    }
    // The product's own default.
    let roomy = "plan residency --versions 4 --size 2GB --replicas 4 --memory 24GB --layouts 1";
    let keys = json_of(roomy)["pools"][0]["keys"].clone();
    assert!(keys.as_array().unwrap().iter().all(|key| key["k"] == 2), "{keys}");
    assert!(plan(roomy).contains("as given: no loss of one replica leaves a pinned version without a holder"));
    let one = json_of("plan residency --versions 4 --size 2GB --replicas 1 --memory 24GB --layouts 1");
    assert_eq!(one["pools"][0]["keys"][0]["k"], 1, "no more than there are replicas");
}

#[test]
fn traffic_from_a_file_decides_who_is_heavy() {
    let folder = TempDir::new();
    let file = folder.path().join("traffic.csv");
    std::fs::write(&file, "tenant,requests_per_second\nsmall,1\nlarge,500\nother,2\n").unwrap();
    let case = "plan residency --versions 3 --size 1GB --replicas 8 --memory 24GB";
    let told = json_of(&format!("{case} --traffic {}", file.display()));
    let keys = told["pools"][0]["keys"].as_array().unwrap();
    let ks: Vec<u64> = keys.iter().map(|key| key["proposed_k"].as_u64().unwrap()).collect();
    assert_eq!(ks, [2, 8, 2], "{keys:?}");
    for (text, line) in
        [("a,1\nb\n", 2), ("a,1\nb,x\n", 2), ("a,-1\n", 1), ("a,1\na,2\n", 2), ("\u{feff}a,1\na,2\n", 2)]
    {
        std::fs::write(&file, text).unwrap();
        let (field, value) = refused(&format!("{case} --traffic {}", file.display()));
        assert_eq!((field.as_str(), value), ("--traffic", format!("{}:{line}", file.display())), "{text:?}");
    }
}

#[test]
fn a_configuration_is_planned_with_its_own_names() {
    let folder = TempDir::new();
    let file = folder.path().join("holdfast.yaml");
    let text = "\
auth: { trusted_header: x-tenant }
pools:
  - name: screening
    protocol: open-inference
    residency: repository
    replicas:
      - { name: r1, url: \"http://127.0.0.1:9001\", memory: 4GB }
      - { name: r2, url: \"http://127.0.0.1:9002\", memory: 4GB }
models:
  - name: screen
    pool: screening
    versions: [{ version: \"1\", size: 3GB }, { version: \"2\", size: 3GB }, { version: \"3\", size: 1GB }]
tenants:
  - { name: acme, subset: 2, pins: { screen: \"1\" } }
  - { name: globex, subset: 1, pins: { screen: \"2\" } }
";
    std::fs::write(&file, text).unwrap();
    let told = json_of(&format!("plan residency --config {}", file.display()));
    let pool = &told["pools"][0];
    assert_eq!((&pool["full_copy_gb"], &pool["memory_gb"]), (&json!(6.0), &json!(8.0)), "only what is pinned: {pool}");
    assert_eq!((&pool["given"]["fits"], &pool["given"]["needed_gb"]), (&json!(false), &json!(9.0)), "{pool}");
    let lost = pool["given"]["left_without_holder"].as_array().unwrap();
    // Both pins are to be on one replica, which has room for one. Of its two holders acme can rely on the other, globex on none.
    let keys: Vec<&Value> = lost.iter().map(|lost| &lost["keys"]).collect();
    assert!(keys.contains(&&json!(["globex/screen/2"])) && keys.contains(&&json!(["acme/screen/1"])), "{pool}");
    assert_eq!(lost.len(), 2, "{pool}");
    assert_eq!(told["warnings"].as_array().unwrap().len(), 1, "{told}");
    let traffic = folder.path().join("traffic.csv");
    std::fs::write(&traffic, "initech,5\n").unwrap();
    let (field, value) =
        refused(&format!("plan residency --config {} --traffic {}", file.display(), traffic.display()));
    assert_eq!((field.as_str(), value.as_str()), ("--traffic", "initech"));
    std::fs::write(&file, "pools: 7\n").unwrap();
    assert_eq!(refused(&format!("plan residency --config {}", file.display())).0, "--config");
}

#[test]
fn memory_that_cannot_be_is_refused() {
    for (line, field, value) in [
        ("--versions 0 --size 2GB --replicas 60 --memory 24GB", "--versions", "0"),
        ("--versions 400 --size 2GB --replicas 0 --memory 24GB", "--replicas", "0"),
        ("--versions 400 --size 2parsecs --replicas 60 --memory 24GB", "--size", "2parsecs"),
        ("--versions 400 --size 0 --replicas 60 --memory 24GB", "--size", "0"),
        ("--versions 400 --size 2GB --replicas 60 --memory -1", "--memory", "-1"),
        ("--versions 400 --size 2GB --replicas 60 --memory 24GB --k 61", "--k", "61"),
        ("--versions 400 --size 2GB --replicas 60 --memory 24GB --k 0", "--k", "0"),
        ("--versions 400 --size 2GB --replicas 60 --memory 24GB --requests 0", "--requests", "0"),
        ("--versions 400 --size 2GB --replicas 60 --memory 24GB --skew NaN", "--skew", "NaN"),
        ("--versions 100000 --size 2GB --replicas 10000 --memory 24GB", "--versions", "100000"),
        ("--config /nowhere.yaml", "--config", "/nowhere.yaml"),
        ("--config /nowhere.yaml --memory 24GB", "--memory", "24GB"),
        ("--versions 400 --size 2GB --memory 24GB", "--replicas", "left out"),
        ("--versions 400 --size 2GB --replicas 60 --memory 24GB --copies 0", "--copies", "0"),
    ] {
        assert_eq!(refused(&format!("plan residency {line}")), (field.to_owned(), value.to_owned()));
    }
    for wrong in [
        "",
        "--versions 400 --size 2GB",
        "--versions 4 --size 2GB --replicas 6 --memory 4GB --chance 0.1",
        "--versions 4 --size 2GB --replicas 6 --memory 4GB --config x",
    ] {
        let args: Vec<&str> = ["plan", "residency"].into_iter().chain(wrong.split_whitespace()).collect();
        assert_eq!(plan_support::holdfast(&args).status.code(), Some(2), "{wrong}");
    }
}
