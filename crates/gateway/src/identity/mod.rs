//! Signed tokens: who may sign them, their keys, and what has been verified.
//!
//! On the request path there is no network: a token is looked for in the worker's own cache, and one that is not there is checked with keys that are
//! here already. What needs the issuer is done beside the path (`issuer`): a token whose key is not known may wait for that once, within its budget.

mod certificates;
mod fetch;
mod issuer;
mod keys;
mod own;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;

use holdfast_config::{Auth, Config, JwtIssuer};
use holdfast_identity::api_key::MARK;
use holdfast_identity::cache::Found;
use holdfast_identity::issuing::mint::Kind as TokenKind;
use holdfast_identity::{BadTokens, Cache, Compact, Digest, Proof, Reject, Subject, Why, claims};
use holdfast_net::Tasks;
use holdfast_telemetry::{Clock, Counter, Family, GatewayMetrics, Kind, Label, Sink};
use holdfast_types::{Failure, FailureKind, Mono};

pub use certificates::Certificates;
pub use fetch::check_key_file;
pub use issuer::Issuer;
pub use keys::{ApiKeys, BadKey};
pub use own::{Bad, Own, OwnKeys};

/// The most addresses whose bad tokens are counted.
const ADDRESSES: usize = 10_000;

/// What there is in a process of issuers, over all configurations.
pub struct Identities {
    current: Mutex<Option<Arc<Identity>>>,
    /// The keys of the gateways' own tokens.
    pub own: Arc<OwnKeys>,
    tasks: Tasks,
    metrics: Arc<TokenMetrics>,
}

impl Identities {
    /// None yet. Keys are fetched in `tasks`.
    pub fn new(tasks: Tasks, metrics: &GatewayMetrics) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            current: Mutex::default(),
            own: Arc::default(),
            tasks,
            metrics: Arc::new(TokenMetrics::register(metrics, me.clone())),
        })
    }

    /// What checks the tokens of this configuration. What is as it was keeps its keys and what it has verified.
    pub fn of(&self, config: &Config) -> Option<Arc<Identity>> {
        let mut current = self.current.lock();
        let Some(auth) = config.auth.as_ref().filter(|auth| !auth.jwt.is_empty() || auth.keys) else {
            *current = None;
            return None;
        };
        let before = current.take();
        if let Some(same) = before.as_ref().filter(|before| before.auth == *auth) {
            *current = Some(same.clone());
            return before;
        }
        let known = |jwt: &JwtIssuer| before.iter().flat_map(|b| &b.issuers).find(|one| one.config == *jwt).cloned();
        let issuers = auth.jwt.iter().map(|jwt| {
            known(jwt).unwrap_or_else(|| Issuer::start(jwt.clone(), &self.tasks, self.metrics.fetches.clone()))
        });
        let workers = crate::server::worker_count(config);
        let own = auth.tokens.clone().and_then(|tokens| Own::new(tokens, self.own.clone()));
        let identity = Identity::new(auth.clone(), issuers.collect(), workers, self.metrics.clone());
        let made = Arc::new(Identity { own, ..identity });
        *current = Some(made.clone());
        Some(made)
    }

    /// Reads key sets that are in files again. A file that is no good changes nothing and is told of.
    pub fn read_again(&self) {
        self.issuers().iter().for_each(|issuer| issuer.read_again());
    }

    fn issuers(&self) -> Vec<Arc<Issuer>> {
        self.current.lock().as_ref().map(|identity| identity.issuers.clone()).unwrap_or_default()
    }
}

/// What is counted of tokens.
struct TokenMetrics {
    cached: Counter,
    verified: Counter,
    key: Counter,
    bad_key: Counter,
    absent: Counter,
    limited: Counter,
    stale: Counter,
    refused: [Counter; Why::ALL.len()],
    fetches: Family<Counter, 2>,
}

impl TokenMetrics {
    fn register(metrics: &GatewayMetrics, all: Weak<Identities>) -> Self {
        const TOKENS: &str = "Requests that were to bring a token, by what became of it.";
        const FETCHES: &str = "Fetches of an issuer's keys, by outcome.";
        const AGE: &str = "The age of an issuer's keys, in seconds. There is no sample while there are none.";
        const KEYS: &str = "The keys of an issuer that are in use.";
        let registry = metrics.registry();
        let tokens: Family<Counter, 1> =
            registry.family("holdfast_tokens_total", TOKENS, [Label::closed("outcome")], ());
        let labels = [Label::open("issuer"), Label::closed("outcome")];
        let fetches = registry.family("holdfast_jwks_fetches_total", FETCHES, labels, ());
        let each = |all: Weak<Identities>, read: fn(&Issuer) -> Option<f64>| {
            Box::new(move |sink: &mut Sink<'_>| {
                let issuers = all.upgrade().map(|all| all.issuers()).unwrap_or_default();
                let samples = issuers.iter().filter_map(|one| Some((one, read(one)?)));
                samples.for_each(|(one, value)| sink.sample(&[&one.config.rules.issuer], value));
            })
        };
        let age = each(all.clone(), |issuer| issuer.age(Clock::now()).map(|age| age.as_secs_f64()));
        registry.collector("holdfast_jwks_age_seconds", AGE, Kind::Gauge, &["issuer"], age);
        #[allow(clippy::cast_precision_loss, reason = "a handful")]
        let keys = each(all, |issuer| Some(issuer.keys() as f64));
        registry.collector("holdfast_jwks_keys", KEYS, Kind::Gauge, &["issuer"], keys);
        Self {
            cached: tokens.get(["cached"]),
            verified: tokens.get(["verified"]),
            key: tokens.get(["key"]),
            bad_key: tokens.get(["bad_key"]),
            absent: tokens.get(["absent"]),
            limited: tokens.get(["limited"]),
            stale: tokens.get(["stale"]),
            refused: Why::ALL.map(|why| tokens.get([why.as_str()])),
            fetches,
        }
    }
}

