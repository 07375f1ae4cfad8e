//! Repository chores that need no tool but cargo and git.
//!
//! `cargo xtask tidy` checks the rules that no linter knows: who may depend on whom, banned text, licences, file length, module docs, links between
//! documents. Each fault is printed as `file:line: rule: what`, and any fault ends the command with code 1. It changes no file, but for
//! `cargo xtask counts update`, which writes a new baseline.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

mod counts;
mod deps;
mod layout;
mod licences;
mod links;
mod lock;
mod report;
mod text;
mod tree;

use report::Fault;
use std::process::{Command, ExitCode};
use tree::Tree;

const USAGE: &str = "usage: cargo xtask tidy | links | table | counts check FILE | counts update FILE

  tidy   every rule of the repository
  links  links between the Markdown files only
  table  the dependency table as rows for ARCHITECTURE.md
  counts compares counted instructions with scripts/counts/baseline.txt, or writes them there; for scripts/counts/run.sh";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => Tree::read().and_then(|tree| {
            let mut faults = tidy(&tree, &metadata()?);
            faults.extend(licences::check(&tree, &licensed()?));
            Ok((faults, tree.len()))
        }),
        ["links"] => Tree::read().map(|tree| (links::check(&tree), tree.len())),
        ["table"] => {
            print!("{}", deps::markdown());
            return ExitCode::SUCCESS;
        }
        ["counts", verb @ ("check" | "update"), file] => return counted(file, *verb == "update"),
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
    faults.extend(lock::check(tree, built));
    faults.extend(text::check(tree));
    faults.extend(layout::check(tree));
    faults.extend(links::check(tree));
    faults
}

/// Judges counted instructions, or makes them the baseline, which takes as good a reason.
fn counted(file: &str, update: bool) -> ExitCode {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let judged = read(file).and_then(|measured| {
        // The first baseline has none before it.
        let baseline =
            if update { read(counts::BASELINE).unwrap_or_else(|_| measured.clone()) } else { read(counts::BASELINE)? };
        Ok((counts::compare(&measured, &baseline, &read(counts::CHANGELOG)?)?, measured))
    });
    let (mut verdict, measured) = match judged {
        Ok(judged) => judged,
        Err(error) => {
            eprintln!("xtask: {error}");
            return ExitCode::FAILURE;
        }
    };
    print!("{}", verdict.table);
    let mut faults = std::mem::take(&mut verdict.rises);
    if !update {
        faults.append(&mut verdict.strangers);
        verdict.notes.iter().for_each(|note| println!("note: {note}"));
    } else if faults.is_empty()
        && let Err(error) = std::fs::write(counts::BASELINE, counts::baseline(&measured))
    {
        faults.push(format!("{}: {error}", counts::BASELINE));
    }
    faults.iter().for_each(|fault| println!("error: {fault}"));
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    let printed = cargo(&["metadata", "--no-deps", "--format-version", "1"])?;
    serde_json::from_str(&printed).map_err(|e| format!("cargo metadata printed no JSON: {e}"))
}

/// The names of all packages that some build has: of any feature, for any platform.
fn built() -> Option<Vec<String>> {
    let every = ["tree", "--workspace", "--all-features", "--target", "all", "-e", "normal,build,dev"];
    let text = cargo(&[&every[..], &["--prefix", "none", "--format", "{p}"]].concat()).ok()?;
    Some(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// The packages of all builds for this platform, each behind its licence and a bar.
fn licensed() -> Result<String, String> {
    cargo(&[
        "tree",
        "--workspace",
        "--all-features",
        "-e",
        "normal,build,dev",
        "--prefix",
        "none",
        "--format",
        "{l}|{p}",
    ])
}

/// What cargo prints.
fn cargo(arguments: &[&str]) -> Result<String, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let what = format!("cargo {}", arguments.first().unwrap_or(&""));
    let output = Command::new(cargo).args(arguments).output().map_err(|e| format!("cannot run {what}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{what} printed no text: {e}"))
}
