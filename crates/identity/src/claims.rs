//! What the claims of a token must be (RFC 7519, 4.1), and whom they name.

use std::sync::Arc;

use holdfast_types::TenantId;
use serde_json::{Map, Value};

use crate::date::{Round, millis};
use crate::json;
use crate::reject::{Reject, Why};

/// Where a claim is: the name of a member as it is, or, from `/` on, a JSON Pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

/// A claim that targets may look at: how they call it, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// As the configuration writes it.
    pub name: Box<str>,
    /// Where it is.
    pub at: Pointer,
}

impl Shown {
    /// Reads one. None: it is no [`Pointer`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self { name: text.into(), at: Pointer::parse(text)? })
    }

    /// What a token says there, as a text. None: nothing, or what is no short text, whole number or truth value.
    fn said(&self, claims: &Map<String, Value>) -> Option<(Box<str>, Box<str>)> {
        let text: Box<str> = match self.at.find(claims)? {
            Value::String(text) => text.as_str().into(),
            Value::Number(number) if !number.is_f64() => number.to_string().into(),
            Value::Bool(value) => if *value { "true" } else { "false" }.into(),
            _ => return None,
        };
        (text.len() <= NAME).then(|| (self.name.clone(), text))
    }
}

impl Pointer {
    /// Reads one. None: it is empty, or its escapes are not those of a pointer.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Some(rest) = text.strip_prefix('/') else { return (!text.is_empty()).then(|| Self(vec![text.to_owned()])) };
        let unescape = |part: &str| {
            let strays = part.replace("~0", "").replace("~1", "").contains('~');
            (!strays).then(|| part.replace("~1", "/").replace("~0", "~"))
        };
        rest.split('/').map(unescape).collect::<Option<_>>().map(Self)
    }

    fn find<'c>(&self, claims: &'c Map<String, Value>) -> Option<&'c Value> {
        let (first, rest) = self.0.split_first()?;
        let found = rest.iter().try_fold(claims.get(first)?, |value, name| value.as_object()?.get(name));
        found.filter(|value| !value.is_null())
    }
}

/// Which tenant a token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantFrom {
    /// The one that a claim names.
    Claim(Pointer),
    /// Always this one.
    Fixed(TenantId),
}

/// What tokens of one issuer must be. All of it comes from configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The issuer, to the letter.
    pub issuer: Arc<str>,
    /// Whom tokens must be meant for: one of these. Empty: it is not looked at.
    pub audiences: Vec<String>,
    /// How far clocks may be apart, in milliseconds.
    pub leeway: i64,
    /// What must be there, beside `exp`.
    pub required: Vec<Pointer>,
    /// What kind of token it must say to be (`typ`); empty: it is not looked at.
    pub types: Vec<String>,
    /// Which tenant.
    pub tenant: TenantFrom,
    /// The tenants that the issuer speaks for. Empty: all.
    pub tenants: Vec<TenantId>,
    /// Which user.
    pub user: Option<Pointer>,
    /// Under which plan.
    pub plan: Option<Pointer>,
    /// The plans that a token may choose for its user.
    pub plans: Vec<Box<str>>,
    /// On which device.
    pub device: Option<Pointer>,
    /// For what: a text with spaces between (RFC 8693, 4.2), or a list.
    pub scopes: Option<Pointer>,
    /// What else targets may look at.
    pub shown: Vec<Shown>,
}

/// Whom a token names. Proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Who says so.
    pub issuer: Arc<str>,
    /// The tenant.
    pub tenant: TenantId,
    /// The user, byte by byte as the issuer writes it.
    pub user: Option<Box<str>>,
    /// The plan.
    pub plan: Option<Box<str>>,
    /// Whether that plan chooses the limits of the user; else it is only shown.
    pub chooses: bool,
    /// The device.
    pub device: Option<Box<str>>,
    /// The scopes it was given. By themselves they allow and refuse nothing.
    pub scopes: Box<[Box<str>]>,
    /// Claims that targets may look at, by the names that the configuration gives them.
    pub shown: Box<[(Box<str>, Box<str>)]>,
}

impl Subject {
    /// What its token says of a claim that targets may look at.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.shown.iter().find(|(one, _)| **one == *name).map(|(_, value)| &**value)
    }

    /// The plan whose limits are the user's, if it chooses one.
    #[must_use]
    pub fn chosen(&self) -> Option<&str> {
        self.plan.as_deref().filter(|_| self.chooses)
    }

    /// Whether it has this scope.
    #[must_use]
    pub fn may(&self, scope: &str) -> bool {
        self.scopes.iter().any(|one| **one == *scope)
    }
}

/// The longest name of a user, plan, device or scope, in bytes.
pub const NAME: usize = 256;
/// The most scopes of one token.
pub const SCOPES: usize = 64;

/// The issuer that a payload claims to be of, and its claims. Believed in nothing yet.
///
/// # Errors
/// `Malformed`, or `Issuer` if it names none.
pub fn read(payload: &[u8]) -> Result<(String, Map<String, Value>), Reject> {
    let claims = json::object(payload).ok_or(Reject::malformed("the token's claims are no JSON object"))?;
    match claims.get("iss").and_then(Value::as_str) {
        Some(issuer) => Ok((issuer.to_owned(), claims)),
        None => Err(Reject::new(Why::Issuer, "the token names no issuer")),
    }
}