/// Why a token names nobody yet.
pub enum Refused {
    /// The answer.
    Failed(Failure),
    /// The keys of its issuer are being fetched: it may wait for that, once.
    Waits(Arc<Issuer>),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What checks the tokens of one configuration.
pub struct Identity {
    auth: Auth,
    issuers: Vec<Arc<Issuer>>,
    /// Tokens of the gateways' own, if there are any.
    pub own: Option<Own>,
    /// One for each worker, whose lock nobody else takes.
    caches: Box<[Mutex<Cache>]>,
    /// Asked only for what no cache has.
    bad: Mutex<BadTokens>,
    metrics: Arc<TokenMetrics>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("issuers", &self.issuers.len()).finish_non_exhaustive()
    }
}

/// What is told to who brings no token.
pub const NO_TOKEN: &str = "the request brings no token";

impl Identity {
    fn new(auth: Auth, issuers: Vec<Arc<Issuer>>, workers: usize, metrics: Arc<TokenMetrics>) -> Self {
        let workers = workers.max(1);
        let room = (auth.cache as usize).div_ceil(workers);
        let caches = std::iter::repeat_with(|| Mutex::new(Cache::new(room))).take(workers).collect();
        let bad = Mutex::new(BadTokens::new(auth.bad_tokens.rate, auth.bad_tokens.burst, ADDRESSES));
        Self { auth, issuers, own: None, caches, bad, metrics }
    }

    /// Whom the token of a request names. `client` is its address; `may_wait` whether it may wait for keys.
    ///
    /// # Errors
    /// `unauthenticated`, `identity_stale`, `rate_limited`; or that it is to wait.
    pub fn identify(
        &self,
        fields: &HeaderMap,
        now: Mono,
        client: Option<&str>,
        may_wait: bool,
        keys: Option<&ApiKeys>,
    ) -> Result<Arc<Subject>, Refused> {
        let token = bearer(fields).map_err(|words| {
            self.metrics.absent.inc();
            Failure::new(FailureKind::Unauthenticated, words)
        })?;
        if token.starts_with(MARK.as_bytes()) {
            return self.key(token, keys, now, client).map_err(Refused::Failed);
        }
        let (digest, wall) = (Digest::of(token), Clock::wall_millis());
        let found = self.cache().map(|cache| cache.lock().find(&digest, now, wall));
        match found {
            Some(Found::Good(subject)) => {
                self.metrics.cached.inc();
                Ok(subject)
            }
            Some(Found::Stale) => Err(self.stale().into()),
            _ => self.verify(token, digest, (now, wall), client, may_wait),
        }
    }

    /// Whom an API key names. A bad one is cheaper to check than to count, and counts like a bad token.
    fn key(
        &self,
        text: &[u8],
        keys: Option<&ApiKeys>,
        now: Mono,
        client: Option<&str>,
    ) -> Result<Arc<Subject>, Failure> {
        let checked = keys.ok_or(BadKey::Unknown).and_then(|keys| keys.check(text, Clock::wall_millis()));
        let bad = match checked {
            Ok(subject) => {
                self.metrics.key.inc();
                return Ok(subject);
            }
            Err(bad) => bad,
        };
        if let Some(client) = address(client) {
            self.admit(now, client)?;
            self.bad.lock().bad(now, client);
        }
        self.metrics.bad_key.inc();
        let words = match bad {
            BadKey::Unknown => "there is no such key",
            BadKey::Expired => "the key has expired",
        };
        Err(Failure::new(FailureKind::Unauthenticated, words))
    }

    /// Whether a client may try to prove who it is with an API key or a refresh token.
    ///
    /// # Errors
    /// `rate_limited`.
    pub fn may_try(&self, now: Mono, client: Option<&str>) -> Result<(), Failure> {
        address(client).map_or(Ok(()), |client| self.admit(now, client))
    }

