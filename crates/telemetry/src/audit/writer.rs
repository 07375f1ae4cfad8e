//! The writer's thread: seals records, rotates and removes files, and says in the log what it could not write.
//!
//! Lines are sealed into a text, and the text is written in pieces. A piece that the disk does not take is taken back whole: the chain goes on from the
//! record before it, and its records are counted and told in a `gap` record as soon as the disk takes one.

use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::files::AuditFiles;
use super::log::{AuditLosses, AuditOptions};
use super::record::{AuditEntry, GapWhy, Line, Missing, Removal, Tip, seal};
use super::recover::{Recovered, recover};
use super::retention::{Bounds, Piece, due};
use super::tail::Tail;
use super::verify::Head;
use crate::clock::{Clock, Wall};
use crate::spool::Drain;
use crate::throttle::Throttled;

/// Lines are written in pieces of about this many bytes.
const PIECE: usize = 64 * 1024;
const DAY: u64 = 86_400_000;

/// See the module.
pub(super) struct Writer {
    options: AuditOptions,
    losses: AuditLosses,
    open: Option<Open>,
    /// To be told in the log.
    missing: Vec<Missing>,
    queue_seen: u64,
    warnings: Throttled<&'static str>,
    /// Whether the end that is coming is an orderly one.
    orderly: Arc<AtomicBool>,
}

/// A log that can be written.
struct Open {
    files: AuditFiles,
    _lock: File,
    tail: Tail,
    pieces: Vec<Piece>,
    /// The last record in `text`.
    tip: Tip,
    /// The last record that the disk took.
    taken: Tip,
    text: String,
    answers: u64,
    /// Told in `text`.
    told: Vec<Missing>,
    /// Something was written since the last sync.
    unsynced: bool,
}

impl Open {
    fn new(options: &AuditOptions, missing: &mut Vec<Missing>) -> io::Result<Self> {
        let files = AuditFiles::new(&options.folder);
        let lock = files.lock()?;
        let Recovered { mut tip, pieces, goes_on, missing: found } = recover(&files)?;
        let last = pieces.last().filter(|_| goes_on).map(|piece| files.path(piece.first));
        let tail = match last {
            Some(path) => Tail::open(path)?,
            None => next_file(&files, &mut tip)?,
        };
        if !matches!(files.head(), Head::At(_)) {
            // There is none for as long as there is no log: one without the other is a break, also to who looks while the first record is written.
            files.write_head(tip)?;
        }
        // Last: what fails above is tried again.
        found.into_iter().for_each(|gap| add(missing, gap));
        let (text, told) = (String::new(), Vec::new());
        Ok(Self { files, _lock: lock, tail, pieces, tip, taken: tip, text, answers: 0, told, unsynced: false })
    }

    fn put(&mut self, millis: u64, line: &Line<'_>) {
        seal(&mut self.tip, millis, line, &mut self.text);
    }

    /// Hands the text to the disk. On an error the chain is where it was before, and what the text told is to be told again.
    fn flush(&mut self, missing: &mut Vec<Missing>) -> Result<u64, (io::Error, u64)> {
        let answers = std::mem::take(&mut self.answers);
        if self.text.is_empty() {
            return Ok(0);
        }
        let written = self.tail.append(self.text.as_bytes());
        let size = self.text.len() as u64;
        self.text.clear();
        if let Err(error) = written {
            self.tip = self.taken;
            self.told.drain(..).for_each(|gap| add(missing, gap));
            return Err((error, answers));
        }
        if self.tail.size == size {
            let first = self.taken.seq + 1;
            self.pieces.push(Piece { first, began: Clock::wall_millis(), before: self.taken, size: 0 });
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.size = self.tail.size;
        }
        self.told.clear();
        self.taken = self.tip;
        self.unsynced = true;
        Ok(answers)
    }

    fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) {
            self.tail.sync()?;
            self.files.write_head(self.taken)?;
        }
        Ok(())
    }

    /// Whether the next record belongs into the next file.
    fn is_full(&self, most: u64, now: u64) -> bool {
        let began = self.pieces.last().filter(|_| self.tail.size > 0).map(|piece| piece.began);
        let another_day = began.is_some_and(|began| began != u64::MAX && began / DAY != now / DAY);
        let size = self.tail.size + self.text.len() as u64;
        another_day || (size > 0 && size >= most)
    }
}

/// An empty file for the record after `tip`. A name that is taken, which only happens where someone else wrote, is passed over, and shows as a break.
fn next_file(files: &AuditFiles, tip: &mut Tip) -> io::Result<Tail> {
    loop {
        match Tail::create(files.path(tip.seq + 1)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => tip.seq += 1,
            other => return other,
        }
    }
}

/// Adds up what is of one kind, so that the list is as long as there are kinds.
fn add(missing: &mut Vec<Missing>, gap: Missing) {
    match missing.iter_mut().find(|known| known.why == gap.why) {
        Some(known) => {
            known.count = known.count.zip(gap.count).map(|(a, b)| a + b);
            known.torn += gap.torn;
        }
        None => missing.push(gap),
    }
}

impl Writer {
    pub(super) fn new(options: AuditOptions, losses: AuditLosses, orderly: Arc<AtomicBool>) -> Self {
        let warnings = Throttled::new(Duration::from_secs(10), 8);
        Self { options, losses, open: None, missing: Vec::new(), queue_seen: 0, warnings, orderly }
    }

