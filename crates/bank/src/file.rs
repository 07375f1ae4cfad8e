//! The ledger of submissions in one redb file, for a gateway that is alone.
//!
//! Two threads with bounded queues. The first answers who asks: what is being written, else what is on disk, else that it is new; it is the only one that
//! takes anything in, so of two requests for one submission one is the first. The second writes what is new, all that waits in one commit, and says when it is
//! on disk. So a request learns at once where it goes, and only its answer waits for the disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use tokio::sync::oneshot;

use crate::Down;

/// A submission's key.
pub type Key = [u8; 16];

/// Until when a record counts (milliseconds since 1970, big endian), and the record.
const RECORDS: TableDefinition<'static, Key, &[u8]> = TableDefinition::new("submissions");
/// The end of a record and its key, so that what is over is found without a search.
const ENDS: TableDefinition<'static, (u64, Key), ()> = TableDefinition::new("ends");

/// Asks that wait for an answer, and records that wait to be written.
const QUEUE: usize = 4_096;
/// The most records of one commit.
const BATCH: usize = 1_024;
/// The file's pages that are kept in memory.
const CACHE: usize = 16 << 20;
/// The wait before a file that failed is opened again.
const AGAIN: Duration = Duration::from_millis(200);

/// What is waited for until a record is on disk. An error: it is not.
pub type Durable = oneshot::Receiver<Result<(), Down>>;

/// What the ledger says of a submission.
#[derive(Debug)]
pub enum First {
    /// It is new.
    Fresh(Durable),
    /// This was kept before; it may be on its way to the disk still.
    Held(Vec<u8>, Option<Durable>),
}

type Reply = oneshot::Sender<Result<First, Down>>;
type Written = oneshot::Sender<Result<(), Down>>;

struct Ask {
    key: Key,
    record: Vec<u8>,
    until: u64,
    now: u64,
    reply: Reply,
}

/// A record on its way to the disk; without one, somebody who waits for those before.
struct Write {
    new: Option<(Key, Vec<u8>, u64)>,
    now: u64,
    written: Written,
}

/// What both threads know.
struct Shared {
    path: PathBuf,
    database: Mutex<Option<Arc<Database>>>,
    /// What is not on disk yet. Bounded by the second queue.
    pending: Mutex<HashMap<Key, (Vec<u8>, u64)>>,
    entries: AtomicU64,
    most: u64,
}

/// See the module. The threads end when it is dropped and their queues are empty.
pub struct File {
    asks: SyncSender<Ask>,
    shared: Arc<Shared>,
}

impl File {
    /// Opens the file, or makes it. `most` records are kept at the same time.
    ///
    /// # Errors
    /// It cannot be opened, or another process has it.
    pub fn open(path: &Path, most: u64) -> Result<Self, String> {
        let said = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let database = open(path).map_err(|e| said(&e))?;
        let entries = count(&database).map_err(|e| said(&e))?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            database: Mutex::new(Some(Arc::new(database))),
            pending: Mutex::default(),
            entries: AtomicU64::new(entries),
            most,
        });
        let (asks, to_answer) = sync_channel(QUEUE);
        let (writes, to_write) = sync_channel(QUEUE);
        let (one, other) = (shared.clone(), shared.clone());
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("ledger").spawn(move || answer(&to_answer, &writes, &one)).map_err(|e| said(&e))?;
        thread("ledger-disk").spawn(move || write(&to_write, &other)).map_err(|e| said(&e))?;
        Ok(Self { asks, shared })
    }

    /// Records that it has.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.shared.entries.load(Relaxed)
    }

    /// What a submission was resolved to first: what is held, or else this record, which counts until then. Times are milliseconds since 1970.
    ///
    /// # Errors
    /// [`Down`]: too many wait, it is full, or the file cannot be read.
    ///
    /// # Cancel safety
    /// A record that was taken in is written all the same.
    pub async fn first(&self, key: Key, record: Vec<u8>, until: u64, now: u64) -> Result<First, Down> {
        let (reply, answer) = oneshot::channel();
        match self.asks.try_send(Ask { key, record, until, now, reply }) {
            Ok(()) => answer.await.unwrap_or(Err(Down::Away)),
            Err(TrySendError::Full(_)) => Err(Down::Late),
            Err(TrySendError::Disconnected(_)) => Err(Down::Away),
        }
    }
}

fn open(path: &Path) -> Result<Database, redb::Error> {
    let database = redb::Builder::new().set_cache_size(CACHE).create(path)?;
    let transaction = database.begin_write()?;
    transaction.open_table(RECORDS)?;
    transaction.open_table(ENDS)?;
    transaction.commit()?;
    Ok(database)
}

fn count(database: &Database) -> Result<u64, redb::Error> {
    Ok(database.begin_read()?.open_table(RECORDS)?.len()?)
}

fn failed(error: impl std::fmt::Display) -> Down {
    Down::Answered(error.to_string())
}

