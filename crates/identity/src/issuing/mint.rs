//! Tokens are made here: access tokens (RFC 9068) and refresh tokens, which are tokens of another type, so that neither passes for the other.

use serde_json::{Value, json};

use super::{MARGIN, SigningKey};
use crate::base64;

/// What kind of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Proves a tenant.
    Access,
    /// Gets access tokens.
    Refresh,
}

impl Kind {
    /// The header's `typ`.
    #[must_use]
    pub const fn typ(self) -> &'static str {
        match self {
            Self::Access => "at+jwt",
            Self::Refresh => "holdfast-refresh+jwt",
        }
    }
}

/// What is granted.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'g> {
    /// The tenant.
    pub tenant: &'g str,
    /// The prefix of the API key.
    pub client: &'g str,
    /// A part of that key's hash: another key under the same prefix is another one.
    pub tag: &'g str,
    /// The user.
    pub user: Option<&'g str>,
    /// The plan.
    pub plan: Option<&'g str>,
    /// The scopes.
    pub scopes: &'g [Box<str>],
}

/// Who makes it, when, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'m> {
    /// `iss`.
    pub issuer: &'m str,
    /// `aud`.
    pub audience: &'m str,
    /// How long it is to live, in milliseconds; a key may allow less.
    pub life: u64,
    /// Milliseconds since 1970.
    pub now: u64,
    /// Its own name. Random.
    pub jti: &'m str,
}

/// A token.
#[derive(Clone, Debug)]
pub struct Made {
    /// As it is sent.
    pub token: String,
    /// When it ends, in milliseconds since 1970: whole seconds.
    pub ends: u64,
}

/// Makes one. `None`: the key cannot be used, or has no time left.
#[must_use]
pub fn make(key: &SigningKey, kind: Kind, grant: &Grant<'_>, maker: &Maker<'_>) -> Option<Made> {
    let iat = maker.now / 1_000;
    let longest = maker.now.saturating_add(maker.life.min(key.life));
    let exp = longest.min(key.ends.saturating_sub(MARGIN)) / 1_000;
    if exp <= iat {
        return None;
    }
    let client = format!("{}{}", crate::api_key::MARK, grant.client);
    let mut claims = json!({
        "iss": maker.issuer, "aud": maker.audience, "sub": grant.user.unwrap_or(&client), "client_id": client,
        "tenant": grant.tenant, "iat": iat, "exp": exp, "jti": maker.jti,
    });
    let mut put = |name: &str, value: Option<Value>| value.map(|value| claims[name] = value);
    let scope = (!grant.scopes.is_empty()).then(|| grant.scopes.join(" ").into());
    let _ = (put("user", grant.user.map(Into::into)), put("plan", grant.plan.map(Into::into)), put("scope", scope));
    if kind == Kind::Refresh {
        let _ = put("key_tag", Some(grant.tag.into()));
    }
    let header = json!({ "alg": "EdDSA", "typ": kind.typ(), "kid": key.kid });
    let part = |value: &Value| base64::encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = key.pair()?.sign(signed.as_bytes());
    Some(Made { token: format!("{signed}.{}", base64::encode(signature.as_ref())), ends: exp * 1_000 })
}
