//! Planning limits: recorded traffic against the bucket that decides.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod plan_support;

use std::fmt::Write;

use holdfast_testkit::TempDir;
use plan_support::{json_of, plan, refused, row};
use serde_json::json;

/// A file of a hundred requests in one moment by one tenant, and one a second by another, for ten seconds.
fn traffic(folder: &TempDir) -> String {
    let mut text = String::from("time,tenant,cost\n");
    for _ in 0..100 {
        text.push_str("1800000000,burst,1\n");
    }
    for second in 0..10 {
        writeln!(text, "{}.5,steady,2", 1_800_000_000u64 + second).unwrap();
    }
    let file = folder.path().join("traffic.csv");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn what_a_limit_would_have_refused_is_counted_by_tenant() {
    let folder = TempDir::new();
    let file = traffic(&folder);
    let told = json_of(&format!("plan limits --traffic {file} --limit 20:40"));
    assert_eq!((&told["requests"], &told["refused"]), (&json!(110), &json!(60)), "{told}");
    let [burst, steady] = [0, 1].map(|i: usize| &told["tenants"][i]);
    assert_eq!(
        (&burst["tenant"], &burst["refused"], &burst["longest_wait_ms"]),
        (&json!("burst"), &json!(60), &json!(50.0))
    );
    assert_eq!((&steady["cost"], &steady["refused"]), (&json!(20), &json!(0)));
    let own = json_of(&format!("plan limits --traffic {file} --limit 20:40 --tenant burst=1000 --tenant steady=1:1"));
    assert_eq!((&own["refused"], own["tenants"][0]["never"].as_u64()), (&json!(10), Some(10)), "{own}");
    assert_eq!(own["warnings"].as_array().unwrap().len(), 1, "{own}");
    let text = plan(&format!("plan limits --traffic {file} --limit 20:40"));
    assert_eq!(row(&text, "burst"), "burst 100 60 60.0 % 60 50.0 ms");
}

#[test]
fn a_file_that_a_spreadsheet_wrote_is_read_from_its_first_request_on() {
    let folder = TempDir::new();
    let file = folder.path().join("traffic.csv");
    for text in ["\u{feff}0,a,1\r\n1,b,2\r\n", "\u{feff}time,tenant,cost\r\n0,a,1\r\n1,b,2\r\n"] {
        std::fs::write(&file, text).unwrap();
        let told = json_of(&format!("plan limits --traffic {} --limit 20:40", file.display()));
        assert_eq!((&told["requests"], &told["refused"]), (&json!(2), &json!(0)), "{text:?}: {told}");
    }
}

#[test]
fn traffic_and_limits_that_cannot_be_are_refused() {
    let folder = TempDir::new();
    let file = traffic(&folder);
    for (more, field, value) in [
        ("--limit fast", "--limit", "fast"),
        ("--limit -1", "--limit", "-1"),
        ("--limit 20:", "--limit", "20:"),
        ("--limit 20 --tenant burst", "--tenant", "burst"),
        ("--limit 20 --tenant nobody=1", "--tenant", "nobody"),
    ] {
        assert_eq!(refused(&format!("plan limits --traffic {file} {more}")), (field.to_owned(), value.to_owned()));
    }
    for (text, at) in [
        ("1,a,1\n0,a,1\n", ":2"),
        ("1,a\n", ":1"),
        ("1,a,-1\n", ":1"),
        ("1,a,1\nx,a,1\n", ":2"),
        ("1,,1\n", ":1"),
        ("x,a,1\n", ":1"),
        ("", ""),
    ] {
        std::fs::write(&file, text).unwrap();
        let (field, value) = refused(&format!("plan limits --traffic {file} --limit 20"));
        assert_eq!((field.as_str(), value), ("--traffic", format!("{file}{at}")), "{text:?}");
    }
}
