//! The connection to the store: one, pipelined, with a breaker.
//!
//! A task makes it and makes it anew. While there is none, calls fail at once. A connection on which an answer was late is dropped: what comes on it belongs
//! to nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, ScriptInvocation};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::Down;
use crate::ask::SLOTS;

/// How to reach the store.
#[derive(Clone, Debug)]
pub struct Options {
    /// `redis://HOST:PORT/DB`.
    pub url: String,
    /// What keys begin with: gateways of one fleet have the same.
    pub namespace: String,
    /// Deadline of each call.
    pub within: Duration,
    /// Gateways, as long as the store has not said how many live.
    pub gateways: u32,
    /// A number that other gateways do not have, to spread reconnects.
    pub seed: u64,
    /// What it keeps, in a word: `limits` or `ledger`. Gateways are counted for each by itself.
    pub keeps: &'static str,
}

/// How the store does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// There is a connection that has answered.
    pub up: bool,
    /// Calls made.
    pub calls: u64,
    /// Calls that failed, those included that were not made.
    pub failures: u64,
    /// Connections made.
    pub connects: u64,
    /// Live gateways, as the store last said; 0: it never has.
    pub gateways: u64,
}

/// See the module.
pub struct Store {
    options: Options,
    connection: Mutex<Option<MultiplexedConnection>>,
    lost: Notify,
    calls: AtomicU64,
    failures: AtomicU64,
    connects: AtomicU64,
    gateways: AtomicU64,
}

/// The first wait for another try, and the longest: a store that comes back is found within a second.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(600);
/// How often a gateway says that it lives, and how long it counts after it has last said so.
const BEAT: Duration = Duration::from_millis(500);
const LIVES: Duration = Duration::from_secs(3);

impl Store {
    /// One that is not connected yet.
    ///
    /// # Errors
    /// The URL is none, in the words of who reads it.
    pub fn new(options: Options) -> Result<Arc<Self>, String> {
        redis::Client::open(options.url.as_str()).map_err(|e| e.to_string())?;
        Ok(Arc::new(Self {
            options,
            connection: Mutex::new(None),
            lost: Notify::new(),
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            gateways: AtomicU64::new(0),
        }))
    }

