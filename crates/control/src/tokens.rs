//! The keys that sign the gateways' own tokens, and what of these was revoked: the driver of [`rotation`].
//!
//! All of it is records of the store, which are in no table, no history and no export; a backup of the store has them. Whoever leads takes the steps; each
//! is one commit, compared with what was read and with the term, and gateways are told what is stored and nothing else. So a process that dies at any
//! point leaves a state from which the next one goes on. Random bytes of a step that was not stored have signed nothing.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use holdfast_identity::issuing::rotation::{self, Plan};
use holdfast_identity::issuing::{MOST_REVOKED, Revoked, State, What};
use holdfast_plane::TokenState;
use holdfast_store::{Commit, Error, ErrorKind, Json, MAX_PAGE, Record, RecordWrite, Result, Store};
use holdfast_telemetry::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::rollouts::{Rollouts, Sessions};

/// The record of the keys: its kind and its id.
const KEYS: (&str, &str) = ("token_keys", "keys");
/// The kind of a revocation's record.
const REVOKED: &str = "token_revoked";
/// How often the store is looked at. What is asked of this process is told to gateways at once.
const LOOK: Duration = Duration::from_secs(2);
/// How often a write is tried that somebody else was faster than.
const TRIES: usize = 8;
/// Revocations that are forgotten in one commit.
const FORGET: usize = 100;

/// See the module.
pub struct Tokens {
    store: Arc<dyn Store>,
    sessions: Arc<Sessions>,
    rollouts: Arc<Rollouts>,
    plan: Plan,
    wake: Notify,
    told: Mutex<u64>,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The store.
    #[error(transparent)]
    Store(#[from] Error),
    /// There are no keys yet.
    #[error("there are no keys for tokens yet; try again in a moment")]
    NoKeys,
    /// There is no room.
    #[error("there are {MOST_REVOKED} revocations already; `holdfast token rotate --at-once` ends all tokens")]
    Full,
    /// A key is on its way.
    #[error("a new key is on its way already, or there are as many keys as there may be")]
    UnderWay,
    /// The operating system.
    #[error("the operating system gives no randomness")]
    Random,
}

/// What is stored.
struct Stored {
    state: State,
    version: Option<u64>,
    revoked: Vec<(Record, Revoked)>,
}

impl Tokens {
    /// Nothing is done before [`Tokens::run`].
    #[must_use]
    pub fn new(store: Arc<dyn Store>, sessions: Arc<Sessions>, rollouts: Arc<Rollouts>, plan: Plan) -> Arc<Self> {
        Arc::new(Self { store, sessions, rollouts, plan, wake: Notify::new(), told: Mutex::default() })
    }

    /// Works until `stop` is done.
    pub async fn run(self: Arc<Self>, stop: impl Future<Output = ()> + Send) {
        let work = async {
            loop {
                match self.turn().await {
                    Ok(()) => {}
                    // Somebody else was faster: it is looked at again.
                    Err(TokensError::Store(error)) if is_overtaken(&error) => {}
                    Err(error) => tracing::warn!(%error, "the keys for tokens were not looked at; it is tried again"),
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = self.wake.notified() => {}
                }
            }
        };
        tokio::select! {
            () = stop => {}
            () = work => {}
        }
    }

    /// Takes the step that is due, if this control plane leads, and tells gateways what is stored.
    ///
    /// # Errors
    /// The store gives no answer, or somebody else was faster.
    pub async fn turn(&self) -> std::result::Result<(), TokensError> {
        let (mut stored, now) = (self.read().await?, Clock::wall_millis());
        if let Some(term) = self.rollouts.term() {
            let next = rotation::step(&stored.state, &self.plan, now, random()?);
            let over = stored.revoked.iter().filter(|(_, revoked)| revoked.ends <= now).take(FORGET);
            let gone: Vec<RecordWrite> = over.map(|(record, _)| write(record, None)).collect();
            if next.is_some() || !gone.is_empty() {
                let next = next.unwrap_or_else(|| stored.state.clone().stamped(now));
                self.write(&stored, &next, gone, Some(term)).await?;
                tracing::info!(term, keys = next.keys.len(), "the keys for tokens were changed");
                stored = self.read().await?;
            }
        }
        self.tell(stored);
        Ok(())
    }

