//! Connections: few, lent to one call at a time, thrown away after any fault, and made again with jitter.

use super::fault::{Fault, Phase};
use super::options::PostgresOptions;
use super::tls::{Maker, Stream};
use crate::error::{Applied, Error, Result};
use parking_lot::Mutex;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};

/// The most that a transaction may stand still, however long it may take in all.
const IDLE_MOST: Duration = Duration::from_secs(60);
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_MOST: Duration = Duration::from_secs(5);

/// Two spans of patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    Short,
    Bulk,
}

/// What a call does. Writers follow one another on a lock in the database, so a process sends one at a time: the others would only hold
/// connections that readers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
}

/// An open connection. Dropping it closes the socket at once, also if the server hangs.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) client: Arc<Client>,
    driver: JoinHandle<()>,
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) options: PostgresOptions,
    config: Config,
    idle: Mutex<Vec<Conn>>,
    permits: Semaphore,
    writer: Semaphore,
    waiting: AtomicUsize,
}

/// What every attempt at a call's work is given.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) client: Arc<Client>,
    pub(super) phase: Arc<Phase>,
    /// For the server: it gives up by itself when the caller has.
    pub(super) timeout_ms: u64,
    /// The most that a transaction of ours may stand still before the server ends it, so that a frozen process holds no lock.
    pub(super) idle_ms: u64,
}

impl Pool {
    pub(super) fn new(options: PostgresOptions) -> Result<Self> {
        let config = options.config()?;
        let permits = Semaphore::new(options.connections);
        let (writer, waiting) = (Semaphore::new(1), AtomicUsize::new(0));
        Ok(Self { options, config, idle: Mutex::default(), permits, writer, waiting })
    }

    /// Carries out work on a connection until the deadline. What failed for want of a connection, and before its COMMIT was sent, is tried
    /// again until then.
    pub(super) async fn call<T, F, W>(&self, kind: Work, span: Span, work: F) -> Result<T>
    where
        F: Fn(Attempt) -> W,
        W: Future<Output = Result<T, Fault>>,
    {
        let limit = match span {
            Span::Short => self.options.deadline,
            Span::Bulk => self.options.bulk_deadline,
        };
        let until = Instant::now() + limit;
        let (phase, mut last, ms) = (Arc::new(Phase::default()), None, millis(limit));
        let attempts = async {
            let _turn = self.turn(kind).await?;
            let mut backoff = Backoff::default();
            loop {
                match self.attempt(&work, &phase, ms).await {
                    Err(error @ Error::Unavailable { applied: Applied::No, .. }) => last = Some(error),
                    outcome => return outcome,
                }
                backoff.wait().await;
            }
        };
        match timeout_at(until, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => match (phase.applied(), last) {
                (Applied::No, Some(error)) => Err(error),
                (applied, _) => Err(Error::Timeout { ms, applied }),
            },
        }
    }

    async fn attempt<T, F, W>(&self, work: &F, phase: &Arc<Phase>, ms: u64) -> Result<T>
    where
        F: Fn(Attempt) -> W,
        W: Future<Output = Result<T, Fault>>,
    {
        let conn = match self.take() {
            Some(conn) => conn,
            None => self.connect(|_| {}).await.map_err(|fault| fault.into_error(phase, ms))?,
        };
        let idle_ms = ms.min(millis(IDLE_MOST));
        let (client, phase_of) = (Arc::clone(&conn.client), Arc::clone(phase));
        let attempt = Attempt { client, phase: phase_of, timeout_ms: ms, idle_ms };
        let outcome = work(attempt).await;
        match outcome {
            Ok(done) => {
                self.give_back(conn);
                Ok(done)
            }
            Err(Fault::Store(error)) => {
                // The rules of the store said no in the middle of a transaction; the connection itself is well.
                if conn.client.batch_execute("ROLLBACK").await.is_ok() {
                    self.give_back(conn);
                }
                Err(error)
            }
            Err(fault) => Err(fault.into_error(phase, ms)),
        }
    }

    fn take(&self) -> Option<Conn> {
        let mut idle = self.idle.lock();
        while let Some(conn) = idle.pop() {
            if !conn.client.is_closed() {
                return Some(conn);
            }
        }
        None
    }

    fn give_back(&self, conn: Conn) {
        if !conn.client.is_closed() && !self.permits.is_closed() {
            self.idle.lock().push(conn);
        }
    }

    /// A place among those who are at work; for a writer the one place of the writers too.
    async fn turn(&self, kind: Work) -> Result<(Option<SemaphorePermit<'_>>, SemaphorePermit<'_>)> {
        let writer = match kind {
            Work::Read => None,
            Work::Write => Some(self.acquire(&self.writer).await?),
        };
        Ok((writer, self.acquire(&self.permits).await?))
    }

    async fn acquire<'s>(&self, places: &'s Semaphore) -> Result<SemaphorePermit<'s>> {
        if let Ok(place) = places.try_acquire() {
            return Ok(place);
        }
        let _waiting = Waiting::enter(&self.waiting, self.options.queue)?;
        places.acquire().await.map_err(|_| Error::Closed)
    }

    /// A new connection that is ready for work; `told` gets the notifications' payloads.
    pub(super) async fn connect<N>(&self, told: N) -> Result<Conn, Fault>
    where
        N: Fn(&str) + Send + 'static,
    {
        let connecting = async {
            let (client, connection) = self.config.connect(Maker(self.options.tls.clone())).await?;
            let conn = Conn { client: Arc::new(client), driver: tokio::spawn(drive(connection, told)) };
            conn.client.batch_execute(&self.setup()).await?;
            Ok(conn)
        };
        timeout(self.options.connect, connecting).await.unwrap_or(Err(Fault::NoConnection))
    }

    /// A commit that was answered must be on disk, whatever the database's default says.
    fn setup(&self) -> String {
        format!(
            "SET search_path TO {}; \
             SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
            self.options.schema
        )
    }

    pub(super) fn close(&self) {
        self.permits.close();
        self.writer.close();
        self.idle.lock().clear();
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

async fn drive<N: Fn(&str)>(mut connection: Connection<Socket, Stream>, told: N) {
    loop {
        match std::future::poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => told(notification.payload()),
            Some(Ok(_)) => {}
            // The client's calls give the error to those who wait.
            Some(Err(_)) | None => return,
        }
    }
}

/// A place in the queue, given back on drop.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize, bound: usize) -> Result<Self> {
        let place = Self(count);
        if count.fetch_add(1, Ordering::AcqRel) >= bound {
            return Err(Error::Overloaded { waiting: bound });
        }
        Ok(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Growing pauses, each drawn from the upper half of its span, so that many clients do not come back in step.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    seed: Arc<RandomState>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: BACKOFF_FIRST, seed: Arc::default() }
    }
}

impl Backoff {
    pub(super) async fn wait(&mut self) {
        let mut hasher = self.seed.build_hasher();
        hasher.write_u128(self.next.as_nanos());
        let share = u32::try_from(hasher.finish() % 512).unwrap_or(0);
        sleep(self.next / 2 + self.next / 2 * share / 512).await;
        self.next = (self.next * 2).min(BACKOFF_MOST);
    }

    pub(super) fn reset(&mut self) {
        self.next = BACKOFF_FIRST;
    }
}