    /// How it does.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            up: self.connection.lock().is_some(),
            calls: self.calls.load(Relaxed),
            failures: self.failures.load(Relaxed),
            connects: self.connects.load(Relaxed),
            gateways: self.gateways.load(Relaxed),
        }
    }

    /// Live gateways, as far as is known; at least this one.
    #[must_use]
    pub fn gateways(&self) -> u32 {
        match self.gateways.load(Relaxed) {
            0 => self.options.gateways.max(1),
            told => u32::try_from(told).unwrap_or(u32::MAX),
        }
    }

    /// When the store was empty, in microseconds since 1970, as far as it knows of this slot. Where it has forgotten that as well, it is told now.
    ///
    /// # Errors
    /// [`Down`].
    pub async fn born(&self, slot: u64) -> Result<u64, Down> {
        let script = redis::Script::new(BORN);
        self.call(&script.key(format!("{}:born", self.base(slot)))).await
    }

    /// Makes a call, within the deadline.
    ///
    /// # Errors
    /// [`Down`].
    pub(crate) async fn call<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, Down> {
        let connection = self.connection.lock().clone();
        let Some(mut connection) = connection else {
            self.failures.fetch_add(1, Relaxed);
            return Err(Down::Away);
        };
        self.calls.fetch_add(1, Relaxed);
        let failed = match timeout(self.options.within, call.invoke_async(&mut connection)).await {
            Ok(Ok(answer)) => return Ok(answer),
            // What the store itself says is about the call; the connection is well, unless it has to move.
            Ok(Err(error)) if error.code().is_some_and(|code| !MOVES.contains(&code)) => {
                self.failures.fetch_add(1, Relaxed);
                return Err(Down::Answered(error.to_string()));
            }
            // The client has a deadline of its own.
            Ok(Err(error)) if error.is_timeout() => Down::Late,
            Ok(Err(error)) => Down::Answered(error.to_string()),
            Err(_) => Down::Late,
        };
        self.failures.fetch_add(1, Relaxed);
        self.lose(&failed);
        Err(failed)
    }

    fn lose(&self, why: &Down) {
        if self.connection.lock().take().is_some() {
            tracing::warn!(%why, keeps = self.options.keeps, "the store is left until it answers again");
            self.lost.notify_one();
        }
    }

    /// Keeps a connection and says every half second that this gateway lives, for ever.
    pub async fn run(self: Arc<Self>) {
        let mut jitter = self.options.seed;
        let mut wait = FIRST;
        loop {
            if let Some(connection) = self.connect().await {
                *self.connection.lock() = Some(connection);
                self.connects.fetch_add(1, Relaxed);
                tracing::info!(keeps = self.options.keeps, "the store answers");
                wait = FIRST;
                self.tend(&mut jitter).await;
            }
            tokio::time::sleep(spread(wait, &mut jitter)).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// A connection that has answered.
    async fn connect(&self) -> Option<MultiplexedConnection> {
        let client = redis::Client::open(self.options.url.as_str()).ok()?;
        let most = Duration::from_millis(250).max(self.options.within * 2);
        let mut connection = timeout(most, client.get_multiplexed_async_connection()).await.ok()?.ok()?;
        timeout(most, self.note_birth(&mut connection)).await.ok()?.ok()?;
        Some(connection)
    }

    /// Notes since when limits can have been in this store, if nobody has. So one that is first asked for later is full by then, and one that was lost is not.
    async fn note_birth(&self, connection: &mut MultiplexedConnection) -> redis::RedisResult<()> {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
        let mut births = redis::pipe();
        for slot in 0..SLOTS {
            let key = format!("{}:born", self.base(slot));
            births.cmd("SET").arg(key).arg(seconds * 1_000_000 + micros).arg("NX").ignore();
        }
        births.query_async(connection).await
    }

    /// What the keys of a slot begin with. What is in braces decides in a cluster where they are.
    pub(crate) fn base(&self, slot: u64) -> String {
        format!("holdfast:{}:{{{}}}", self.options.namespace, slot % SLOTS)
    }

    /// Until the connection is lost.
    async fn tend(&self, jitter: &mut u64) {
        loop {
            match self.beat().await {
                Ok(gateways) => self.gateways.store(gateways, Relaxed),
                Err(Down::Answered(why)) => {
                    tracing::warn!(%why, keeps = self.options.keeps, "the store does not count gateways");
                }
                Err(Down::Away | Down::Late) => {}
            }
            if self.connection.lock().is_none() {
                return;
            }
            let beat = spread(BEAT, jitter);
            // Told of a connection that was lost before, there is nothing to be lost now.
            let _ = timeout(beat, self.lost.notified()).await;
            if self.connection.lock().is_none() {
                return;
            }
        }
    }

    /// Says that this gateway lives; how many do.
    async fn beat(&self) -> Result<u64, Down> {
        let key = match self.options.keeps {
            "limits" => format!("holdfast:{}:gateways", self.options.namespace),
            other => format!("holdfast:{}:{other}:gateways", self.options.namespace),
        };
        let (me, lives) = (self.options.seed, LIVES.as_millis() as u64);
        let script = redis::Script::new(BEATS);
        let mut call = script.key(key);
        call.arg(me).arg(lives);
        self.call(&call).await
    }
}

/// Answers after which another connection may do better.
const MOVES: [&str; 3] = ["LOADING", "READONLY", "MASTERDOWN"];

const BEATS: &str = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) \
    redis.call('ZADD', KEYS[1], now, ARGV[1]) redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2]) \
    redis.call('PEXPIRE', KEYS[1], 60000) return redis.call('ZCARD', KEYS[1])";

const BORN: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
    redis.call('SET', KEYS[1], string.format('%.0f', now), 'NX') return redis.call('GET', KEYS[1])";

/// The wait, from three quarters of it to five quarters.
fn spread(wait: Duration, jitter: &mut u64) -> Duration {
    // Splitmix64.
    *jitter = jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*jitter ^ (*jitter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let part = u32::try_from((mixed >> 32) % 512).unwrap_or(0);
    wait * (768 + part) / 1024
}
