//! Text that must not be in the repository: unfinished work, paths of one machine, package hosts, look-alike characters; and long files.
//!
//! The patterns are written in two halves so that this file does not ban itself.

use crate::report::Fault;
use crate::tree::Tree;

/// Lines that a source file may have.
const MAX_LINES: usize = 500;
const SOURCE_SUFFIXES: &[&str] = &[".rs", ".py", ".sh", ".js", ".ts", ".css", ".html"];

/// Whether a pattern must stand alone, or may be part of a word.
#[derive(Clone, Copy)]
enum Edges {
    Any,
    /// No letter, digit or `_` on either side.
    Word,
    /// The start of an absolute path: nothing before it that could be a part of a path.
    Root,
}

const BANNED: &[(&str, Edges, &str)] = &[
    (concat!("to", "do!"), Edges::Any, "unfinished"),
    (concat!("unimple", "mented!"), Edges::Any, "unfinished"),
    (concat!("TO", "DO"), Edges::Word, "unfinished"),
    (concat!("FIX", "ME"), Edges::Word, "unfinished"),
    (concat!("XX", "X"), Edges::Word, "unfinished"),
    (concat!("#[ign", "ore"), Edges::Any, "a test that does not run"),
    (concat!("allow(dead", "_code)"), Edges::Any, "code that nothing uses"),
    (concat!("/ho", "me/"), Edges::Root, "path of one machine"),
    (concat!("/ro", "ot/"), Edges::Root, "path of one machine"),
    (concat!("/wo", "rk"), Edges::Root, "path of one machine"),
    (concat!("/tmp/tar", "get"), Edges::Root, "path of one machine"),
    (concat!("index.crates", ".io"), Edges::Any, "host of a package registry"),
    (concat!("static.crates", ".io"), Edges::Any, "host of a package registry"),
    (concat!("pypi", ".org"), Edges::Any, "host of a package registry"),
    (concat!("pythonhosted", ".org"), Edges::Any, "host of a package registry"),
    (concat!("npmjs", ".org"), Edges::Any, "host of a package registry"),
    (concat!("deb.debian", ".org"), Edges::Any, "host of a package registry"),
    (concat!("security.debian", ".org"), Edges::Any, "host of a package registry"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.texts() {
        let lines = text.lines().count();
        if lines > MAX_LINES && SOURCE_SUFFIXES.iter().any(|suffix| path.ends_with(suffix)) {
            faults.push(Fault::new(path, MAX_LINES + 1, "file-length", format!("{lines} lines, {MAX_LINES} at most")));
        }
        for (at, line) in text.lines().enumerate() {
            check_line(path, at + 1, line, &mut faults);
            if path.ends_with(".rs") && path.contains("/src/") && has_debug_field(line) {
                let what = "a log line has words for people: no field in Rust's debug form (`?field`)".to_owned();
                faults.push(Fault::new(path, at + 1, "debug-field", what));
            }
        }
    }
    faults
}

fn check_line(path: &str, number: usize, line: &str, faults: &mut Vec<Fault>) {
    for (pattern, edges, why) in BANNED {
        if occurs(line, pattern, *edges) {
            faults.push(Fault::new(path, number, "banned-text", format!("{pattern}: {why}")));
        }
    }
    if let Some(bad) = line.chars().find(|c| looks_alike(*c)) {
        let what = format!("U+{:04X} looks like a space or like nothing", u32::from(bad));
        faults.push(Fault::new(path, number, "look-alike", what));
    }
}

/// Whether a line of Rust has a field of a log line in debug form: nowhere else does a question mark stand before a name.
fn has_debug_field(line: &str) -> bool {
    let code = line.trim_start();
    !code.starts_with("//")
        && code.match_indices('?').any(|(at, _)| {
            let before = code[..at].chars().next_back();
            let after = code[at + 1..].chars().next();
            before.is_none_or(|c| c == ' ' || c == '(') && after.is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        })
}

fn occurs(line: &str, pattern: &str, edges: Edges) -> bool {
    line.match_indices(pattern).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + pattern.len()..).and_then(|text| text.chars().next());
        match edges {
            Edges::Any => true,
            Edges::Word => !before.is_some_and(wordly) && !after.is_some_and(wordly),
            Edges::Root => {
                let starts = !before.is_some_and(|c| wordly(c) || "./-}*)$>".contains(c));
                starts && (pattern.ends_with('/') || !after.is_some_and(wordly))
            }
        }
    })
}

fn wordly(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Spaces that are not the space, characters without width, and marks that turn the direction of the text.
fn looks_alike(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{1680}' | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
        | '\u{205f}'..='\u{206f}' | '\u{3000}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(|f| format!("{}:{}", f.line, f.rule)).collect()
    }

    #[test]
    fn each_banned_text_is_found_at_its_line() {
        for (pattern, _, _) in BANNED {
            assert_eq!(rules("a.md", &format!("fine\nsee {pattern} here\n")), ["2:banned-text"], "{pattern}");
        }
    }

    #[test]
    fn words_that_only_contain_a_pattern_pass() {
        let work = concat!("/wo", "rk");
        for text in [
            concat!("TO", "DOS"),
            concat!("mktemp /x/y.XX", "XXXX"),
            &format!("docs{work}/x"),
            &format!("{work}space"),
            &format!("$DIR{work}/"),
            concat!("https://host.example/ho", "me/x"),
        ] {
            assert_eq!(rules("a.md", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(rules("a.md", &format!("in `{work}/main`")), ["1:banned-text"]);
        assert_eq!(rules("a.md", &format!("\"{work}\"")), ["1:banned-text"]);
    }

    #[test]
    fn only_sources_have_a_length() {
        let long = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(rules("a.rs", &long), ["501:file-length"]);
        assert_eq!(rules("a.rs", &"x\n".repeat(MAX_LINES)), Vec::<String>::new());
        assert_eq!(rules("vectors.json", &long), Vec::<String>::new());
    }

    #[test]
    fn fields_in_debug_form_are_found() {
        for (line, found) in [
            (concat!("warn!(", "?error, \"it fails\");"), true),
            (concat!("    tracing::info!(name, again_in = ", "?wait, \"waits\");"), true),
            (concat!("        ", "?peer,"), true),
            ("warn!(%error, count, \"it fails\");", false),
            ("let x = ask()?; f(x?, y)", false),
            ("fn f<T: ?Sized>()", false),
            (concat!("/// `?after=NAME` and (", "?limit=N)"), false),
        ] {
            let expected = if found { vec!["1:debug-field".to_owned()] } else { Vec::new() };
            assert_eq!(rules("crates/a/src/b.rs", line), expected, "{line}");
        }
        assert_eq!(rules("docs/a.md", concat!("f(", "?x)")), Vec::<String>::new());
    }

    #[test]
    fn look_alike_spaces_are_found_and_letters_pass() {
        assert_eq!(rules("a.rs", "a\u{a0}b"), ["1:look-alike"]);
        assert_eq!(rules("a.rs", "a\nb\u{202e}c"), ["2:look-alike"]);
        assert_eq!(rules("a.rs", "Grüße, 1 €, µs, →"), Vec::<String>::new());
    }
}
