//! Identify: whose request is it? A signed token names the tenant; or the configured header does, on a listener where it is trusted. Nothing else that
//! a client sends.

use std::sync::Arc;

use http::HeaderMap;

use holdfast_identity::Subject;
use holdfast_net::tls::Peer;
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind, Mono, TenantId};

use crate::exchange::Exchange;
use crate::identity::{Certificates, Identity, NO_TOKEN, Refused};
use crate::settings::Settings;

/// Whose request it is.
#[derive(Debug)]
pub enum Who<'h> {
    /// The tenant that the trusted header names.
    Named(&'h str),
    /// Whom a token names.
    Proved(Arc<Subject>),
}

impl Who<'_> {
    /// The tenant.
    pub fn tenant(&self) -> &str {
        match self {
            Self::Named(tenant) => tenant,
            Self::Proved(subject) => subject.tenant.as_str(),
        }
    }
}

/// Whose request it is. `may_wait`: whether it may wait for the keys of its token's issuer.
///
/// # Errors
/// `unauthenticated`, `identity_stale`, `rate_limited`; or that it is to wait.
pub fn identify<'h>(
    headers: &'h HeaderMap,
    settings: &Settings,
    exchange: &Exchange,
    may_wait: bool,
) -> Result<Who<'h>, Refused> {
    let by_token = |identity: &Identity| {
        let (begun, client, keys) = (exchange.begun, exchange.client(), settings.keys.as_deref());
        identity.identify(headers, begun, client, may_wait, keys)
    };
    if let Some(certificates) = &settings.certificates {
        return certified(headers, settings, certificates, exchange.peer.as_deref(), by_token).map(Who::Proved);
    }
    match &settings.identity {
        None => Ok(Who::Named(trusted(headers, settings)?)),
        Some(identity) => by_token(identity).map(Who::Proved),
    }
}

/// Whose request it is where certificates are known: whose its `authorization` says, if it has one, else whose its certificate says.
fn certified(
    headers: &HeaderMap,
    settings: &Settings,
    certificates: &Certificates,
    peer: Option<&Peer>,
    by_token: impl FnOnce(&Identity) -> Result<Arc<Subject>, Refused>,
) -> Result<Arc<Subject>, Refused> {
    let identity = settings.identity.as_ref().filter(|_| headers.contains_key(http::header::AUTHORIZATION));
    match (identity, peer) {
        (Some(identity), _) => by_token(identity),
        (None, Some(peer)) => Ok(certificates.subject(peer, Clock::wall_millis() / 1_000)?),
        (None, None) => Err(Failure::new(FailureKind::Unauthenticated, NO_TOKEN).into()),
    }
}

/// Whom a credential names that was good before: its time may be over, its key may have been taken away. Not counted against its address, since whoever keeps
/// a socket open does not try.
///
/// # Errors
/// As [`identify`].
pub fn again(
    headers: &HeaderMap,
    settings: &Settings,
    peer: Option<&Peer>,
    now: Mono,
) -> Result<Option<Arc<Subject>>, Refused> {
    let by_token = |identity: &Identity| identity.identify(headers, now, None, true, settings.keys.as_deref());
    match (&settings.certificates, &settings.identity) {
        (Some(certificates), _) => certified(headers, settings, certificates, peer, by_token).map(Some),
        (None, Some(identity)) => by_token(identity).map(Some),
        (None, None) => Ok(trusted(headers, settings).map(|_| None)?),
    }
}

/// Whose request it is, as it is known already: whom a token or a certificate has proved, or else whom the trusted header names.
///
/// # Errors
/// `unauthenticated`.
pub fn as_known<'h>(
    headers: &'h HeaderMap,
    settings: &Settings,
    subject: Option<&Arc<Subject>>,
) -> Result<Who<'h>, Failure> {
    match subject {
        Some(subject) => Ok(Who::Proved(subject.clone())),
        None => trusted(headers, settings).map(Who::Named),
    }
}

