//! The access log: records go into a bounded buffer, a thread of its own writes them as JSON lines.
//!
//! A slow or broken sink costs records, which are counted, never a request's time. A line is whole or, where a disk filled up in the middle
//! of it, ended before the next one begins.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{Clock, Wall};
use crate::metric::Counter;
use crate::outcome::Outcome;
use crate::record::AccessRecord;
use crate::spool::{Drain, Flushed, Spool, SpoolOptions};
use crate::throttle::Throttled;

/// How long a record waits for company. A worst-case delay of the log, and the reason why it costs few wake-ups.
const LINGER: Duration = Duration::from_millis(50);
/// Lines are handed to the sink in pieces of about this many bytes.
const PIECE: usize = 64 * 1024;

/// Which requests are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Every request.
    #[default]
    All,
    /// Those that failed.
    Errors,
    /// None.
    Off,
}

/// Where records are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessSink {
    /// Standard output.
    #[default]
    Stdout,
    /// A file that is appended to, and opened anew on [`AccessLog::reopen`].
    File(PathBuf),
    /// Nowhere.
    Off,
}

/// How the access log is set up.
#[derive(Clone, Debug)]
pub struct AccessOptions {
    /// Which requests are recorded.
    pub policy: AccessPolicy,
    /// Where to.
    pub sink: AccessSink,
    /// The most records of a worker that wait to be written, at about 270 bytes each.
    pub queue: usize,
    /// How many workers record, each into a queue of its own ([`crate::use_part`]). One more queue's worth is in the writer's hands.
    pub workers: usize,
}

impl Default for AccessOptions {
    fn default() -> Self {
        Self { policy: AccessPolicy::All, sink: AccessSink::Stdout, queue: 4_096, workers: 1 }
    }
}

/// The handle that the request path holds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLog {
    policy: AccessPolicy,
    spool: Option<Spool<AccessRecord>>,
}

/// The owner of the writer thread.
#[derive(Debug)]
pub struct AccessWriter {
    spool: Option<Spool<AccessRecord>>,
}

impl AccessLog {
    /// Opens the sink and starts the writer thread. `dropped` counts records that found the queue full or that could not be written.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn start(options: AccessOptions, dropped: Counter) -> io::Result<(Self, AccessWriter)> {
        let target = match options.sink {
            _ if options.policy == AccessPolicy::Off => return Ok((Self::off(), AccessWriter { spool: None })),
            AccessSink::Off => return Ok((Self::off(), AccessWriter { spool: None })),
            AccessSink::Stdout => Target::Stdout,
            AccessSink::File(path) => Target::File { file: open(&path)?, path },
        };
        let (parts, most) = (options.workers, options.queue.max(1));
        let spool_options = SpoolOptions { name: "access-log", parts, most, linger: LINGER };
        let spool = Spool::start(spool_options, dropped.clone(), Lines::new(target, dropped))?;
        Ok((Self { policy: options.policy, spool: Some(spool.clone()) }, AccessWriter { spool: Some(spool) }))
    }

    /// A log that records nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self { policy: AccessPolicy::Off, spool: None }
    }

    /// Whether a request that ended so is recorded: ask before building the record.
    #[inline]
    #[must_use]
    pub fn wants(&self, outcome: &Outcome) -> bool {
        match self.policy {
            AccessPolicy::All => true,
            AccessPolicy::Errors => outcome.is_error(),
            AccessPolicy::Off => false,
        }
    }

    /// Queues a record, if the policy wants it. Never blocks: a record that finds the queue full is dropped and counted.
    pub fn record(&self, record: AccessRecord) {
        if let Some(spool) = self.spool.as_ref().filter(|_| self.wants(&record.outcome)) {
            spool.push(record);
        }
    }

    /// Asks the writer to open the file anew (after a rotation). Returns at once; the old file is kept if that fails.
    pub fn reopen(&self) {
        if let Some(spool) = &self.spool {
            spool.poke();
        }
    }
}

impl AccessWriter {
    /// Writes what is queued and ends the thread, waiting at most `bound`; records that come later are dropped and counted. Blocks the
    /// calling thread.
    pub fn shutdown(self, bound: Duration) -> Flushed {
        self.spool.map_or(Flushed::All, |spool| spool.shutdown(bound))
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

enum Target {
    Stdout,
    File { file: File, path: PathBuf },
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => io::stdout().write(bytes),
            Self::File { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().flush(),
            Self::File { file, .. } => file.flush(),
        }
    }
}

/// A sink, and whether it ends in the middle of a line.
struct Output<W> {
    target: W,
    torn: bool,
}

impl<W: Write> Output<W> {
    /// Writes whole lines. On an error, tells how many of them were not written in full.
    fn write_lines(&mut self, lines: &[u8]) -> Result<(), (io::Error, usize)> {
        let mut rest = lines;
        self.write_rest(&mut rest).map_err(|error| (error, rest.iter().filter(|byte| **byte == b'\n').count()))
    }

    fn write_rest(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        if self.torn {
            write_some(&mut self.target, b"\n")?;
            self.torn = false;
        }
        while !rest.is_empty() {
            let written = write_some(&mut self.target, rest)?;
            let (done, left) = rest.split_at_checked(written).unwrap_or((rest, &[]));
            self.torn = !done.ends_with(b"\n");
            *rest = left;
        }
        self.target.flush()
    }
}

/// The writer's side.
struct Lines<W> {
    output: Output<W>,
    text: String,
    dropped: Counter,
    warnings: Throttled<&'static str>,
}

impl<W: Write> Lines<W> {
    fn new(target: W, dropped: Counter) -> Self {
        let warnings = Throttled::new(Duration::from_secs(10), 4);
        Self { output: Output { target, torn: false }, text: String::new(), dropped, warnings }
    }

    fn write_batch(&mut self, batch: &mut Vec<AccessRecord>) {
        // Once for the batch: its records ended moments ago.
        let wall = Wall::read();
        for record in batch.drain(..) {
            record.push_line(wall, &mut self.text);
            if self.text.len() >= PIECE {
                self.write_text();
            }
        }
        self.write_text();
    }

    fn write_text(&mut self) {
        if let Err((error, lost)) = self.output.write_lines(self.text.as_bytes()) {
            self.dropped.add(lost as u64);
            self.warn("access records cannot be written", &error);
        }
        self.text.clear();
    }

    fn warn(&self, what: &'static str, error: &io::Error) {
        if let Some(suppressed) = self.warnings.pass(Clock::now(), what) {
            tracing::warn!(%error, suppressed, "{what}");
        }
    }
}

fn write_some(target: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match target.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Drain<AccessRecord> for Lines<Target> {
    fn write(&mut self, batch: &mut Vec<AccessRecord>) {
        self.write_batch(batch);
    }

    fn poked(&mut self) {
        let Target::File { file, path } = &mut self.output.target else { return };
        match open(path) {
            Ok(fresh) => {
                *file = fresh;
                self.output.torn = false;
            }
            Err(error) => self.warn("the access log cannot be opened anew; the old file is kept", &error),
        }
    }
}

#[cfg(test)]
mod tests;
