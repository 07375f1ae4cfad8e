//! One issuer: its keys as they are here, and the task that fetches them.
//!
//! When keys are fetched is decided by `holdfast_identity::keeper`; this is its driver. The task ends when nobody uses the issuer any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use holdfast_config::{JwksSource, JwtIssuer};
use holdfast_identity::{Asked, Compact, Digest, Keeper, Key, KeySet, Policy, Reject, Source, Why};
use holdfast_net::Tasks;
use holdfast_telemetry::{Clock, Counter, Family};
use holdfast_types::Mono;

use super::fetch;
use crate::random::Random;

/// See the module.
pub struct Issuer {
    /// As it is configured.
    pub config: JwtIssuer,
    keys: ArcSwapOption<KeySet>,
    source: Arc<Source>,
    keeper: Mutex<Keeper>,
    /// A token asks for the keys.
    wanted: Notify,
    /// Somebody has asked for the file to be read again, and is to be told how that ended.
    asked: AtomicBool,
    /// How many fetches have ended.
    ended: watch::Sender<u64>,
    fetches: Family<Counter, 2>,
}

impl Issuer {
    /// Begins to fetch its keys.
    pub fn start(config: JwtIssuer, tasks: &Tasks, fetches: Family<Counter, 2>) -> Arc<Self> {
        let policy = Policy { refresh: config.refresh, keep: config.keep, cooldown: config.cooldown };
        let issuer = Arc::new(Self {
            config,
            keys: ArcSwapOption::empty(),
            source: Arc::default(),
            keeper: Mutex::new(Keeper::new(policy)),
            wanted: Notify::new(),
            asked: AtomicBool::new(false),
            ended: watch::Sender::new(0),
            fetches,
        });
        // Before anything can ask: a token that comes first waits for this fetch, and does not count as asking for one.
        issuer.keeper.lock().begin();
        tasks.spawn(run(Arc::downgrade(&issuer)));
        issuer
    }

    /// The key that signed a token.
    ///
    /// # Errors
    /// What is wrong with the token; or nothing, if there are no keys, or none young enough, to tell by.
    pub fn verify(&self, token: &Compact<'_>, now: Mono) -> Result<Arc<Key>, Option<Reject>> {
        let keys = self.keys.load();
        let Some(keys) = keys.as_ref().filter(|_| now < self.source.usable_until()) else { return Err(None) };
        keys.verify(token).cloned().map_err(Some)
    }

    /// A token could not be verified. True: its keys are being fetched, and it may be another one then.
    pub fn ask(&self, token: &Compact<'_>, reject: Option<Reject>, now: Mono) -> bool {
        // An algorithm that is not the key's is nothing that other keys would change, unless they are other keys under an old name.
        if reject.is_some_and(|reject| !matches!(reject.why, Why::UnknownKey | Why::Signature | Why::Algorithm)) {
            return false;
        }
        let name = token.kid.as_deref().unwrap_or_default();
        let asked = self.keeper.lock().ask(now, Digest::of(name.as_bytes()).short());
        if asked == Asked::Fetch {
            self.wanted.notify_one();
        }
        asked != Asked::No
    }

    /// Reads its keys again, if they are in a file: whoever reloads a configuration has often put another one there.
    pub fn read_again(&self) {
        if matches!(self.config.keys, JwksSource::File(_)) {
            self.asked.store(true, Ordering::Relaxed);
            // One that is under way may have read the file as it was before.
            self.keeper.lock().begin();
            self.wanted.notify_one();
        }
    }

    /// Waits until the fetch that is under way has ended, at most so long.
    ///
    /// Cancel safe.
    pub async fn settled(&self, most: Duration) {
        let mut ended = self.ended.subscribe();
        let seen = *ended.borrow_and_update();
        // It may have ended since the token asked: then there is none under way.
        if self.keeper.lock().next().is_some() {
            return;
        }
        let _ = tokio::time::timeout(most.min(self.config.timeout), ended.wait_for(|count| *count > seen)).await;
    }

    /// The age of the keys.
    pub fn age(&self, now: Mono) -> Option<Duration> {
        self.keeper.lock().age(now)
    }

    /// How many keys are in use.
    pub fn keys(&self) -> usize {
        self.keys.load().as_ref().map_or(0, |keys| keys.keys().len())
    }

    async fn fetch(&self, random: &mut Random) {
        let is_asked = self.asked.swap(false, Ordering::Relaxed);
        let fetched = fetch::fetch(&self.config.keys, self.config.timeout).await;
        let before = self.keys.load_full();
        let read = fetched.and_then(|document| {
            let read = KeySet::read(&document, &self.config.algorithms, &self.source, before.as_deref());
            read.map_err(str::to_owned)
        });
        let issuer = &*self.config.rules.issuer;
        let now = Clock::now();
        let outcome = match read {
            Ok((keys, skipped)) => {
                let is_new = before.as_ref().is_none_or(|before| !before.is_same(&keys));
                if is_new {
                    let kids: Vec<&str> = keys.keys().iter().map(|key| shown(key.kid.as_deref())).collect();
                    tracing::info!(issuer, kids = kids.join(" "), "the issuer's keys");
                    for skipped in &skipped {
                        let (kid, why) = (shown(skipped.kid.as_deref()), skipped.why);
                        tracing::warn!(issuer, index = skipped.index, kid, why, "a key of the issuer is not used");
                    }
                }
                let keys = Arc::new(keys);
                self.keys.store(Some(keys.clone()));
                self.source.set_usable_until(self.keeper.lock().fetched(now, random.next()));
                // Last, so that a token that is verified again finds the new keys.
                if let Some(before) = before {
                    before.followed_by(&keys);
                }
                "fetched"
            }
            Err(why) => {
                let mut keeper = self.keeper.lock();
                keeper.failed(now, random.next());
                let failures = keeper.failures();
                drop(keeper);
                if is_asked || failures.is_power_of_two() {
                    tracing::error!(issuer, failures, %why, "the issuer's keys cannot be fetched; those that are here stay in use for their time");
                }
                "failed"
            }
        };
        self.fetches.get([issuer, outcome]).inc();
        self.ended.send_modify(|count| *count += 1);
    }
}

/// The beginning of a key's name, for a log.
fn shown(kid: Option<&str>) -> &str {
    let kid = kid.unwrap_or("-");
    kid.get(..kid.floor_char_boundary(64)).unwrap_or_default()
}

/// Fetches now, and then whenever it is due or wanted. Holds the issuer only while it works for it.
async fn run(issuer: Weak<Issuer>) {
    let mut random = Random::new();
    loop {
        let Some(one) = issuer.upgrade() else { return };
        one.fetch(&mut random).await;
        let due = one.keeper.lock().next();
        drop(one);
        if !pause(&issuer, due.unwrap_or(Mono::ZERO)).await {
            return;
        }
    }
}

/// How often it is looked whether anybody uses the issuer.
const LOOK: Duration = Duration::from_secs(5);

/// Waits until it is due or wanted, and begins. False: nobody uses the issuer any more.
async fn pause(issuer: &Weak<Issuer>, due: Mono) -> bool {
    loop {
        let Some(one) = issuer.upgrade() else { return false };
        let until = Clock::instant(due).min(tokio::time::Instant::now() + LOOK);
        let wanted = tokio::time::timeout_at(until, one.wanted.notified()).await.is_ok();
        // Who asked has noted that it begins.
        // So has whoever asks while one was under way, which the end of that one has forgotten.
        if wanted || Clock::now() >= due {
            one.keeper.lock().begin();
            return true;
        }
    }
}
