//! Whatever the text is, the answer is a configuration or a list of faults: never a panic, never a raw control character.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::PathBuf;

use holdfast_config::{Faults, Source, load};
use proptest::prelude::*;
use support::{GOOD, good_but};

/// Loads and checks what holds for every text.
fn survive(text: &str, environment: &[(String, String)]) -> Option<Faults> {
    let Err(faults) = load(&Source { environment, ..Source::text("t.yaml", text) }) else { return None };
    assert!(faults.total >= faults.listed.len() && !faults.listed.is_empty());
    let lines = u32::try_from(text.split(['\n', '\r']).count()).unwrap();
    for fault in &faults.listed {
        assert!(fault.line >= 1 && fault.column >= 1 && fault.line <= lines.max(1) + 1, "{fault:?}");
        assert!(!fault.reason.is_empty());
        assert!(fault.reason.len() < 2_000 && fault.path.len() < 20_000, "bounded text: {fault:?}");
        let shown = fault.to_string();
        assert!(shown.chars().all(|c| !c.is_control() || c == '\n'), "{shown:?}");
        assert_eq!(shown.matches('\n').count(), 2, "three lines, whatever the file holds: {shown:?}");
    }
    Some(faults)
}

/// Strings that have broken readers before.
const NAUGHTY: &[&str] = &[
    "",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "\u{1}\u{2}\u{3}",
    "\u{7f}",
    "\u{85}",
    "\u{feff}",
    "\u{fffe}",
    "\u{200b}",
    "\u{202e}abc",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "caf\u{e9}",
    "cafe\u{301}",
    "\u{ff21}cme",
    "\u{212b}",
    "\u{5d0}",
    "\u{10ffff}",
    "undefined",
    "null",
    "NULL",
    "Null",
    "~",
    "nil",
    "None",
    "true",
    "True",
    "yes",
    "no",
    "on",
    "off",
    "NaN",
    ".nan",
    "Infinity",
    "-.inf",
    "0",
    "-0",
    "+0",
    "1e1000",
    "0x7fffffff",
    "0o17",
    "017",
    "1_000",
    "1,000",
    "12:30:45",
    "2024-05-01",
    "2024-05-01T00:00:00Z",
    "99999999999999999999999999999999",
    "-9223372036854775808",
    "1.0e-400",
    ".5",
    "5.",
    "--1",
    "<<",
    "=",
    "!",
    "!!binary",
    "&a",
    "*a",
    "%",
    "@",
    "`",
    "|",
    ">",
    "|-",
    ">+9",
    "?",
    "-",
    ":",
    ": ",
    " #",
    "#",
    "{",
    "}",
    "[",
    "]",
    "{}",
    "[]",
    ",",
    "'",
    "\"",
    "\\",
    "---",
    "...",
    "{model}",
    "{{model}}",
    "{model",
    "${HOME}",
    "$(id)",
    "`id`",
    "; rm -rf /",
    "' OR 1=1 --",
    "../../etc/passwd",
    "..\\..\\x",
    "/dev/zero",
    "<script>alert(1)</script>",
    "%s%s%n",
    "{0}",
    "\u{1b}[31mred\u{1b}[0m",
    "http://",
    "http://a",
    "http://@:80",
    "http://[::1",
    "://",
    "::1",
    "latest",
    "LATEST",
    "con",
    "a\u{0}b",
    "\u{d7ff}",
    "\u{e000}",
    "x-holdfast-model",
    "Content-Length",
    "Transfer-Encoding\r\nX: y",
];

/// Places in the good configuration where a text of the user's stands.
const SLOTS: &[&str] = &[
    "acme",
    "{ screen: \"1\" }",
    "./data",
    "x-tenant",
    "\"127.0.0.1:7400\"",
    "\"http://127.0.0.1:9001\"",
    "24GiB, weight",
    "30s",
    "\ntenants:\n",
    "repository",
    "\"{model}-{version}\"",
    "info",
    "shed",
    "{ x: 1 }",
    "name: fixed",
    "[model, version]",
    "{ fleet: 16 }",
];

#[test]
fn naughty_strings_in_every_place() {
    let long = "x".repeat(100_000);
    for slot in SLOTS {
        for naughty in NAUGHTY.iter().copied().chain([long.as_str()]) {
            survive(&good_but(slot, naughty), &[]);
            let quoted = good_but(slot, &serde_json::to_string(naughty).unwrap());
            survive(&quoted, &[]);
            survive(
                GOOD,
                &[("HOLDFAST__TENANTS__0__NAME".into(), naughty.into()), ("HOLDFAST__STATE".into(), naughty.into())],
            );
            survive(GOOD, &[(format!("HOLDFAST__{naughty}"), naughty.into())]);
        }
    }
}

#[test]
fn a_tenant_that_is_let_in_is_what_was_written() {
    for naughty in NAUGHTY {
        let text = good_but("name: acme", &format!("name: {}", serde_json::to_string(naughty).unwrap()));
        if let Ok(loaded) = load(&Source::text("t.yaml", &text)) {
            let name = loaded.config.tenants[0].name.as_str();
            assert_eq!(name, *naughty);
            assert!(name.bytes().all(|b| b.is_ascii_graphic()), "{name:?}");
        }
    }
}

/// The public JSON vectors: JSON is YAML, more or less.
#[test]
fn json_vectors() {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    let folder = std::env::var_os("HOLDFAST_VECTORS").map_or(beside, PathBuf::from).join("json/test_parsing");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("not run: there are no vectors in {}; set HOLDFAST_VECTORS", folder.display());
        return;
    };
    let mut count = 0;
    for entry in entries {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        survive(&String::from_utf8_lossy(&bytes), &[]);
        count += 1;
    }
    assert!(count > 300, "{count} vectors in {}", folder.display());
}

#[test]
fn deep_and_wide_files_are_bounded() {
    let deep: Vec<String> = ["[", "{a: ", "- ", "? "].iter().map(|open| open.repeat(100_000)).collect();
    let nested = (0..5_000).fold(String::new(), |text, depth| text + &" ".repeat(depth) + "a:\n");
    let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n".to_owned();
    let wide = format!("{{{}}}", (0..100_000).map(|i| format!("k{i}: 1")).collect::<Vec<_>>().join(","));
    for text in deep.iter().chain([&nested, &bomb, &wide]) {
        assert!(survive(text, &[]).is_some());
    }
}

proptest! {
    #[test]
    fn any_text(text in "\\PC{0,200}") {
        survive(&text, &[]);
    }

    #[test]
    fn text_out_of_the_characters_of_yaml(text in "[a-c0-9:,{}\\[\\]&*!|>'\"%@#?~. \t\r\n\u{e9}\u{feff}-]{0,200}") {
        survive(&text, &[]);
    }

    #[test]
    fn a_good_file_with_pieces_cut_and_moved(
        edits in prop::collection::vec((0usize..2_000, 0usize..40, "[a-z0-9:,{}\\[\\]\"' \n-]{0,6}"), 1..6)
    ) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, cut, put) in edits {
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, put.chars());
        }
        survive(&text.into_iter().collect::<String>(), &[]);
    }

    #[test]
    fn any_override(name in "HOLDFAST__[A-Z0-9_]{0,40}", value in "\\PC{0,20}") {
        survive(GOOD, &[(name, value)]);
    }
}