/// The tenant that the trusted header names.
fn trusted<'h>(headers: &'h HeaderMap, settings: &Settings) -> Result<&'h str, Failure> {
    let refuse = |why: &'static str| Failure::new(FailureKind::Unauthenticated, why);
    let Some(name) = &settings.trusted_header else {
        return Err(refuse("no way to authenticate is configured"));
    };
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| refuse("the request names no tenant"))?;
    if values.next().is_some() {
        return Err(refuse("the request names its tenant more than once"));
    }
    let tenant = value.to_str().map_err(|_| refuse("the tenant's name is not an id"))?;
    TenantId::check(tenant).map_err(|_| refuse("the tenant's name is not an id"))?;
    Ok(tenant)
}

/// The user that the token names, or else the trusted header; the empty name if neither does, so that all who hide their name share one. None: users are
/// not known here.
///
/// # Errors
/// `unauthenticated`: it comes more than once, is empty or longer than 256 bytes, or has characters other than visible ASCII, whose forms could be several.
pub fn user<'h>(
    headers: &'h HeaderMap,
    settings: &Settings,
    subject: Option<&'h Subject>,
) -> Result<Option<&'h [u8]>, Failure> {
    if let Some(subject) = subject {
        return Ok(Some(subject.user.as_deref().unwrap_or_default().as_bytes()));
    }
    let Some(name) = &settings.trusted_user_header else { return Ok(None) };
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(Some(b"")) };
    let user = value.as_bytes();
    let good = (1..=LONGEST_USER).contains(&user.len()) && user.iter().all(u8::is_ascii_graphic);
    if !good || values.next().is_some() {
        return Err(Failure::new(
            FailureKind::Unauthenticated,
            "the user's name is not 1 to 256 visible characters, once",
        ));
    }
    Ok(Some(user))
}

const LONGEST_USER: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn settings() -> Settings {
        let config = holdfast_config::Config {
            auth: Some(holdfast_config::Auth { trusted_header: Some("x-tenant".into()), ..Default::default() }),
            ..holdfast_config::Config::default()
        };
        Settings::new(&config)
    }

    #[test]
    fn a_token_names_the_user_and_no_header_beside_it_does() {
        let mut settings = settings();
        settings.trusted_user_header = Some(HeaderName::from_static("x-user"));
        let mut fields = HeaderMap::new();
        assert_eq!(user(&fields, &settings, None), Ok(Some(&b""[..])));
        fields.insert("x-user", HeaderValue::from_static("bob"));
        assert_eq!(user(&fields, &settings, None), Ok(Some(&b"bob"[..])));
        let subject = |user: Option<&str>| Subject {
            issuer: "https://issuer".into(),
            tenant: TenantId::parse("acme").unwrap(),
            user: user.map(Into::into),
            plan: None,
            chooses: false,
            device: None,
            shown: Box::default(),
            scopes: Box::default(),
        };
        assert_eq!(user(&fields, &settings, Some(&subject(Some("ann")))), Ok(Some(&b"ann"[..])));
        assert_eq!(user(&fields, &settings, Some(&subject(None))), Ok(Some(&b""[..])));
        fields.append("x-user", HeaderValue::from_static("eve"));
        assert!(user(&fields, &settings, None).is_err());
    }

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(HeaderName::from_static("x-tenant"), HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    #[test]
    fn one_well_formed_name_or_nobody() {
        let (good, trusting) = (headers(&[b"acme"]), settings());
        assert_eq!(trusted(&good, &trusting), Ok("acme"));
        for bad in [
            &[][..],
            &[b"".as_slice()],
            &[b" "],
            &[b"acme", b"acme"],
            &[b"acme", b"globex"],
            &[b"acme,globex"],
            &[b"caf\xc3\xa9"],
            &[b"acme "],
            &[b"../acme"],
        ] {
            let (headers, settings) = (headers(bad), settings());
            let refused = trusted(&headers, &settings);
            assert_eq!(refused.map_err(|f| f.kind), Err(FailureKind::Unauthenticated), "{bad:?}");
        }
        let nobody = Settings::new(&holdfast_config::Config::default());
        assert!(trusted(&headers(&[b"acme"]), &nobody).is_err());
    }
}
