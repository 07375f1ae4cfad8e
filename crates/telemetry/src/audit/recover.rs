//! What an earlier process left: where the chain goes on, and what has to be said about it.
//!
//! A line that a crash cut in two is cut off, and the record after it says so. A log that ends before its head goes on from the head, so that the break
//! stays to be seen. Nothing else is repaired: what is changed is evidence.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::files::AuditFiles;
use super::record::{GapWhy, Missing, Tip};
use super::retention::Piece;
use super::sealed::unseal;
use super::verify::Head;
use crate::text::parse_time;

/// How much of a file's end is read to find its last line.
const TAIL: u64 = 64 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) tip: Tip,
    pub(super) pieces: Vec<Piece>,
    /// Whether the last file may be written on.
    pub(super) goes_on: bool,
    pub(super) missing: Vec<Missing>,
}

/// The end of a log, as it is in its files.
struct End {
    tip: Option<Tip>,
    stopped: bool,
    torn: u64,
    /// There is a last line, and it is no whole record.
    unreadable: bool,
}

/// Looks at what is there, and cuts a torn end off.
pub(super) fn recover(files: &AuditFiles) -> io::Result<Recovered> {
    let (list, end) = end(files)?;
    let pieces = list.iter().map(|(first, path)| piece(*first, path)).collect::<io::Result<Vec<_>>>()?;
    let head = files.head();
    let mut found = Recovered {
        tip: end.tip.unwrap_or(Tip { seq: list.last().map_or(0, |(first, _)| *first), ..Tip::START }),
        pieces,
        goes_on: end.tip.is_some(),
        missing: Vec::new(),
    };
    let mut missing = |why, count, torn| found.missing.push(Missing { why, count, torn });
    if end.unreadable {
        missing(GapWhy::Unreadable, None, 0);
    }
    match head {
        Head::At(head) if head.seq > found.tip.seq || (head.seq == found.tip.seq && head.hash != found.tip.hash) => {
            missing(GapWhy::Missing, Some(head.seq - found.tip.seq), end.torn);
            (found.tip, found.goes_on) = (head, false);
        }
        Head::At(_) => {}
        Head::Absent | Head::Unreadable if list.is_empty() => {}
        Head::Absent | Head::Unreadable => missing(GapWhy::Missing, None, 0),
    }
    let was_there = !list.is_empty() || end.torn > 0;
    if was_there && !end.stopped && found.missing.is_empty() {
        found.missing.push(Missing { why: GapWhy::UncleanStop, count: None, torn: end.torn });
    }
    Ok(found)
}

/// Cuts off what is no whole line, and files that have none. Returns the files that are left.
fn end(files: &AuditFiles) -> io::Result<(Vec<(u64, std::path::PathBuf)>, End)> {
    let mut list = files.list()?;
    let mut end = End { tip: None, stopped: false, torn: 0, unreadable: false };
    while let Some((_, path)) = list.last() {
        let mut file = File::options().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        let from = size.saturating_sub(TAIL);
        file.seek(SeekFrom::Start(from))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        let whole = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if whole == 0 && from > 0 {
            // No line is as long: this is not what a crash leaves.
            end.unreadable = true;
            break;
        }
        let torn = (tail.len() - whole) as u64;
        if torn > 0 {
            file.set_len(size - torn)?;
            file.sync_data()?;
            end.torn += torn;
        }
        let Some(lines) = tail.get(..whole).and_then(|lines| lines.strip_suffix(b"\n")) else {
            fs::remove_file(path)?;
            list.pop();
            continue;
        };
        let begins = lines.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        match unseal(lines.get(begins..).unwrap_or_default()) {
            Ok(last) => (end.tip, end.stopped) = (Some(last.tip), last.facts.kind == "stop" && end.torn == 0),
            Err(_) => end.unreadable = true,
        }
        break;
    }
    Ok((list, end))
}

/// A file by its first record. One whose first record cannot be read is removed by size, never by age.
fn piece(first: u64, path: &Path) -> io::Result<Piece> {
    let size = fs::metadata(path)?.len();
    let mut piece = Piece { first, began: u64::MAX, before: Tip { seq: first.saturating_sub(1), ..Tip::START }, size };
    let line = first_line(path)?;
    if let Ok(sealed) = unseal(&line) {
        piece.began = parse_time(&sealed.facts.time).unwrap_or(u64::MAX);
        piece.before = Tip { seq: sealed.tip.seq.saturating_sub(1), hash: sealed.prev };
    }
    Ok(piece)
}

fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    File::open(path)?.take(TAIL).read_to_end(&mut beginning)?;
    let ends = beginning.iter().position(|b| *b == b'\n').unwrap_or(beginning.len());
    beginning.truncate(ends);
    Ok(beginning)
}
