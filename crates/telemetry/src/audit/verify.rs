//! Whether a log is whole: each line against itself, each against the one before it, the beginning against what retention says that it removed, the end
//! against the head. Pure: lines go in, in the order of the files.

use super::record::Tip;
use super::sealed::{Flaw, Sealed, unseal};

/// The most of each kind of finding that is kept; all are counted.
const KEPT: usize = 1_000;

/// A place at which the chain is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// What a whole chain has there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// Records that the writer itself says are missing. No fault of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When it was noted.
    pub time: String,
    /// The word of [`super::GapWhy`].
    pub why: String,
    /// How many, if that can be known.
    pub count: Option<u64>,
    /// Bytes of a torn line that were cut off.
    pub torn_bytes: u64,
}

/// Files that retention removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// When.
    pub time: String,
    /// `age` or `size`.
    pub why: String,
    /// How many files.
    pub files: u64,
    /// The first record in them.
    pub from: u64,
    /// The last one.
    pub to: u64,
}

/// What the head says that the log's end was when it was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// This record.
    At(Tip),
    /// There is no head.
    Absent,
    /// It cannot be read.
    Unreadable,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The first breaks.
    pub breaks: Vec<Break>,
    /// How many there are in all.
    pub breaks_total: u64,
    /// The first gaps.
    pub gaps: Vec<Gap>,
    /// How many there are in all.
    pub gaps_total: u64,
    /// The first removals.
    pub removed: Vec<Removed>,
    /// Records that are whole.
    pub records: u64,
    /// Those of them that are of answers.
    pub answers: u64,
    /// The number of the first record that is there.
    pub first: u64,
    /// The last whole record.
    pub last: Option<Tip>,
    /// Bytes after the last line, such as of a record that is being written.
    pub unfinished_bytes: u64,
}

impl Report {
    /// Whether nothing was changed, removed or moved.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.breaks_total == 0
    }
}

/// The check, line by line.
#[derive(Debug)]
pub struct Verifier {
    head: Head,
    head_seen: bool,
    at: Option<Tip>,
    /// What the first line says that came before it, and where it stands.
    before: Option<(Tip, String)>,
    removed_to: Vec<Tip>,
    unfinished: Option<(String, u64)>,
    report: Report,
}

impl Verifier {
    /// `head` must have been read before the log's files, since a running writer moves both.
    #[must_use]
    pub fn new(head: Head) -> Self {
        let head_seen = !matches!(head, Head::At(tip) if tip != Tip::START);
        Self {
            head,
            head_seen,
            at: None,
            before: None,
            removed_to: Vec::new(),
            unfinished: None,
            report: Report::default(),
        }
    }

    /// The next line, without its line feed. `ended`: it had one.
    pub fn line(&mut self, file: &str, line: u64, bytes: &[u8], ended: bool) {
        if let Some((file, line)) = self.unfinished.take() {
            self.report.unfinished_bytes = 0;
            self.broken(&file, line, "a whole line", "a line without its end");
        }
        if !ended {
            self.unfinished = Some((file.to_owned(), line));
            self.report.unfinished_bytes = bytes.len() as u64;
            return;
        }
        match unseal(bytes) {
            Ok(sealed) => self.sealed(file, line, &sealed),
            Err(flaw) => {
                let (expected, found) = match flaw {
                    Flaw::Malformed => ("a record".to_owned(), "what is none".to_owned()),
                    Flaw::Changed { says, has } => (format!("a text with the hash {says}"), format!("one with {has}")),
                };
                self.broken(file, line, expected, found);
            }
        }
    }

    fn sealed(&mut self, file: &str, line: u64, sealed: &Sealed<'_>) {
        let (tip, prev) = (sealed.tip, sealed.prev);
        match self.at {
            Some(at) => self.follows(file, line, at, sealed),
            None => {
                self.report.first = tip.seq;
                self.before = Some((Tip { seq: tip.seq.saturating_sub(1), hash: prev }, file.to_owned()));
            }
        }
        if let Head::At(head) = self.head
            && head.seq == tip.seq
        {
            self.head_seen = true;
            if head.hash != tip.hash {
                self.broken(file, line, told(head), told(tip));
            }
        }
        // From what is there, so that one break is told once.
        self.at = Some(tip);
        self.report.records += 1;
        self.note(sealed);
    }

    fn follows(&mut self, file: &str, line: u64, at: Tip, sealed: &Sealed<'_>) {
        let (tip, prev) = (sealed.tip, sealed.prev);
        if tip.seq == at.seq.wrapping_add(1) && prev == at.hash {
            return;
        }
        let expected = format!("record {} after {}", at.seq.wrapping_add(1), at.hash.hex());
        self.broken(file, line, expected, format!("record {} after {}", tip.seq, prev.hex()));
    }

    fn note(&mut self, sealed: &Sealed<'_>) {
        let facts = &sealed.facts;
        let (time, why) = (facts.time.to_string(), facts.why.to_string());
        match &*facts.kind {
            "answer" => self.report.answers += 1,
            "gap" => {
                self.report.gaps_total += 1;
                if self.report.gaps.len() < KEPT {
                    self.report.gaps.push(Gap { time, why, count: facts.count, torn_bytes: facts.torn_bytes });
                }
            }
            "removed" => {
                // The latest are those that the beginning of the log may refer to.
                if let Some(to) = facts.removed_to() {
                    self.removed_to.push(to);
                }
                if self.report.removed.len() < KEPT {
                    let (files, from, to) = (facts.files, facts.from, facts.to);
                    self.report.removed.push(Removed { time, why, files, from, to });
                }
            }
            _ => {}
        }
    }

    fn broken(&mut self, file: &str, line: u64, expected: impl Into<String>, found: impl Into<String>) {
        self.report.breaks_total += 1;
        if self.report.breaks.len() < KEPT {
            let (expected, found) = (expected.into(), found.into());
            self.report.breaks.push(Break { file: file.to_owned(), line, expected, found });
        }
    }

    /// After the last line.
    #[must_use]
    pub fn finish(mut self) -> Report {
        if let Some((before, file)) = self.before.take()
            && before != Tip::START
            && !self.removed_to.contains(&before)
        {
            let expected = "the first record of all, or one before which retention says that it removed records";
            self.broken(&file, 1, expected, format!("a record after {}, which is not there", told(before)));
        }
        match self.head {
            Head::At(head) if !self.head_seen => {
                let found = self.at.map_or("no record".to_owned(), |at| format!("the last is {}", told(at)));
                self.broken("head", 1, told(head), found);
            }
            Head::Absent if self.report.records > 0 => self.broken("head", 1, "the head of the log", "no such file"),
            Head::Unreadable => self.broken("head", 1, "the head of the log", "what is none"),
            Head::At(_) | Head::Absent => {}
        }
        self.report.last = self.at;
        self.report
    }
}

fn told(tip: Tip) -> String {
    format!("record {} with the hash {}", tip.seq, tip.hash.hex())
}

#[cfg(test)]
mod tests;
