//! One submission, one resolution (PIN-2), over retries by the client: the route token that it may bring, and the ledger of submissions that have a key.
//!
//! | file | what |
//! |---|---|
//! | `tokens` | the secrets, and what a token is as a header |
//! | `ledger` | the way to the ledger, a file or a store, and what is remembered of it |
//! | `memory` | the bounded memory of it |
//! | `counted` | what became of submissions, among the metrics |
//!
//! The rules are `holdfast_submission`'s; where they meet a request is `stage::submission`. Where neither is configured there is no value of this type, and a
//! request asks one option.

mod counted;
mod ledger;
mod memory;
mod tokens;

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use holdfast_config::{Config, LedgerFailure};
use holdfast_net::Tasks;
use holdfast_submission::{Key, OnFailure};
use holdfast_telemetry::Registry;
use holdfast_types::{Failure, FailureKind};

pub use counted::Counted;
pub use ledger::Ledger;
pub use tokens::Tokens;

/// See the module.
pub struct Submissions {
    /// Gives and takes route tokens. None: neither.
    pub tokens: Option<Tokens>,
    /// Keeps what keys lead to. None: keys mean nothing.
    pub ledger: Option<Arc<Ledger>>,
    /// What the ledger's silence means.
    pub on_failure: OnFailure,
    header: HeaderName,
    /// What became of submissions.
    pub counted: Counted,
}

impl Submissions {
    /// What a configuration asks for.
    ///
    /// # Errors
    /// Secrets or the ledger's file cannot be used, in words.
    pub fn open(config: &Config, registry: &Registry) -> Result<Option<Arc<Self>>, String> {
        let (token, ledger) = (&config.route_token, &config.ledger);
        if token.is_none() && ledger.is_none() {
            return Ok(None);
        }
        let tokens = token.as_ref().map(|token| Tokens::open(token, &config.state)).transpose()?;
        let header = ledger.as_ref().and_then(|ledger| HeaderName::from_bytes(ledger.header.as_bytes()).ok());
        let on_failure = match ledger.as_ref().map(|ledger| ledger.on_failure) {
            Some(LedgerFailure::Decide) => OnFailure::Decide,
            _ => OnFailure::Refuse,
        };
        let ledger = ledger.as_ref().map(|ledger| Ledger::open(ledger, &config.state)).transpose()?.map(Arc::new);
        let counted = Counted::register(registry, ledger.as_ref());
        let header = header.unwrap_or(crate::headers::IDEMPOTENCY_KEY);
        Ok(Some(Arc::new(Self { tokens, ledger, on_failure, header, counted })))
    }

    /// Keeps the way to the store and looks at the secrets' file, until the process ends.
    pub fn run(self: &Arc<Self>, tasks: &Tasks) {
        if let Some(ledger) = &self.ledger {
            tasks.spawn(ledger.clone().run());
        }
        let me = self.clone();
        tasks.spawn(async move {
            match &me.tokens {
                Some(tokens) => tokens.watch().await,
                None => std::future::pending().await,
            }
        });
    }

    /// Whether a request with these fields may have been resolved before.
    pub fn may_know(&self, fields: &HeaderMap) -> bool {
        (self.tokens.is_some() && fields.contains_key(crate::headers::ROUTE))
            || (self.ledger.is_some() && fields.contains_key(&self.header))
    }

    /// The submission's key, if it has one and there is a ledger.
    ///
    /// # Errors
    /// `bad_request`: it is there more than once, or is no key.
    pub fn key(&self, fields: &HeaderMap, tenant: &str, user: &[u8]) -> Result<Option<Key>, Failure> {
        if self.ledger.is_none() {
            return Ok(None);
        }
        let mut values = fields.get_all(&self.header).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let key = Key::new(tenant, user, value.as_bytes());
        match (key, values.next()) {
            (Ok(key), None) => Ok(Some(key)),
            _ => {
                let why = format!("{} is not 1 to 256 visible ASCII characters, once", self.header);
                Err(Failure::new(FailureKind::BadRequest, why))
            }
        }
    }
}