    /// Opens the log, or a new file of it where the one that was written is gone.
    fn ready(&mut self) -> io::Result<&mut Open> {
        if self.open.is_none() {
            self.open = Some(Open::new(&self.options, &mut self.missing)?);
        }
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        if !open.tail.is_there() {
            let gone = io::Error::other(format!("{} was removed or replaced", open.tail.path().display()));
            warn(&self.warnings, "the audit log's file is not there any more; it goes on in a new one", &gone);
            fs::create_dir_all(&self.options.folder)?;
            open.tail = next_file(&open.files, &mut open.tip)?;
            open.taken = open.tip;
        }
        Ok(open)
    }

    fn lost(&mut self, count: u64, error: &io::Error) {
        self.losses.write_failed.add(count);
        if count > 0 {
            add(&mut self.missing, Missing { why: GapWhy::WriteFailed, count: Some(count), torn: 0 });
        }
        warn(&self.warnings, "audit records cannot be written", error);
    }

    /// Seals what is missing so far.
    fn tell(&mut self, now: u64) {
        let dropped = self.losses.queue_full.get();
        let fresh = dropped - std::mem::replace(&mut self.queue_seen, dropped);
        if fresh > 0 {
            add(&mut self.missing, Missing { why: GapWhy::QueueFull, count: Some(fresh), torn: 0 });
        }
        let Some(open) = &mut self.open else { return };
        for gap in self.missing.drain(..) {
            open.put(now, &Line::Gap(gap));
            open.told.push(gap);
        }
    }

    fn flush(&mut self) {
        let Some(open) = &mut self.open else { return };
        match open.flush(&mut self.missing) {
            Ok(answers) => self.losses.written.add(answers),
            Err((error, answers)) => self.lost(answers, &error),
        }
    }

    fn sync(&mut self) {
        let Some(open) = &mut self.open else { return };
        if let Err(error) = open.sync() {
            warn(&self.warnings, "the audit log cannot be synced", &error);
            add(&mut self.missing, Missing { why: GapWhy::SyncFailed, count: None, torn: 0 });
        }
    }

    /// Goes on in the next file if it is time to.
    fn rotate(&mut self, now: u64) {
        let most = self.options.max_file_size;
        if !self.open.as_ref().is_some_and(|open| open.is_full(most, now)) {
            return;
        }
        self.flush();
        self.sync();
        let Some(open) = &mut self.open else { return };
        match next_file(&open.files, &mut open.tip) {
            Ok(tail) => (open.tail, open.taken) = (tail, open.tip),
            // The old file is as good.
            Err(error) => warn(&self.warnings, "the audit log cannot be rotated", &error),
        }
        self.retain(now);
    }

    /// Removes what is due. First the log says so, on disk; then the files go. After a crash in between they are due again.
    fn retain(&mut self, now: u64) {
        let Some(open) = &mut self.open else { return };
        let bounds = Bounds { age: self.options.retention, total: self.options.max_total_size };
        let Some((count, why)) = due(&open.pieces, bounds, now) else { return };
        let (Some(first), Some(next)) = (open.pieces.first().copied(), open.pieces.get(count).copied()) else { return };
        let removal = Removal { from: first.first, to: next.before, files: count, why };
        open.put(now, &Line::Removed(removal));
        self.flush();
        self.sync();
        let Some(open) = self.open.as_mut().filter(|open| open.tip == open.taken && open.told.is_empty()) else {
            return;
        };
        for piece in open.pieces.drain(..count) {
            match fs::remove_file(open.files.path(piece.first)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => warn(&self.warnings, "an audit file that is due cannot be removed", &error),
            }
        }
    }
}

fn warn(warnings: &Throttled<&'static str>, what: &'static str, error: &io::Error) {
    if let Some(suppressed) = warnings.pass(Clock::now(), what) {
        tracing::warn!(%error, suppressed, "{what}");
    }
}

impl Drain<AuditEntry> for Writer {
    fn write(&mut self, batch: &mut Vec<AuditEntry>) {
        if let Err(error) = self.ready() {
            self.lost(batch.len() as u64, &error);
            return;
        }
        let (wall, now) = (Wall::read(), Clock::wall_millis());
        self.tell(now);
        for entry in batch.drain(..) {
            self.rotate(now);
            let Some(open) = &mut self.open else { return };
            open.put(wall.millis_at(entry.ended), &Line::Answer(&entry));
            open.answers += 1;
            if open.text.len() >= PIECE {
                self.flush();
            }
        }
        self.flush();
    }

    fn poked(&mut self) {
        if let Err(error) = self.ready() {
            warn(&self.warnings, "the audit log cannot be opened", &error);
            return;
        }
        let now = Clock::wall_millis();
        self.tell(now);
        self.flush();
        self.retain(now);
    }

    fn rounded(&mut self, last: bool) {
        if last {
            let now = Clock::wall_millis();
            self.tell(now);
            if let Some(open) = self.open.as_mut().filter(|_| self.orderly.load(Relaxed)) {
                open.put(now, &Line::Stop);
            }
            self.flush();
        }
        self.sync();
    }
}

#[cfg(test)]
mod tests;
