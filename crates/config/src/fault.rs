//! What is wrong with a configuration, and where.
//!
//! Faults are collected, not returned one at a time: a person who fixes a file wants the whole list. The list is bounded: of a file with a
//! million faults the first [`MAX_LISTED`] by position are kept and the rest are counted.
//!
//! Text from the file appears only in quotes and escaped, so a hostile file cannot write control characters to a terminal.

use std::cmp::Reverse;
use std::fmt;

use serde::Serialize;

use crate::path::Path;
use crate::tree::{Origin, Place};

/// The most faults that are listed; all of them are counted.
pub const MAX_LISTED: usize = 100;

/// One thing that is wrong, or doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The file's name as the caller gave it, or `environment variable NAME`.
    pub file: String,
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Where in the configuration, such as `tenants[2].pins.screen`. Empty for the whole file.
    pub path: String,
    /// What is wrong and what is expected.
    pub reason: String,
    /// The valid name that is most like the unknown one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// The text of the line around the column, for a person.
    #[serde(skip)]
    excerpt: Excerpt,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Excerpt {
    text: String,
    caret: usize,
}

/// All that was found, in the order of the file; what the environment added comes last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// The first [`MAX_LISTED`].
    #[serde(rename = "faults")]
    pub listed: Vec<Fault>,
    /// How many there are in all.
    pub total: usize,
}

impl Faults {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }
}

impl fmt::Display for Fault {
    /// Three lines, as a compiler would print them: position and reason, the source line, a caret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.reason)?;
        if let Some(nearest) = &self.nearest {
            write!(f, "; the nearest is {nearest:?}")?;
        }
        let width = self.line.to_string().len();
        write!(
            f,
            "\n  {} | {}\n  {:width$} | {:caret$}^",
            self.line,
            self.excerpt.text,
            "",
            "",
            caret = self.excerpt.caret
        )
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.listed {
            writeln!(f, "{fault}")?;
        }
        match self.total.saturating_sub(self.listed.len()) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more ({} in all)", self.total),
        }
    }
}

impl std::error::Error for Faults {}

/// A fault before it is written out.
struct Raw {
    place: Place,
    path: String,
    reason: String,
    nearest: Option<String>,
}

/// Where faults are collected. Holds the sources, to quote from them.
pub(crate) struct Sink<'t> {
    name: &'t str,
    text: &'t str,
    environment: &'t [(String, String)],
    kept: Vec<Raw>,
    total: usize,
}

impl<'t> Sink<'t> {
    pub(crate) fn new(name: &'t str, text: &'t str, environment: &'t [(String, String)]) -> Self {
        Self { name, text, environment, kept: Vec::new(), total: 0 }
    }

    pub(crate) fn add(&mut self, place: Place, path: &Path<'_>, reason: impl Into<String>) {
        self.add_near(place, path, reason, None);
    }

    pub(crate) fn add_near(
        &mut self,
        place: Place,
        path: &Path<'_>,
        reason: impl Into<String>,
        nearest: Option<String>,
    ) {
        self.total += 1;
        self.kept.push(Raw { place, path: path.to_string(), reason: reason.into(), nearest });
        // Passes over the tree find faults in different orders; a slack of one list length keeps the first ones exact and sorting rare.
        if self.kept.len() >= 2 * MAX_LISTED {
            self.trim();
        }
    }

