//! Links in Markdown files: a link to a file of the repository, or to a heading of a Markdown file, must lead somewhere.
//!
//! Addresses of other sites are not asked.

use crate::report::Fault;
use crate::tree::Tree;

const RULE: &str = "link";

pub(crate) fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_markdown(path)) {
        for (line, target) in targets(text) {
            if let Some(what) = broken(tree, path, &target) {
                faults.push(Fault::new(path, line, RULE, what));
            }
        }
    }
    faults
}

fn is_markdown(path: &str) -> bool {
    path.ends_with(".md")
}

/// Link targets with their lines; code is no link.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let target = after.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.trim_matches(['<', '>']).to_owned()));
            rest = after;
        }
        if let Some((_, target)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
            found.push((number, target.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// Lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

fn broken(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { from.to_owned() } else { resolve(from, file)? };
    if !tree.exists(&path) {
        return Some(format!("{target}: no such file"));
    }
    let text = tree.text(&path).filter(|_| is_markdown(&path) && !heading.is_empty())?;
    (!headings(text).iter().any(|h| h == heading)).then(|| format!("{target}: no such heading"))
}

/// A path relative to the file that has the link, from the root. A path that leaves the repository is itself, and so does not exist.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." if parts.pop().is_none() => return Some(target.to_owned()),
            ".." => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a file's headings: lower case, punctuation dropped, spaces as hyphens, a number after a repeated one.
fn headings(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let repeats = anchors.iter().filter(|a| **a == anchor).count();
        if repeats > 0 {
            anchors.push(format!("{anchor}-{repeats}"));
        }
        anchors.push(anchor);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", "# One: two!\n\n## `x` and y\n\n```\n# not a heading\n```\n"),
            ("README.md", "# Top\n"),
            ("crates/net/src/lib.rs", ""),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_resolve_pass() {
        let text = "# Here\n[a](b.md) [b](./b.md#one-two) [c](../README.md#top) [d](../crates/net) [e](#here)\n\
            [f](https://example.org/nowhere) [g](b.md#x-and-y) [h](/README.md \"title\")\n[ref]: b.md\n";
        assert_eq!(faults(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_do_not_are_found() {
        assert_eq!(faults("x\n[a](c.md)\n"), ["docs/a.md:2: link: c.md: no such file"]);
        assert_eq!(faults("[a](b.md#three)"), ["docs/a.md:1: link: b.md#three: no such heading"]);
        assert_eq!(faults("[a](b.md#not-a-heading)").len(), 1);
        assert_eq!(faults("[a](../../outside.md)").len(), 1);
        assert_eq!(faults("[a](b.md) [b](c.md)").len(), 1);
        assert_eq!(faults("[ref]: c.md").len(), 1);
        assert_eq!(faults("[a](#nowhere)").len(), 1);
    }

    #[test]
    fn code_is_not_read() {
        assert_eq!(faults("```\n[a](c.md)\n```\n`[b](c.md)`\n"), Vec::<String>::new());
    }
}