impl Rules {
    /// Whom the claims of a token name whose signature is good, and until when, in milliseconds since 1970.
    ///
    /// # Errors
    /// Whatever rule they break first.
    pub fn judge(&self, typ: Option<&str>, claims: &Map<String, Value>, now: u64) -> Result<(Subject, u64), Reject> {
        if claims.get("iss").and_then(Value::as_str) != Some(&*self.issuer) {
            return Err(Reject::new(Why::Issuer, "the token's issuer is not known"));
        }
        if !self.types.is_empty() && !typ.is_some_and(|typ| self.types.iter().any(|one| is_type(one, typ))) {
            return Err(Reject::new(Why::Claims, "the token is not of the right type"));
        }
        let until = self.check_times(claims, i64::try_from(now).unwrap_or(i64::MAX))?;
        self.check_audience(claims)?;
        if self.required.iter().any(|claim| claim.find(claims).is_none()) {
            return Err(Reject::new(Why::Claims, "a claim that the token must have is missing"));
        }
        let plan = name(self.plan.as_ref(), claims)?;
        let subject = Subject {
            chooses: plan.as_ref().is_some_and(|plan| self.plans.contains(plan)),
            issuer: self.issuer.clone(),
            tenant: self.tenant(claims)?,
            user: name(self.user.as_ref(), claims)?,
            plan,
            device: name(self.device.as_ref(), claims)?,
            scopes: scopes(self.scopes.as_ref(), claims)?,
            shown: self.shown.iter().filter_map(|one| one.said(claims)).collect(),
        };
        Ok((subject, until))
    }

    fn check_times(&self, claims: &Map<String, Value>, now: i64) -> Result<u64, Reject> {
        let date = |name: &str, round| match claims.get(name) {
            None => Ok(None),
            Some(value) => millis(value, round)
                .map(Some)
                .ok_or(Reject::new(Why::Claims, "a time in the token is no number of seconds")),
        };
        let exp = date("exp", Round::Down)?.ok_or(Reject::new(Why::Claims, "the token has no end (exp)"))?;
        let until = exp.saturating_add(self.leeway);
        if now >= until {
            return Err(Reject::new(Why::Expired, "the token has expired"));
        }
        let latest = now.saturating_add(self.leeway);
        if date("nbf", Round::Up)?.is_some_and(|from| from > latest) {
            return Err(Reject::new(Why::NotYet, "the token is not valid yet"));
        }
        if date("iat", Round::Up)?.is_some_and(|issued| issued > latest) {
            return Err(Reject::new(Why::NotYet, "the token was issued in the future"));
        }
        Ok(u64::try_from(until).unwrap_or(0))
    }

    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), Reject> {
        let is_ours = |one: &Value| one.as_str().is_some_and(|one| self.audiences.iter().any(|ours| ours == one));
        let is_for_us = match claims.get("aud") {
            _ if self.audiences.is_empty() => true,
            Some(Value::Array(all)) => all.iter().all(Value::is_string) && all.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        };
        if is_for_us { Ok(()) } else { Err(Reject::new(Why::Audience, "the token is meant for somebody else")) }
    }

    fn tenant(&self, claims: &Map<String, Value>) -> Result<TenantId, Reject> {
        let claim = match &self.tenant {
            TenantFrom::Fixed(tenant) => return Ok(tenant.clone()),
            TenantFrom::Claim(claim) => claim,
        };
        let named = claim.find(claims).and_then(Value::as_str);
        let tenant = named.and_then(|text| TenantId::parse(text).ok());
        let tenant = tenant.ok_or(Reject::new(Why::Tenant, "the token names no tenant"))?;
        if self.tenants.is_empty() || self.tenants.contains(&tenant) {
            return Ok(tenant);
        }
        Err(Reject::new(Why::Tenant, "the token's issuer does not speak for its tenant"))
    }
}

/// RFC 7515, 4.1.9: `application/` may be left out, and case does not count.
fn is_type(wanted: &str, said: &str) -> bool {
    let short = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.strip_prefix("application/").map_or(text.clone(), str::to_owned)
    };
    short(wanted) == short(said)
}

/// A name in a claim. A number is taken as it is written, for issuers that number their users.
fn name(claim: Option<&Pointer>, claims: &Map<String, Value>) -> Result<Option<Box<str>>, Reject> {
    let Some(value) = claim.and_then(|claim| claim.find(claims)) else { return Ok(None) };
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if !number.is_f64() => number.to_string(),
        _ => return Err(Reject::new(Why::Claims, "a name in the token is no text")),
    };
    if is_name(&text) {
        Ok(Some(text.into()))
    } else {
        Err(Reject::new(Why::Claims, "a name in the token is too long, or empty, or cannot be read"))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME && !text.contains(char::is_control) && text.trim() == text
}

fn scopes(claim: Option<&Pointer>, claims: &Map<String, Value>) -> Result<Box<[Box<str>]>, Reject> {
    let bad = Reject::new(Why::Claims, "the token's scopes are no list of names");
    let all: Vec<&str> = match claim.and_then(|claim| claim.find(claims)) {
        None => Vec::new(),
        Some(Value::String(text)) => text.split(' ').filter(|one| !one.is_empty()).collect(),
        Some(Value::Array(all)) => all.iter().map(Value::as_str).collect::<Option<_>>().ok_or(bad)?,
        Some(_) => return Err(bad),
    };
    if all.len() > SCOPES || !all.iter().all(|one| is_name(one)) {
        return Err(bad);
    }
    Ok(all.into_iter().map(Into::into).collect())
}
