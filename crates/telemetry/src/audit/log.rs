//! The handle that requests hold, and the owner of the writer's thread.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::record::AuditEntry;
use super::writer::Writer;
use crate::metric::Counter;
use crate::spool::{Flushed, Spool, SpoolOptions};

/// How long a record waits for company. With the time of a sync, how long after the end of an answer its record is on disk.
const LINGER: Duration = Duration::from_millis(200);

/// How the log is set up.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Where its files are. Made if it is missing.
    pub folder: PathBuf,
    /// A file that has this many bytes is followed by the next.
    pub max_file_size: u64,
    /// Records are kept for this long at least, if there is room, and a day longer at most while the gateway runs.
    pub retention: Duration,
    /// The most bytes of all files.
    pub max_total_size: u64,
    /// The most records of a worker that wait to be written, some 400 bytes each.
    pub queue: usize,
    /// How many workers record ([`crate::use_part`]).
    pub workers: usize,
}

/// What the log counts.
#[derive(Clone, Debug, Default)]
pub struct AuditLosses {
    /// Records on their way to the disk: written, if not yet synced.
    pub written: Counter,
    /// Records that found the queue full.
    pub queue_full: Counter,
    /// Records that the disk did not take.
    pub write_failed: Counter,
}

/// The handle. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditLog(Option<Spool<AuditEntry>>);

/// The owner of the writer's thread.
#[derive(Debug)]
pub struct AuditWriter(Option<(Spool<AuditEntry>, Arc<AtomicBool>)>);

impl AuditLog {
    /// Starts the writer. A folder that cannot be written is no error: records are counted as lost until it can be, since requests go on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(options: AuditOptions, losses: AuditLosses) -> io::Result<(Self, AuditWriter)> {
        let spool_options =
            SpoolOptions { name: "audit-log", parts: options.workers, most: options.queue.max(1), linger: LINGER };
        let orderly = Arc::new(AtomicBool::new(false));
        let writer = Writer::new(options, losses.clone(), orderly.clone());
        let spool = Spool::start(spool_options, losses.queue_full, writer)?;
        // What an earlier process left is looked at now, not with the first record.
        spool.poke();
        Ok((Self(Some(spool.clone())), AuditWriter(Some((spool, orderly)))))
    }

    /// A log that records nothing.
    #[must_use]
    pub const fn off() -> (Self, AuditWriter) {
        (Self(None), AuditWriter(None))
    }

    /// Whether records are kept: ask before digests are made.
    #[inline]
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Queues a record. Never blocks: one that finds the queue full is lost, which is counted and recorded.
    pub fn record(&self, entry: AuditEntry) {
        if let Some(spool) = &self.0 {
            spool.push(entry);
        }
    }

    /// Has the writer look whether retention is due, also when nothing is recorded. Returns at once.
    pub fn tend(&self) {
        if let Some(spool) = &self.0 {
            spool.poke();
        }
    }
}

impl AuditWriter {
    /// Writes what is queued; waits at most `bound`. `orderly`: no request was left, so nothing comes later and the log says that it was ended.
    /// Otherwise the next start says that records may be missing. Blocks the calling thread.
    pub fn shutdown(self, bound: Duration, orderly: bool) -> Flushed {
        let Some((spool, is_orderly)) = self.0 else { return Flushed::All };
        is_orderly.store(orderly, Relaxed);
        spool.shutdown(bound)
    }
}
