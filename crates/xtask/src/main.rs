//! Repository chores that need no tool but cargo and git.
//!
//! `cargo xtask tidy` checks the rules that no linter knows: who may depend on whom, banned text, file length, module docs, links between
//! documents. Each fault is printed as `file:line: rule: what`, and any fault ends the command with code 1. It changes no file.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

mod deps;
mod layout;
mod links;
mod lock;
mod report;
mod text;
mod tree;

use report::Fault;
use std::process::{Command, ExitCode};
use tree::Tree;

const USAGE: &str = "usage: cargo xtask tidy | links | table

  tidy   every rule of the repository
  links  links between the Markdown files only
  table  the dependency table as rows for ARCHITECTURE.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => Tree::read().and_then(|tree| Ok((tidy(&tree, &metadata()?), tree.len()))),
        ["links"] => Tree::read().map(|tree| (links::check(&tree), tree.len())),
        ["table"] => {
            print!("{}", deps::markdown());
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
        Ok((faults, files)) => finish(faults, files),
    }
}

fn tidy(tree: &Tree, metadata: &serde_json::Value) -> Vec<Fault> {
    let mut faults = deps::check(tree, metadata);
    faults.extend(lock::check(tree));
    faults.extend(text::check(tree));
    faults.extend(layout::check(tree));
    faults.extend(links::check(tree));
    faults
}

fn finish(mut faults: Vec<Fault>, files: usize) -> ExitCode {
    faults.sort();
    for fault in &faults {
        println!("{fault}");
    }
    if faults.is_empty() {
        println!("xtask: {files} files, no fault");
        return ExitCode::SUCCESS;
    }
    println!("xtask: {files} files, {} faults", faults.len());
    ExitCode::FAILURE
}

fn metadata() -> Result<serde_json::Value, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo).args(["metadata", "--no-deps", "--format-version", "1"]).output();
    let output = output.map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata printed no JSON: {e}"))
}
