//! Tokens of the gateways' own: checked with keys that are here, as those of any issuer, and given for API keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::{Map, Value};

use holdfast_config::OwnTokens;
use holdfast_identity::api_key::MARK;
use holdfast_identity::issuing::mint::Kind;
use holdfast_identity::issuing::{State, What};
use holdfast_identity::{Algorithm, Compact, KeySet, Pointer, Proof, Reject, Rules, Source, Subject, TenantFrom, Why};
use holdfast_plane::TokenState;
use holdfast_types::Mono;

/// How far clocks of gateways may be apart, in milliseconds.
const LEEWAY: i64 = 30_000;

/// The keys that a process holds, over all configurations.
#[derive(Default)]
pub struct OwnKeys(RwLock<Arc<Held>>);

/// Keys, and what was revoked.
#[derive(Default)]
pub struct Held {
    /// As it was told.
    pub state: State,
    set: KeySet,
    tokens: BTreeSet<String>,
    /// Until when tokens of a key are revoked, in milliseconds since 1970.
    keys: BTreeMap<String, u64>,
}

impl OwnKeys {
    /// What is held now.
    pub fn held(&self) -> Arc<Held> {
        self.0.read().clone()
    }

    /// Takes what the control plane tells, if it is later than what is held. Every token that was verified is verified anew: so nothing has to be
    /// compared with what was revoked when a token is found in a cache.
    pub fn take(&self, told: &TokenState) {
        if told.stamp <= self.held().state.stamp {
            return;
        }
        let Some(state) = State::read(&told.content) else {
            tracing::error!(stamp = told.stamp, "keys for tokens cannot be read; those that are held stay");
            return;
        };
        let held = Held::new(state);
        let before = std::mem::replace(&mut *self.0.write(), Arc::new(held));
        before.set.keys().iter().for_each(|key| key.go());
        tracing::info!(stamp = told.stamp, keys = self.held().state.keys.len(), "keys for tokens have come");
    }
}

impl Held {
    fn new(state: State) -> Self {
        let source = Arc::new(Source::default());
        source.set_usable_until(Mono(u64::MAX));
        let read = KeySet::read(state.jwks(0).as_bytes(), &[Algorithm::EdDsa], &source, None);
        let set = read.map(|(set, _)| set).unwrap_or_default();
        let (mut tokens, mut keys) = (BTreeSet::new(), BTreeMap::new());
        for revoked in &state.revoked {
            match &revoked.what {
                What::Token(jti) => drop(tokens.insert(jti.clone())),
                What::Key(prefix) => {
                    let before = keys.entry(prefix.clone()).or_insert(0);
                    *before = revoked.before.max(*before);
                }
            }
        }
        Self { state, set, tokens, keys }
    }

    fn is_revoked(&self, claims: &Map<String, Value>) -> bool {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        let issued = claims.get("iat").and_then(Value::as_u64).unwrap_or(0).saturating_mul(1_000);
        let of_key = text("client_id").strip_prefix(MARK).and_then(|prefix| self.keys.get(prefix));
        self.tokens.contains(text("jti")) || of_key.is_some_and(|before| issued <= *before)
    }
}

/// What checks tokens of the gateways' own, by one configuration.
pub struct Own {
    /// The section.
    pub config: OwnTokens,
    access: Rules,
    refresh: Rules,
    /// The keys.
    pub keys: Arc<OwnKeys>,
}

/// Why a token is not good.
pub enum Bad {
    /// This.
    Reject(Reject),
    /// There are no keys here yet.
    NoKeys,
}

impl From<Reject> for Bad {
    fn from(reject: Reject) -> Self {
        Self::Reject(reject)
    }
}

impl Own {
    /// By this section, with these keys.
    pub fn new(config: OwnTokens, keys: Arc<OwnKeys>) -> Option<Self> {
        let (access, refresh) = (rules(&config, Kind::Access)?, rules(&config, Kind::Refresh)?);
        Some(Self { config, access, refresh, keys })
    }

    /// Their claim `iss`.
    pub fn issuer(&self) -> &str {
        &self.access.issuer
    }

    /// Whom a token names, and until when; with what else it claims.
    ///
    /// # Errors
    /// Why it is not good.
    pub fn check(&self, kind: Kind, token: &Compact<'_>, claims: &Map<String, Value>, wall: u64) -> Result<Proof, Bad> {
        let rules = if kind == Kind::Access { &self.access } else { &self.refresh };
        let (subject, until) = rules.judge(token.typ.as_deref(), claims, wall)?;
        let held = self.keys.held();
        if held.state.keys.is_empty() {
            return Err(Bad::NoKeys);
        }
        let key = held.set.verify(token)?.clone();
        if held.is_revoked(claims) {
            return Err(Reject::new(Why::Revoked, "the token was revoked").into());
        }
        // Whoever makes API keys decides about limits, too.
        let subject = Subject { chooses: subject.plan.is_some(), ..subject };
        Ok(Proof { subject: Arc::new(subject), until, key })
    }
}

fn rules(config: &OwnTokens, kind: Kind) -> Option<Rules> {
    let claim = |name: &str| Pointer::parse(name);
    Some(Rules {
        issuer: config.issuer.as_deref().unwrap_or_default().into(),
        audiences: vec![config.audience.to_string()],
        leeway: LEEWAY,
        required: ["jti", "iat", "client_id"].iter().filter_map(|name| claim(name)).collect(),
        types: vec![kind.typ().to_owned()],
        tenant: TenantFrom::Claim(claim("tenant")?),
        tenants: Vec::new(),
        user: claim("user"),
        plan: claim("plan"),
        plans: Vec::new(),
        device: None,
        scopes: claim("scope"),
        shown: Vec::new(),
    })
}
