//! Running planners and reading what they print.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program, from the repository's root.
pub fn holdfast(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_holdfast")).args(args).current_dir(root).output().unwrap()
}

/// What a planner prints.
pub fn plan(line: &str) -> String {
    let args: Vec<&str> = line.split_whitespace().collect();
    let output = holdfast(&args);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it prints for programs.
pub fn json_of(line: &str) -> Value {
    serde_json::from_str(&plan(&format!("{line} --output json"))).unwrap()
}

/// The fault's field and value of what is refused with exit code 2, in both forms.
pub fn refused(line: &str) -> (String, String) {
    let args: Vec<&str> = line.split_whitespace().collect();
    let plain = holdfast(&args);
    let told = holdfast(&[args.as_slice(), &["--output", "json"]].concat());
    assert_eq!((plain.status.code(), told.status.code()), (Some(2), Some(2)), "{line}: {plain:?}");
    assert!(plain.stdout.is_empty(), "{line}: {plain:?}");
    let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|e| panic!("{line}: {e}"));
    let [field, value, reason] =
        ["field", "value", "reason"].map(|k| told["faults"][0][k].as_str().unwrap().to_owned());
    let said = String::from_utf8(plain.stderr).unwrap();
    assert_eq!(said.trim_end(), format!("{field} {value}: {reason}"), "{line}");
    (field, value)
}

/// A row of a table, by its first cell, with single spaces.
pub fn row(text: &str, first: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(first)).unwrap_or_else(|| panic!("{first}: {text}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
