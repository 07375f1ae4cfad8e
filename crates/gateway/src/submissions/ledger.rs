//! The way to the ledger of submissions: a file of this gateway's own, or a store that several gateways share.
//!
//! What was asked for lately is remembered, so that a retry that comes back here asks nobody. With a store that is also what is told to it again when it has
//! lost its data.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use holdfast_bank::file::{self, File};
use holdfast_bank::{Down, Options, Store, ledger};
use holdfast_submission::{Key, Record};
use holdfast_telemetry::Clock;

use super::memory::Memory;
use crate::random::Random;

/// Submissions that are remembered, at about 250 bytes each.
const REMEMBERED: usize = 65_536;
/// Calls of the store at one time.
const CALLS: usize = 512;
/// The longest wait for the file's first thread, which reads, and for its second, which writes.
const READ: Duration = Duration::from_millis(500);
const WRITE: Duration = Duration::from_secs(2);
/// How often a store is asked whether it has lost its data.
const LOOK: Duration = Duration::from_millis(500);
/// Calls at one time that tell a store again.
const AGAIN: usize = 64;

/// The name of the ledger's file in the state folder.
const FILE: &str = "ledger.redb";

/// What the ledger says of a submission.
pub struct First {
    /// What it was resolved to first.
    pub record: Record,
    /// It is new.
    pub fresh: bool,
    /// It is not on disk yet.
    pub durable: Option<file::Durable>,
}

enum Back {
    File(File),
    Store { store: Arc<Store>, calls: ledger::Ledger, free: Semaphore },
}

/// See the module.
pub struct Ledger {
    back: Back,
    memory: Mutex<Memory>,
    keep: Duration,
}

impl Ledger {
    /// The one that is configured.
    ///
    /// # Errors
    /// The file cannot be opened, or the store's URL is none, in words.
    pub fn open(config: &holdfast_config::Ledger, state: &Path) -> Result<Self, String> {
        let back = match &config.store {
            None => {
                std::fs::create_dir_all(state).map_err(|e| format!("{}: {e}", state.display()))?;
                Back::File(File::open(&state.join(FILE), u64::from(config.entries))?)
            }
            Some(url) => {
                let options = Options {
                    url: url.as_str().to_owned(),
                    namespace: config.namespace.to_string(),
                    within: config.within,
                    gateways: 1,
                    seed: Random::new().next(),
                    keeps: "ledger",
                    access: crate::store_access::of(url, &config.store_access),
                };
                let calls = ledger::Ledger::default();
                Back::Store { store: Store::new(options)?, calls, free: Semaphore::new(CALLS) }
            }
        };
        Ok(Self { back, memory: Mutex::new(Memory::new(REMEMBERED)), keep: config.keep })
    }

    /// Whether it answers, as far as is known.
    pub fn is_up(&self) -> bool {
        match &self.back {
            Back::File(_) => true,
            Back::Store { store, .. } => store.state().up,
        }
    }

    /// Submissions in the file; of a store, those that are remembered.
    pub fn entries(&self) -> u64 {
        match &self.back {
            Back::File(file) => file.entries(),
            Back::Store { .. } => self.memory.lock().len() as u64,
        }
    }

    /// Until when a record counts that is made now.
    pub fn until(&self) -> u64 {
        Clock::wall_millis().saturating_add(millis(self.keep))
    }

    /// What is remembered of a submission.
    pub fn remembered(&self, key: &Key) -> Option<Record> {
        self.memory.lock().get(key, Clock::wall_millis()).cloned()
    }

    /// Remembers what is kept for certain.
    pub fn remember(&self, key: Key, record: Record) {
        self.memory.lock().put(key, record);
    }

    /// What a submission was resolved to first: what is held, or else this record. Within a bounded time.
    ///
    /// # Errors
    /// [`Down`]: it cannot be known now.
    pub async fn first(&self, key: Key, record: Record) -> Result<First, Down> {
        match &self.back {
            Back::File(file) => {
                let asked = file.first(key.0, record.encode(), record.until, Clock::wall_millis());
                match timeout(READ, asked).await.unwrap_or(Err(Down::Late))? {
                    file::First::Fresh(durable) => Ok(First { record, fresh: true, durable: Some(durable) }),
                    file::First::Held(held, durable) => {
                        let record = read(&held)?;
                        if durable.is_none() {
                            self.remember(key, record.clone());
                        }
                        Ok(First { record, fresh: false, durable })
                    }
                }
            }
            Back::Store { store, calls, free } => {
                let _call = free.try_acquire().map_err(|_| Down::Late)?;
                let told = calls.first(store, (&key.hex(), key.slot()), &record.encode(), self.keep).await?;
                let (record, fresh) = match told.first {
                    ledger::First::Fresh => (record, true),
                    ledger::First::Held(held) => (read(&held)?, false),
                    ledger::First::Unsettled => {
                        return Err(Down::Answered("it was empty a moment ago".to_owned()));
                    }
                };
                self.remember(key, record.clone());
                Ok(First { record, fresh, durable: None })
            }
        }
    }

    /// Waits until a record is on disk.
    ///
    /// # Errors
    /// [`Down`]: it is not, or not in time.
    pub async fn written(&self, durable: file::Durable) -> Result<(), Down> {
        match timeout(WRITE, durable).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => Err(Down::Away),
            Err(_) => Err(Down::Late),
        }
    }

    /// Keeps the way to a store, for ever, and tells it again what it has lost.
    pub async fn run(self: Arc<Self>) {
        let Back::Store { store, .. } = &self.back else { return };
        tokio::spawn(store.clone().run());
        let mut known = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let Ok(born) = store.born(0).await else { continue };
            let lost = known.is_some_and(|known| known != born);
            if lost && !self.tell_again().await {
                // Not all of it could be told: once more, from the beginning.
                continue;
            }
            known = Some(born);
        }
    }

    /// False: the store did not take all of it.
    async fn tell_again(self: &Arc<Self>) -> bool {
        let now = Clock::wall_millis();
        let all = self.memory.lock().all(now);
        let count = all.len();
        let (mut calls, mut good) = (JoinSet::new(), true);
        for (key, record) in all {
            if calls.len() >= AGAIN {
                good &= calls.join_next().await.is_some_and(|told| matches!(told, Ok(true)));
            }
            let me = self.clone();
            calls.spawn(async move { me.tell(key, &record, now).await });
        }
        while let Some(told) = calls.join_next().await {
            good &= matches!(told, Ok(true));
        }
        if good {
            tracing::warn!(
                submissions = count,
                "the ledger's store had lost its data; it was told again what is remembered here"
            );
        }
        good
    }

    async fn tell(&self, key: Key, record: &Record, now: u64) -> bool {
        let Back::Store { store, calls, .. } = &self.back else { return true };
        let left = Duration::from_millis(record.until.saturating_sub(now));
        calls.again(store, (&key.hex(), key.slot()), &record.encode(), left).await.is_ok()
    }
}

fn read(held: &[u8]) -> Result<Record, Down> {
    // A later release's, or nobody's.
    Record::decode(held).ok_or_else(|| Down::Answered("it holds what this release cannot read".to_owned()))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
