//! The published vectors, made by another implementation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use holdfast_assign::place::hash;
use holdfast_assign::{Allocation, Edit, Experiment, Facts, Field, KeyFrom, Outcome, Purpose, Split, Target, place};

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn places() {
    let mut edges = Vec::new();
    for row in rows(include_str!("../vectors/places.tsv")) {
        let purpose = Purpose::ALL.into_iter().find(|purpose| purpose.salt() == row[0]).unwrap();
        let parts: Vec<Vec<u8>> = row[3..].iter().map(|hex| bytes(hex)).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        assert_eq!(format!("{:016x}", hash(purpose, &parts)), row[1], "{row:?}");
        assert_eq!(place(purpose, &parts).to_string(), row[2], "{row:?}");
        if parts.first() == Some(&&b"edge"[..]) {
            edges.push(place(purpose, &parts));
        }
    }
    assert_eq!(edges, [0, 999, 1000, 9999]);
}

struct User<'u>(&'u str);

impl Facts for User<'_> {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        (from == KeyFrom::User).then_some(self.0)
    }

    fn field(&self, _: &Field) -> Option<&str> {
        None
    }

    fn now_ms(&self) -> u64 {
        0
    }
}

#[test]
fn arms() {
    let mut seen = 0;
    for row in rows(include_str!("../vectors/arms.tsv")) {
        let weights: Vec<u32> = row[3].split(',').map(|weight| weight.parse().unwrap()).collect();
        let edit = Edit {
            version: row[1].parse().unwrap(),
            coverage: row[2].parse().unwrap(),
            split: Split::of(&weights).unwrap(),
        };
        let experiment = Experiment {
            salt: row[0].into(),
            running: true,
            start: None,
            end: None,
            keys: vec![KeyFrom::User],
            target: Target::default(),
            layer: None,
            holdout: None,
            sticky_ms: None,
            allocation: Allocation::new(edit).unwrap(),
        };
        let arm = match experiment.assign(&User(row[4])) {
            Outcome::Arm(arm, KeyFrom::User) => arm.to_string(),
            _ => "-".to_owned(),
        };
        assert_eq!(arm, row[5], "{row:?}");
        seen += 1;
    }
    assert_eq!(seen, 120);
}

/// The other implementation, run: it needs nothing but Python.
#[test]
fn the_script_makes_the_same_vectors() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/check.py");
    let run = std::process::Command::new("python3").arg(script).env("PYTHONDONTWRITEBYTECODE", "1").output();
    let output = run.expect("python3 is installed");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.trim() == "the same", "{told}{}", String::from_utf8_lossy(&output.stderr));
}
