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
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::Down;
use crate::access::{Access, Address, Live, Refused};
use crate::ask::SLOTS;
use crate::cluster::{self, View};

/// How to reach the store.
#[derive(Clone, Debug)]
pub struct Options {
    /// `redis://HOST:PORT/DB`, or `rediss://`.
    pub url: String,
    /// TLS, user and password.
    pub access: Access,
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
    address: Address,
    connection: Mutex<Option<Live>>,
    why: Mutex<Option<String>>,
    /// What it says of its cluster, if it is in one.
    view: Mutex<Option<View>>,
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
        Ok(Arc::new(Self {
            address: Address::parse(&options.url)?,
            options,
            connection: Mutex::new(None),
            why: Mutex::new(None),
            view: Mutex::new(None),
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

    /// Why the last try to connect has failed, if it has.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.why.lock().clone()
    }

    /// What it says of its cluster. None: it is in none, or does not answer.
    pub(crate) fn view(&self) -> Option<View> {
        let is_up = self.connection.lock().is_some();
        self.view.lock().clone().filter(|_| is_up)
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
        let connection = self.connection.lock().as_ref().map(|live| live.connection.clone());
        let Some(mut connection) = connection else {
            self.failures.fetch_add(1, Relaxed);
            return Err(Down::Away);
        };
        self.calls.fetch_add(1, Relaxed);
        self.judge(timeout(self.options.within, call.invoke_async(&mut connection)).await)
    }

    /// The same at the node that a slot is moving to.
    ///
    /// # Errors
    /// [`Down`].
    pub(crate) async fn call_asking<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, Down> {
        let connection = self.connection.lock().as_ref().map(|live| live.connection.clone());
        let Some(mut connection) = connection else {
            self.failures.fetch_add(1, Relaxed);
            return Err(Down::Away);
        };
        self.calls.fetch_add(1, Relaxed);
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().invoke_script(call);
        // It may not know the script yet; to say it once more is no call that is made twice.
        let made = async {
            call.load_async(&mut connection).await?;
            both.query_async(&mut connection).await
        };
        let answer: Result<(T,), Down> = self.judge(timeout(self.options.within, made).await);
        answer.map(|(answer,)| answer)
    }

    fn judge<T>(&self, answer: Result<redis::RedisResult<T>, Elapsed>) -> Result<T, Down> {
        let failed = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => match (error.redirect_node(), error.code()) {
                // Where it is no failure: it is made there.
                (Some((to, _)), Some("MOVED")) => return Err(Down::Moved(to.to_owned())),
                (Some((to, _)), _) => return Err(Down::Asks(to.to_owned())),
                // What the store itself says is about the call; the connection is well, unless it has to move.
                (_, Some(code)) if !MOVES.contains(&code) => {
                    self.failures.fetch_add(1, Relaxed);
                    return Err(Down::Answered(error.to_string()));
                }
                _ if error.is_timeout() => Down::Late,
                _ => Down::Answered(error.to_string()),
            },
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
            match self.connect().await {
                Ok(live) => {
                    *self.connection.lock() = Some(live);
                    self.connects.fetch_add(1, Relaxed);
                    tracing::info!(keeps = self.options.keeps, "the store answers");
                    *self.why.lock() = None;
                    wait = FIRST;
                    self.tend(&mut jitter).await;
                }
                Err(why) => {
                    let why = why.to_string();
                    // Each reason is said once, and not at each try.
                    if self.why.lock().as_ref() != Some(&why) {
                        tracing::warn!(%why, keeps = self.options.keeps, "the store cannot be used");
                        *self.why.lock() = Some(why);
                    }
                }
            }
            tokio::time::sleep(spread(wait, &mut jitter)).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// A connection that has answered.
    async fn connect(&self) -> Result<Live, Refused> {
        let most = Duration::from_millis(250).max(self.options.within * 2);
        let late = |_| Refused::late();
        let mut live = timeout(most, self.options.access.connect(&self.address)).await.map_err(late)??;
        let view = timeout(most, look(&mut live.connection)).await.map_err(late)?;
        *self.view.lock() = view;
        timeout(most, self.note_birth(&mut live.connection)).await.map_err(late)??;
        Ok(live)
    }

    /// Notes since when limits can have been in this store, if nobody has. So one that is first asked for later is full by then, and one that was lost is not.
    async fn note_birth(&self, connection: &mut MultiplexedConnection) -> redis::RedisResult<()> {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
        let mut births = redis::pipe();
        let view = self.view.lock().clone();
        for slot in (0..SLOTS).filter(|slot| view.as_ref().is_none_or(|view| view.is_mine(cluster::slot_of(*slot)))) {
            let key = format!("{}:born", self.base(slot));
            births.cmd("SET").arg(key).arg(seconds * 1_000_000 + micros).arg("NX").ignore();
        }
        // A node that has none of the slots, or loses one at this moment, has nothing to be noted.
        if births.is_empty() {
            return Ok(());
        }
        match births.query_async(connection).await {
            Err(error) if error.redirect_node().is_some() => Ok(()),
            answer => answer,
        }
    }

    pub(crate) fn base(&self, slot: u64) -> String {
        crate::ring::base(&self.options.namespace, slot)
    }

    /// Until the connection is lost.
    async fn tend(&self, jitter: &mut u64) {
        loop {
            let connection = self.connection.lock().as_ref().map(|live| live.connection.clone());
            if self.view.lock().is_some()
                && let Some(mut connection) = connection
                && let Ok(Some(view)) = timeout(BEAT, look(&mut connection)).await
            {
                *self.view.lock() = Some(view);
            }
            match self.beat().await {
                Ok(gateways) => self.gateways.store(gateways, Relaxed),
                Err(Down::Answered(why)) => {
                    tracing::warn!(%why, keeps = self.options.keeps, "the store does not count gateways");
                }
                Err(Down::Away | Down::Late | Down::Moved(_) | Down::Asks(_)) => {}
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
        let name = &self.options.namespace;
        let view = self.view.lock().clone();
        let key = match (self.options.keeps, view) {
            // In a cluster each node counts for itself, in the first slot that it has. One without slots counts nobody.
            ("limits", Some(view)) => match (0..SLOTS).find(|slot| view.is_mine(cluster::slot_of(*slot))) {
                Some(slot) => format!("{}:gateways", self.base(slot)),
                None => return Ok(0),
            },
            ("limits", None) => format!("holdfast:{name}:gateways"),
            (other, _) => format!("holdfast:{name}:{other}:gateways"),
        };
        let (me, lives) = (self.options.seed, LIVES.as_millis() as u64);
        let script = redis::Script::new(BEATS);
        let mut call = script.key(key);
        call.arg(me).arg(lives);
        self.call(&call).await
    }
}

/// What a node says of its cluster. None: it is in none.
async fn look(connection: &mut MultiplexedConnection) -> Option<View> {
    let mut ask = redis::pipe();
    ask.cmd("CLUSTER").arg("MYID").cmd("CLUSTER").arg("SLOTS");
    let (me, slots): (String, redis::Value) = ask.query_async(connection).await.ok()?;
    View::read(me, &slots)
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
