//! Counted instructions against the committed ones: a rise of more than 5 % needs a word in the changelog.
//!
//! Both are texts of lines `NAME COUNT`, with one line `on ...` that says what was counted with. Counts of another compiler, tool or library
//! are other counts: they are shown and not judged.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the committed figures are.
pub(crate) const BASELINE: &str = "scripts/counts/baseline.txt";
/// What a rise is explained in.
pub(crate) const CHANGELOG: &str = "CHANGELOG.md";

/// The largest rise that needs no word, in per cent.
const MOST: u64 = 5;
/// What a line of the changelog has before a figure's name.
const WORD: &str = "instructions: ";

/// Figures by name, and what they were counted with.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    on: String,
    figures: BTreeMap<String, u64>,
}

impl Counts {
    fn parse(text: &str) -> Result<Self, String> {
        let mut counts = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once(' ') {
                Some(("on", on)) => on.clone_into(&mut counts.on),
                Some((name, count)) => {
                    let count = count.parse().map_err(|_| format!("{line:?} is not a name and a count"))?;
                    counts.figures.insert(name.to_owned(), count);
                }
                None => return Err(format!("{line:?} is not a name and a count")),
            }
        }
        if counts.on.is_empty() || counts.figures.is_empty() {
            return Err("the figures, or the line that says what they were counted with, are missing".to_owned());
        }
        Ok(counts)
    }
}

/// What is to be said of new figures.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The table, for people.
    pub(crate) table: String,
    /// Rises without a word.
    pub(crate) rises: Vec<String>,
    /// Figures that are on one side only.
    pub(crate) strangers: Vec<String>,
    /// What is worth knowing.
    pub(crate) notes: Vec<String>,
}

/// Compares new figures with the committed ones.
///
/// # Errors
/// One of the texts has another form.
pub(crate) fn compare(measured: &str, baseline: &str, changelog: &str) -> Result<Verdict, String> {
    let (now, base) = (Counts::parse(measured)?, Counts::parse(baseline)?);
    let excused = excused(changelog);
    let mut verdict = Verdict::default();
    let _ = writeln!(verdict.table, "| instructions of | committed | now | change |\n|---|---:|---:|---:|");
    for (name, count) in &now.figures {
        let Some(was) = base.figures.get(name) else {
            verdict.strangers.push(format!("{name} is not in {BASELINE}"));
            let _ = writeln!(verdict.table, "| {name} | - | {} | |", grouped(*count));
            continue;
        };
        let change = (*count as f64 / *was as f64 - 1.0) * 100.0;
        let _ = writeln!(verdict.table, "| {name} | {} | {} | {change:+.1} % |", grouped(*was), grouped(*count));
        if rose(*was, *count) && !excused.contains(&name.as_str()) {
            verdict.rises.push(format!(
                "{name} rose by more than {MOST} %: lower it, or say why on a line with `{WORD}{name}` in the unreleased part of {CHANGELOG}"
            ));
        } else if rose(*count, *was) {
            verdict.notes.push(format!("{name} fell: keep the gain with `make counts UPDATE=1`"));
        }
    }
    let missing = base.figures.keys().filter(|name| !now.figures.contains_key(*name));
    verdict.strangers.extend(missing.map(|name| format!("{name} is in {BASELINE} and was not counted")));
    if now.on != base.on {
        verdict.notes.push(format!("not judged: counted with {}, committed with {}", now.on, base.on));
        verdict.notes.append(&mut verdict.rises);
        verdict.notes.append(&mut verdict.strangers);
    }
    Ok(verdict)
}

fn rose(from: u64, to: u64) -> bool {
    to * 100 > from * (100 + MOST)
}

/// Names that the changelog's unreleased part has a word on.
fn excused(changelog: &str) -> Vec<&str> {
    let unreleased = changelog.lines().skip_while(|line| *line != "## Unreleased").skip(1);
    let unreleased = unreleased.take_while(|line| !line.starts_with("## "));
    let after = unreleased.flat_map(|line| line.split(WORD).skip(1));
    after.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default()).collect()
}

/// The text of a new baseline.
pub(crate) fn baseline(measured: &str) -> String {
    let rule = "# Instructions of one operation, as `make counts` counts them. Made by `make counts UPDATE=1`; see docs/benchmarks.md.";
    format!("{rule}\n{measured}")
}

/// 12,345.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "# rule\non rustc 1\na 100\nb 12000\n";
    const LOG: &str = "# Changelog\n\n## Unreleased\n\n- More is checked (instructions: b, and why).\n\n## 1.0\n\n- instructions: a\n";

    fn judged(measured: &str) -> Verdict {
        compare(measured, BASE, LOG).unwrap()
    }

    #[test]
    fn up_to_five_per_cent_passes_and_more_does_not() {
        assert_eq!(judged("on rustc 1\na 105\nb 12000\n").rises, Vec::<String>::new());
        let rises = judged("on rustc 1\na 106\nb 12000\n").rises;
        assert!(
            rises.len() == 1 && rises[0].contains("`instructions: a`"),
            "a released word excuses nothing: {rises:?}"
        );
    }

    #[test]
    fn a_word_in_the_unreleased_part_excuses_that_figure() {
        assert_eq!(judged("on rustc 1\na 100\nb 24000\n").rises, Vec::<String>::new());
        assert_eq!(excused("## Unreleased\n- `instructions: decide-100`\n- instructions: x\n"), ["decide-100", "x"]);
    }

    #[test]
    fn figures_that_come_or_go_are_told_and_falls_too() {
        let verdict = judged("on rustc 1\na 90\nc 5\n");
        assert_eq!(verdict.strangers.len(), 2);
        assert_eq!(verdict.notes.len(), 1);
    }

    #[test]
    fn counts_of_another_compiler_are_shown_and_not_judged() {
        let verdict = judged("on rustc 2\na 500\nb 12000\n");
        assert_eq!((verdict.rises.len(), verdict.strangers.len()), (0, 0));
        assert_eq!(verdict.notes.len(), 2);
        assert!(verdict.table.contains("| a | 100 | 500 | +400.0 % |"), "{}", verdict.table);
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        for bad in ["", "a 1\n", "on x\n", "on x\na\n", "on x\na b\n"] {
            assert!(compare(bad, BASE, LOG).is_err(), "{bad:?}");
        }
        assert_eq!(Counts::parse(&baseline("on x\na 1\n")), Counts::parse("on x\na 1\n"));
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