    /// Revokes tokens; gives until when that is remembered, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`TokensError`].
    pub async fn revoke(&self, what: &What) -> std::result::Result<u64, TokensError> {
        let id = match what {
            What::Token(jti) => format!("jti-{jti}"),
            What::Key(prefix) => format!("key-{prefix}"),
        };
        self.change(|stored, now| {
            let before = stored.revoked.iter().find(|(record, _)| record.id == id);
            if before.is_none() && stored.revoked.len() >= MOST_REVOKED {
                return Err(TokensError::Full);
            }
            let ends = stored.state.longest(now);
            let value = Some(Json::of(&Revoked { what: what.clone(), before: now, ends })?);
            let expected = before.map(|(record, _)| record.version);
            let write = RecordWrite { kind: REVOKED.to_owned(), id: id.clone(), expected, value };
            Ok((stored.state.clone().stamped(now), vec![write], ends))
        })
        .await
    }

    /// A new key out of turn. `at_once`: no token of the others is good any more.
    ///
    /// # Errors
    /// [`TokensError`].
    pub async fn rotate(&self, at_once: bool) -> std::result::Result<u64, TokensError> {
        self.change(|stored, now| {
            let next = rotation::force(&stored.state, &self.plan, now, random()?, at_once);
            let next = next.ok_or(TokensError::UnderWay)?;
            let from = next.keys.iter().map(|key| key.signs_from).max().unwrap_or(now);
            Ok((next, Vec::new(), from))
        })
        .await
    }

    async fn change<T>(
        &self,
        change: impl Fn(&Stored, u64) -> std::result::Result<(State, Vec<RecordWrite>, T), TokensError>,
    ) -> std::result::Result<T, TokensError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let stored = self.read().await?;
            if stored.version.is_none() {
                return Err(TokensError::NoKeys);
            }
            let (next, writes, told) = change(&stored, Clock::wall_millis())?;
            match self.write(&stored, &next, writes, None).await {
                Ok(()) => {
                    self.wake.notify_one();
                    return Ok(told);
                }
                Err(error) if is_overtaken(&error) && tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn read(&self) -> Result<Stored> {
        let damaged = |what: &str| Error::Corrupt { what: what.to_owned() };
        let record = self.store.record(KEYS.0.to_owned(), KEYS.1.to_owned()).await?;
        let (state, version) = match record {
            None => (State::default(), None),
            Some(record) => {
                let state = State::read(record.value.as_bytes());
                (state.ok_or_else(|| damaged("the record of the keys for tokens"))?, Some(record.version))
            }
        };
        let (mut revoked, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.records(REVOKED.to_owned(), after, MAX_PAGE).await?;
            let full = page.len() == MAX_PAGE;
            after = page.last().map(|record| record.id.clone());
            for record in page {
                let read = serde_json::from_slice(record.value.as_bytes());
                revoked.push((record, read.map_err(|_| damaged("the record of a revoked token"))?));
            }
            if !full {
                return Ok(Stored { state, version, revoked });
            }
        }
    }

    async fn write(&self, before: &Stored, next: &State, mut also: Vec<RecordWrite>, term: Option<u64>) -> Result<()> {
        let value = Some(Json::parse(&next.to_bytes())?);
        let (kind, id) = (KEYS.0.to_owned(), KEYS.1.to_owned());
        also.push(RecordWrite { kind, id, expected: before.version, value });
        self.store.commit(Commit { records: also, term, ..Commit::default() }).await.map(drop)
    }

    /// Tells gateways, if it is later than what they were told.
    fn tell(&self, stored: Stored) {
        let state = stored.state.with_revoked(stored.revoked.into_iter().map(|(_, revoked)| revoked).collect());
        let mut told = self.told.lock();
        if stored.version.is_some() && state.stamp > *told {
            *told = state.stamp;
            let content = state.to_bytes().into();
            self.sessions.publish_tokens(Arc::new(TokenState { stamp: state.stamp, content }));
        }
    }
}

fn write(record: &Record, value: Option<Json>) -> RecordWrite {
    RecordWrite { kind: record.kind.clone(), id: record.id.clone(), expected: Some(record.version), value }
}

fn is_overtaken(error: &Error) -> bool {
    error.kind() == ErrorKind::RecordConflict
}

/// From the operating system.
fn random() -> std::result::Result<[u8; 32], TokensError> {
    let mut bytes = [0; 32];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|_| TokensError::Random)?;
    Ok(bytes)
}