    /// Adds a fault about a name that is not in a short closed list. For passes in the order of the file: what comes after a full list is not
    /// shown, so no similar name is sought for it.
    pub(crate) fn add_unknown(&mut self, place: Place, path: &Path<'_>, reason: String, name: &str, known: &[&str]) {
        let is_shown = self.total < MAX_LISTED;
        let near = if is_shown { nearest(name, known.iter().copied(), &mut { usize::MAX }) } else { None };
        self.add_near(place, path, reason, near);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    fn trim(&mut self) {
        self.kept.sort_by_key(|raw| raw.place);
        self.kept.truncate(MAX_LISTED);
    }

    pub(crate) fn finish(mut self) -> Faults {
        self.trim();
        let listed = self.kept.iter().map(|raw| self.write_out(raw)).collect();
        Faults { listed, total: self.total }
    }

    fn write_out(&self, raw: &Raw) -> Fault {
        let Place { origin, line, column } = raw.place;
        let (file, excerpt) = match origin {
            Origin::File { offset } => (self.name.to_owned(), excerpt(self.text, offset as usize)),
            Origin::Environment { index } => {
                let (name, value) = self.environment.get(index as usize).map_or(("", ""), |(n, v)| (n, v));
                (format!("environment variable {name}"), excerpt(value, 0))
            }
        };
        let Raw { path, nearest, .. } = raw;
        let excerpt = if may_be_secret(path, &excerpt) { Excerpt::withheld() } else { excerpt };
        // The words of other parsers may quote the file as it is.
        let reason = raw.reason.chars().map(printable).collect();
        let file = file.chars().map(printable).collect();
        Fault { file, line, column, path: path.clone(), reason, nearest: nearest.clone(), excerpt }
    }
}

/// Where a connection to a store is written, there may be a password, though it should not.
fn may_be_secret(path: &str, excerpt: &Excerpt) -> bool {
    path.starts_with("store") || excerpt.text.contains("postgres")
}

impl Excerpt {
    fn withheld() -> Self {
        Self { text: "(not shown: it may hold a password)".to_owned(), caret: 0 }
    }
}

/// The most characters of a line that are shown before and after the position.
const AROUND: usize = 60;

/// The line at a byte offset: printable, cut around the position, with the caret's place in it.
fn excerpt(text: &str, offset: usize) -> Excerpt {
    let (before, after) = text.split_at_checked(offset).unwrap_or((text, ""));
    let is_break = |c: char| c == '\n' || c == '\r';
    let before = before.rsplit(is_break).next().unwrap_or("");
    let after = after.split(is_break).next().unwrap_or("");
    let skip = before.chars().count().saturating_sub(AROUND);
    let mut shown: String = before.chars().skip(skip).map(printable).collect();
    let caret = shown.chars().count();
    shown.extend(after.chars().take(AROUND).map(printable));
    Excerpt { text: shown.trim_end().to_owned(), caret }
}

/// Stands in for characters that steer a terminal, and for those that reorder or hide their neighbours.
fn printable(c: char) -> char {
    let is_invisible =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    // How wide a tab is depends on where it stands: the caret below would not know.
    if c == '\t' {
        return ' ';
    }
    if c.is_control() || is_invisible { '\u{fffd}' } else { c }
}

/// A text of the file in quotes, escaped and cut, for use in a reason.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 64;
    let cut: String = text.chars().take(LONGEST).collect();
    if cut.len() < text.len() { format!("{cut:?}...") } else { format!("{cut:?}") }
}

/// Out of the valid names, the one most like `wrong`: the fewest edits without regard to case, then the longest common
/// beginning, then the last of equals (the newest version, say).
///
/// A comparison costs the product of the lengths, which is taken off the budget; names that it no longer covers are not compared.
pub(crate) fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>, budget: &mut usize) -> Option<String> {
    const LONGEST: usize = 128;
    if wrong.is_empty() || wrong.len() > LONGEST {
        return None;
    }
    let wrong = wrong.to_ascii_lowercase();
    let distance = |name: &str| {
        let name = name.to_ascii_lowercase();
        let shared = wrong.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        (strsim::osa_distance(&wrong, &name), Reverse(shared))
    };
    let mut best = None;
    for name in names {
        *budget = budget.checked_sub(wrong.len() * name.len())?;
        let this = distance(name);
        if best.is_none_or(|(least, _): (_, &str)| this <= least) {
            best = Some((this, name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

/// The valid name that is most like a wrong one, if the search is not too long.
#[must_use]
pub fn nearest_name<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    nearest(wrong, names, &mut { crate::check::HINT_BUDGET })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_shows_one_printable_line() {
        let long = format!("{}x{}", "a".repeat(500), "b".repeat(500));
        for (text, offset, shown, caret) in [
            ("a: 1\nb: 2\nc: 3", 8, "b: 2", 3),
            ("a: 1\r\nb: 2\r\n", 6, "b: 2", 0),
            ("a: 1", 4, "a: 1", 4),
            ("", 0, "", 0),
            ("a: 1", 99, "a: 1", 4),
            ("a:\tb\tc", 5, "a: b c", 5),
            ("a: \u{1b}[31m\u{202e}z", 3, "a: \u{fffd}[31m\u{fffd}z", 3),
            ("\u{e4}\u{e4}: 1", 1, "\u{e4}\u{e4}: 1", 5), // not a boundary: the whole line, never a panic
            (&long, 500, &format!("{}x{}", "a".repeat(60), "b".repeat(59)), 60),
        ] {
            let excerpt = excerpt(text, offset);
            assert_eq!((excerpt.text.as_str(), excerpt.caret), (shown, caret), "{text:?} at {offset}");
        }
    }

    #[test]
    fn the_nearest_name() {
        let versions = ["1", "2"];
        for (wrong, names, near) in [
            ("bdy", &["head", "body", "uri"][..], Some("body")),
            ("SCREEN", &["screen", "rank"], Some("screen")),
            ("3", &versions, Some("2")),
            ("3", &[], None),
            ("", &versions, None),
        ] {
            assert_eq!(nearest(wrong, names.iter().copied(), &mut 1_000).as_deref(), near, "{wrong}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), versions, &mut 1_000), None, "no quadratic work on a hostile name");
        let mut budget = 5;
        assert_eq!(nearest("aaa", ["b", "c"], &mut budget), None, "half a search would name the wrong one");
    }
}