    /// It has not.
    pub fn failed(&self, now: Mono, client: Option<&str>) {
        if let Some(client) = address(client) {
            self.bad.lock().bad(now, client);
        }
        self.metrics.bad_key.inc();
    }

    /// Whether this address has not sent too much that proves nobody.
    fn admit(&self, now: Mono, client: IpAddr) -> Result<(), Failure> {
        let admitted = self.bad.lock().admit(now, client);
        admitted.map_err(|wait| {
            self.metrics.limited.inc();
            let why = "too many tokens of this address prove nobody";
            Failure::new(FailureKind::RateLimited, why).retry_in(wait)
        })
    }

    fn cache(&self) -> Option<&Mutex<Cache>> {
        self.caches.get(holdfast_telemetry::part() % self.caches.len().max(1))
    }

    #[cold]
    fn verify(
        &self,
        token: &[u8],
        digest: Digest,
        (now, wall): (Mono, u64),
        client: Option<&str>,
        may_wait: bool,
    ) -> Result<Arc<Subject>, Refused> {
        let client = address(client);
        if let Some(client) = client {
            self.admit(now, client)?;
        }
        match self.check(token, now, wall, may_wait) {
            Ok(proof) => {
                let subject = proof.subject.clone();
                if let Some(cache) = self.cache() {
                    cache.lock().put(digest, proof);
                }
                self.metrics.verified.inc();
                Ok(subject)
            }
            Err(Checked::Waits(issuer)) => Err(Refused::Waits(issuer)),
            Err(Checked::Stale) => Err(self.stale().into()),
            Err(Checked::Bad(reject)) => {
                if let Some(client) = client {
                    self.bad.lock().bad(now, client);
                }
                self.metrics.refused.get(reject.why as usize).inspect(|counter| counter.inc());
                Err(Failure::new(FailureKind::Unauthenticated, reject.words).into())
            }
        }
    }

    fn stale(&self) -> Failure {
        self.metrics.stale.inc();
        Failure::new(FailureKind::IdentityStale, "the keys of the token's issuer have not been fetched for too long")
    }

    fn check(&self, token: &[u8], now: Mono, wall: u64, may_wait: bool) -> Result<Proof, Checked> {
        let token = Compact::parse(token)?;
        let (issuer, all) = claims::read(&token.payload)?;
        if let Some(own) = self.own.as_ref().filter(|own| own.issuer() == issuer) {
            return own.check(TokenKind::Access, &token, &all, wall).map_err(|bad| match bad {
                Bad::Reject(reject) => Checked::Bad(reject),
                Bad::NoKeys => Checked::Stale,
            });
        }
        let issuer = self.issuers.iter().find(|one| *one.config.rules.issuer == *issuer);
        let issuer = issuer.ok_or(Reject::new(Why::Issuer, "the token's issuer is not known"))?;
        // What is over or meant for others is no reason to check a signature, let alone to fetch keys.
        let judged = issuer.config.rules.judge(token.typ.as_deref(), &all, wall);
        let (subject, until) = judged?;
        let key = match issuer.verify(&token, now) {
            Ok(key) => key,
            Err(reject) => {
                let is_settled = !may_wait || !issuer.ask(&token, reject, now);
                return Err(match is_settled {
                    false => Checked::Waits(issuer.clone()),
                    true if reject.is_none() => Checked::Stale,
                    true => {
                        Checked::Bad(reject.unwrap_or(Reject::new(Why::UnknownKey, "the token's key is not known")))
                    }
                });
            }
        };
        Ok(Proof { subject: Arc::new(subject), until, key })
    }
}

fn address(client: Option<&str>) -> Option<IpAddr> {
    client?.parse::<SocketAddr>().ok().map(|peer| peer.ip())
}

/// What a check ends with.
enum Checked {
    Bad(Reject),
    /// The issuer's keys are too old.
    Stale,
    Waits(Arc<Issuer>),
}

impl From<Reject> for Checked {
    fn from(reject: Reject) -> Self {
        Self::Bad(reject)
    }
}

/// The token of a request (RFC 6750, 2.1): one field, the scheme in any case, one space or more.
fn bearer(fields: &HeaderMap) -> Result<&[u8], &'static str> {
    let mut values = fields.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(NO_TOKEN)?.as_bytes();
    if values.next().is_some() {
        return Err("the request brings more than one credential");
    }
    let (scheme, token) = value.split_at_checked(7).ok_or(NO_TOKEN)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return Err(NO_TOKEN);
    }
    Ok(token.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn one_bearer_token_or_none() {
        let read = |values: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for value in values {
                fields.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&fields).map(|token| String::from_utf8_lossy(token).into_owned())
        };
        for good in ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c"] {
            assert_eq!(read(&[good]).as_deref(), Ok("a.b.c"), "{good}");
        }
        for bad in
            [&[][..], &[""], &["a.b.c"], &["Bearer"], &["Basic a.b.c"], &["Bearera.b.c"], &["Bearer a", "Bearer a"]]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