fn answer(asks: &Receiver<Ask>, writes: &SyncSender<Write>, shared: &Shared) {
    while let Ok(ask) = asks.recv() {
        // Who asked may have gone: what was taken in for it is kept.
        let (reply, first) = shared.first(ask, writes);
        let _ = reply.send(first);
    }
}

impl Shared {
    fn first(&self, ask: Ask, writes: &SyncSender<Write>) -> (Reply, Result<First, Down>) {
        let Ask { key, record, until, now, reply } = ask;
        let first = self.known(key, now).and_then(|known| {
            let (written, durable) = oneshot::channel();
            let send = |write| writes.try_send(write).map_err(|_| Down::Late);
            match known {
                Some((held, true)) => {
                    send(Write { new: None, now, written })?;
                    return Ok(First::Held(held, Some(durable)));
                }
                Some((held, false)) => return Ok(First::Held(held, None)),
                None => {}
            }
            if self.entries.load(Relaxed) >= self.most {
                return Err(Down::Answered("it has as many submissions as it may have".to_owned()));
            }
            self.pending.lock().insert(key, (record.clone(), until));
            let sent = send(Write { new: Some((key, record, until)), now, written });
            if sent.is_err() {
                self.pending.lock().remove(&key);
            }
            sent.map(|()| First::Fresh(durable))
        });
        (reply, first)
    }

    /// What is kept of a submission, and whether it is on its way to the disk still.
    fn known(&self, key: Key, now: u64) -> Result<Option<(Vec<u8>, bool)>, Down> {
        if let Some((record, until)) = self.pending.lock().get(&key)
            && *until > now
        {
            return Ok(Some((record.clone(), true)));
        }
        let database = self.database.lock().clone().ok_or(Down::Away)?;
        let read = || -> Result<Option<(Vec<u8>, bool)>, redb::Error> {
            let table = database.begin_read()?.open_table(RECORDS)?;
            let row = table.get(key)?;
            let record = row.as_ref().and_then(|row| row.value().split_first_chunk::<8>());
            Ok(record
                .filter(|(until, _)| u64::from_be_bytes(**until) > now)
                .map(|(_, record)| (record.to_vec(), false)))
        };
        read().map_err(failed)
    }
}

fn write(writes: &Receiver<Write>, shared: &Shared) {
    while let Ok(first) = writes.recv() {
        let mut batch = vec![first];
        batch.extend(std::iter::from_fn(|| writes.try_recv().ok()).take(BATCH - 1));
        let written = commit(shared, &batch);
        if let Err(why) = &written {
            tracing::error!(%why, "submissions could not be written");
            // redb takes nothing more after a write that failed.
            *shared.database.lock() = None;
        }
        let mut pending = shared.pending.lock();
        for (key, ..) in batch.iter().filter_map(|write| write.new.as_ref()) {
            pending.remove(key);
        }
        drop(pending);
        for write in batch {
            let _ = write.written.send(written.clone());
        }
        if written.is_err() {
            reopen(shared);
        }
    }
}

/// Until it succeeds. Asks fail meanwhile, and their writers' queue is bounded.
fn reopen(shared: &Shared) {
    loop {
        std::thread::sleep(AGAIN);
        if let Ok(database) = open(&shared.path) {
            shared.entries.store(count(&database).unwrap_or_default(), Relaxed);
            *shared.database.lock() = Some(Arc::new(database));
            tracing::info!("the ledger of submissions is written again");
            return;
        }
    }
}

fn commit(shared: &Shared, batch: &[Write]) -> Result<(), Down> {
    let database = shared.database.lock().clone().ok_or(Down::Away)?;
    let now = batch.iter().map(|write| write.now).max().unwrap_or_default();
    let run = || -> Result<u64, redb::Error> {
        let transaction = database.begin_write()?;
        let left = {
            let (mut records, mut ends) = (transaction.open_table(RECORDS)?, transaction.open_table(ENDS)?);
            for (key, record, until) in batch.iter().filter_map(|write| write.new.as_ref()) {
                let row = [&until.to_be_bytes(), record.as_slice()].concat();
                let before = records.insert(key, row.as_slice())?;
                if let Some(end) = before.and_then(|row| row.value().first_chunk().copied()) {
                    ends.remove((u64::from_be_bytes(end), *key))?;
                }
                ends.insert((*until, *key), ())?;
            }
            // More than comes in, so that what is over goes.
            let over = ends.range(..(now, [0; 16]))?.take(2 * batch.len() + 16);
            let over = over.map(|row| row.map(|(end, _)| end.value())).collect::<Result<Vec<_>, _>>()?;
            for (until, key) in over {
                ends.remove((until, key))?;
                records.remove(key)?;
            }
            records.len()?
        };
        transaction.commit()?;
        Ok(left)
    };
    let left = run().map_err(failed)?;
    shared.entries.store(left, Relaxed);
    Ok(())
}
