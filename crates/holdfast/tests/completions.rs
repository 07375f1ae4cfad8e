//! Completions of every shell, of which bash is there to try its own, and a manual page for each command that there is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use holdfast_testkit::TempDir;

/// The requests of manual pages that clap_mangen writes, in troff's `man` macros. Anything else would be printed as text, or left out.
const REQUESTS: [&str; 14] = ["TH", "SH", "SS", "TP", "PP", "RS", "RE", "IP", "B", "I", "br", "ie", "el", "sp"];

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast")).args(args).output().unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The commands below one, by its help.
fn below(path: &[String]) -> Vec<String> {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let help = printed(&args);
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    // A command begins its line; what is said of it goes on further to the right.
    let named = |line: &str| {
        let word = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
        word.split_whitespace().next().map(str::to_owned)
    };
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("  "));
    lines.filter_map(named).filter(|name| name != "help").collect()
}

/// Each command with its whole path, from the top.
fn commands() -> Vec<Vec<String>> {
    let (mut all, mut at) = (vec![Vec::new()], 0);
    while let Some(path) = all.get(at).cloned() {
        all.extend(below(&path).into_iter().map(|name| [path.clone(), vec![name]].concat()));
        at += 1;
    }
    all
}

#[test]
fn every_shell_has_completions_of_every_command() {
    let commands = commands();
    assert!(commands.len() > 40 && commands.contains(&vec!["rollout".to_owned(), "abort".to_owned()]), "{commands:?}");
    for (shell, head) in [
        ("bash", "complete -F _holdfast"),
        ("zsh", "#compdef holdfast"),
        ("fish", "complete -c holdfast"),
        ("elvish", "edit:completion:arg-completer[holdfast]"),
        ("powershell", "Register-ArgumentCompleter -Native -CommandName 'holdfast'"),
    ] {
        let script = printed(&["completions", shell]);
        assert!(script.contains(head), "{shell}: {}", &script[..script.len().min(400)]);
        for name in commands.iter().filter_map(|path| path.last()) {
            assert!(script.contains(name.as_str()), "{shell} does not know {name}");
        }
    }
}

/// What bash would offer, as it calls the function that the script has registered.
fn offered(script: &Path, words: &[&str]) -> BTreeSet<String> {
    let last = words.last().unwrap();
    let before = words[words.len() - 2];
    let asked = format!(
        "set -eu; source {}; complete -p holdfast >/dev/null; COMP_WORDS=({}); COMP_CWORD={}; \
         set +eu; _holdfast holdfast '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1
    );
    let output = Command::new("bash").args(["--norc", "--noprofile", "-c", &asked]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_takes_its_completions_and_completes_by_them() {
    let dir = TempDir::new();
    let script = dir.join("holdfast.bash");
    std::fs::write(&script, printed(&["completions", "bash"])).unwrap();
    let parsed = Command::new("bash").arg("-n").arg(&script).output().unwrap();
    assert!(parsed.status.success() && parsed.stderr.is_empty(), "{}", String::from_utf8_lossy(&parsed.stderr));
    let one = |word: &str| BTreeSet::from([word.to_owned()]);
    assert_eq!(offered(&script, &["holdfast", "rollo"]), one("rollout"));
    assert_eq!(offered(&script, &["holdfast", "rollout", "ab"]), one("abort"));
    assert_eq!(offered(&script, &["holdfast", "pin", "set", "--can"]), one("--canary"));
    assert_eq!(offered(&script, &["holdfast", "node", "list", "--output", "j"]), one("json"));
    let top = offered(&script, &["holdfast", ""]);
    for command in below(&[]) {
        assert!(top.contains(&command), "{command} is not among {top:?}");
    }
}

/// What a formatter would stumble over.
fn faults(page: &str) -> Vec<String> {
    let (mut faults, mut depth) = (Vec::new(), 0_i32);
    let mut sections = Vec::new();
    for line in page.lines() {
        if line.starts_with('\'') {
            faults.push(format!("a request by accident: {line}"));
        }
        let Some(request) = line.strip_prefix('.') else { continue };
        let name = request.split_whitespace().next().unwrap_or_default();
        if !REQUESTS.contains(&name) {
            faults.push(format!("an unknown request: {line}"));
        }
        match name {
            "RS" => depth += 1,
            "RE" => depth -= 1,
            "SH" => sections.push(request["SH".len()..].trim().trim_matches('"').to_owned()),
            _ => {}
        }
        if depth < 0 {
            faults.push(format!("ends what was not begun: {line}"));
        }
    }
    if depth != 0 {
        faults.push("an indentation is not ended".to_owned());
    }
    let starts = sections.starts_with(&["NAME".to_owned(), "SYNOPSIS".to_owned(), "DESCRIPTION".to_owned()]);
    if !starts {
        faults.push(format!("the sections are {sections:?}"));
    }
    faults
}

#[test]
fn every_command_has_a_manual_page_that_a_formatter_reads() {
    let dir = TempDir::new();
    let told = printed(&["man", dir.path().to_str().unwrap()]);
    let commands = commands();
    let pages = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(told.contains(&format!("{pages} pages")), "{told}");
    for path in &commands {
        let name = [&["holdfast".to_owned()][..], path].concat().join("-");
        let page = std::fs::read_to_string(dir.join(&format!("{name}.1"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(page.contains(&format!("\n.TH {name} 1 ")) || page.starts_with(&format!(".TH {name} 1 ")), "{name}");
        let named = page.lines().skip_while(|line| *line != ".SH NAME").nth(1).unwrap_or_default().replace('\\', "");
        assert!(named.starts_with(&format!("{name} - ")) && named.len() > name.len() + 8, "{name}: {named}");
        assert_eq!(faults(&page), Vec::<String>::new(), "{name}");
    }
    assert_eq!(printed(&["man"]), std::fs::read_to_string(dir.join("holdfast.1")).unwrap());
    // What a page says of a command below it has a page, too.
    let whole = printed(&["man"]);
    for (name, _) in whole.lines().filter_map(|line| line.strip_prefix("holdfast\\-")?.split_once("(1)")) {
        let file = format!("holdfast-{}.1", name.replace('\\', ""));
        assert!(dir.join(&file).exists(), "{file}");
    }
    let refused = run(&["man", "/proc/nowhere"]);
    assert_eq!(refused.status.code(), Some(1), "{}", String::from_utf8_lossy(&refused.stderr));
}
