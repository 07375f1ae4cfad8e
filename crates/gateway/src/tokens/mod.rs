//! The authorisation service: tokens for who shows an API key (RFC 6749, 4.4), further ones for who shows a refresh token (RFC 6749, 6), and the keys
//! that they are checked with.
//!
//! Nothing is kept of a token that was given: it says everything itself. What is asked of the network is nothing.

mod form;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, PRAGMA, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use holdfast_identity::api_key::{MARK, Shown};
use holdfast_identity::issuing::mint::{Grant, Kind, Maker, make};
use holdfast_identity::{Compact, Subject, claims};
use holdfast_telemetry::{Clock, Counter, Family, Label, Registry};

use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::identity::{ApiKeys, Bad, Identity, Own};
use crate::settings::Settings;
use crate::stage::finish;
use form::{Asked, Grants};

/// The most bytes of a request for a token: one with the longest token that is looked at.
const MOST: usize = 24 * 1024;
/// How much of a longer one is read, so that its client reads the answer.
const TAKEN: usize = 96 * 1024;
/// How long its body may take.
const WITHIN: Duration = Duration::from_secs(10);

/// A request for a token.
pub struct TokenCall {
    pub exchange: Box<Exchange>,
    pub settings: Arc<Settings>,
    pub fields: HeaderMap,
    pub body: Incoming,
}

/// What came of requests for tokens, counted.
pub struct Given(Family<Counter, 1>);

impl Given {
    /// Shows it.
    pub fn new(registry: &Registry) -> Self {
        const GIVEN: &str =
            "Requests for tokens of the gateways' own, by what came of them: given, or the error of RFC 6749.";
        Self(registry.family("holdfast_tokens_given_total", GIVEN, [Label::closed("outcome")], ()))
    }

    fn count(&self, given: &Result<Value, Refusal>) {
        self.0.get([given.as_ref().map_or_else(|refusal| refusal.error, |_| "given")]).inc();
    }
}

/// Why no token is given (RFC 6749, 5.2).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: &'static str,
    words: &'static str,
}

impl Refusal {
    const fn bad(error: &'static str, words: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error, words }
    }

    const fn client(words: &'static str) -> Self {
        Self { status: StatusCode::UNAUTHORIZED, error: "invalid_client", words }
    }

    const fn later(words: &'static str) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, error: "temporarily_unavailable", words }
    }
}

/// The keys that are published now.
pub fn key_set(exchange: Box<Exchange>, settings: &Settings) -> Response<AnswerBody> {
    let own = settings.identity.as_ref().and_then(|identity| identity.own.as_ref());
    let keys = own.map(|own| own.keys.held().state.jwks(Clock::wall_millis())).unwrap_or_default();
    let mut response = finish::own(exchange, StatusCode::OK, keys);
    // Shorter than the time for which a key is published before it signs.
    let age = own.map_or(0, |own| (own.config.publish.as_secs() / 2).min(300));
    let told = HeaderValue::try_from(format!("public, max-age={age}"));
    response.headers_mut().insert(CACHE_CONTROL, told.unwrap_or(HeaderValue::from_static("no-store")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
    response
}

/// Gives a token, or says why not.
///
/// # Cancel safety
/// Dropping the future settles the exchange.
pub async fn give(call: Box<TokenCall>) -> Response<AnswerBody> {
    let TokenCall { exchange, settings, fields, body } = *call;
    let (Some(identity), Some(keys)) = (&settings.identity, &settings.keys) else {
        return answer(exchange, Err(Refusal::later("no tokens are given here")));
    };
    let (now, lacks) = (exchange.begun, exchange.gateway().lacks_table());
    if let Err(failure) = identity.may_try(now, exchange.client()) {
        return unstored(finish::failed(exchange, &failure));
    }
    let body = match read(&fields, body).await {
        Ok(body) => body,
        Err(refusal) => return answer(exchange, Err(refusal)),
    };
    if lacks {
        return answer(exchange, Err(Refusal::later("this gateway has no routing table yet")));
    }
    let given = form::read(&fields, &body).and_then(|asked| grant(identity, keys, &asked));
    if given.as_ref().is_err_and(|refusal| matches!(refusal.error, "invalid_client" | "invalid_grant")) {
        identity.failed(now, exchange.client());
    }
    answer(exchange, given)
}

async fn read(fields: &HeaderMap, body: Incoming) -> Result<Bytes, Refusal> {
    let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(Refusal::bad("invalid_request", "the body is to be application/x-www-form-urlencoded"));
    }
    match tokio::time::timeout(WITHIN, Limited::new(body, TAKEN).collect())
        .await
        .map(|read| read.map(|body| body.to_bytes()))
    {
        Ok(Ok(body)) if body.len() <= MOST => Ok(body),
        Ok(_) => Err(Refusal::bad("invalid_request", "the body is too long, or has ended too early")),
        Err(_) => Err(Refusal::bad("invalid_request", "the body has taken too long")),
    }
}

/// What is asked, as what is answered.
fn grant(identity: &Identity, keys: &ApiKeys, asked: &Asked) -> Result<Value, Refusal> {
    let Some(own) = &identity.own else { return Err(Refusal::later("no tokens are given here")) };
    let wall = Clock::wall_millis();
    match &asked.grant {
        Grants::ClientCredentials => {
            let prefix = client(keys, asked, wall)?.ok_or(Refusal::client("the client does not say who it is"))?;
            let (subject, tag) = keys.known(&prefix, wall).ok_or(Refusal::client("there is no such client"))?;
            let scopes = scopes(&subject, asked)?;
            let ends = keys.ends(&prefix);
            tokens(own, &subject, (&prefix, &tag), &scopes, wall, Some(ends))
        }
        Grants::Refresh(token) => refreshed(own, keys, asked, token, wall),
    }
}

/// A further access token. The client need not prove who it is, for the token does; if it tries to, that has to be true.
fn refreshed(own: &Own, keys: &ApiKeys, asked: &Asked, token: &str, wall: u64) -> Result<Value, Refusal> {
    const NOT: Refusal = Refusal::bad("invalid_grant", "the refresh token is not good, or not any more");
    let proved = client(keys, asked, wall)?;
    let token = Compact::parse(token.as_bytes()).map_err(|_| NOT)?;
    let (issuer, all) = claims::read(&token.payload).map_err(|_| NOT)?;
    if issuer != own.issuer() {
        return Err(NOT);
    }
    let proof = own.check(Kind::Refresh, &token, &all, wall).map_err(|bad| match bad {
        Bad::Reject(_) => NOT,
        Bad::NoKeys => Refusal::later("there are no keys here yet"),
    })?;
    let text = |name: &str| all.get(name).and_then(Value::as_str).unwrap_or_default();
    let prefix = text("client_id").strip_prefix(MARK).ok_or(NOT)?;
    let (subject, tag) = keys.known(prefix, wall).ok_or(NOT)?;
    // Whose it is says the table, and not what it said when the token was made.
    let is_of_key = tag == text("key_tag") && subject.tenant == proof.subject.tenant;
    if !is_of_key || proved.is_some_and(|proved| proved != prefix) {
        return Err(NOT);
    }
    let wanted = Subject { scopes: proof.subject.scopes.clone(), ..(*subject).clone() };
    let scopes: Vec<Box<str>> = scopes(&wanted, asked)?.into_iter().filter(|scope| subject.may(scope)).collect();
    tokens(own, &subject, (prefix, &tag), &scopes, wall, None)
}

/// The client that the request proves to be of. `None`: it does not try.
fn client(keys: &ApiKeys, asked: &Asked, wall: u64) -> Result<Option<String>, Refusal> {
    const WRONG: Refusal = Refusal::client("the client's id or its secret is wrong");
    let Some((id, secret)) = &asked.client else { return Ok(None) };
    let prefix = id.strip_prefix(MARK).unwrap_or(id);
    let shown = Shown::parse(secret).filter(|shown| shown.prefix == prefix).ok_or(WRONG)?;
    keys.check(secret.as_bytes(), wall).map_err(|_| WRONG)?;
    Ok(Some(shown.prefix.to_owned()))
}

/// The scopes that are granted: those of the key, or the part of them that is asked for.
fn scopes(subject: &Subject, asked: &Asked) -> Result<Vec<Box<str>>, Refusal> {
    let Some(scope) = &asked.scope else { return Ok(subject.scopes.to_vec()) };
    let wanted: Vec<&str> = scope.split(' ').filter(|one| !one.is_empty()).collect();
    match wanted.iter().all(|one| subject.may(one)) {
        true => Ok(wanted.into_iter().map(Into::into).collect()),
        false => Err(Refusal::bad("invalid_scope", "a scope that the API key does not have")),
    }
}

/// An access token; with the end of its API key, a refresh token beside it. Of a refresh token comes no other one, so that a session has an end.
fn tokens(
    own: &Own,
    subject: &Subject,
    (client, tag): (&str, &str),
    scopes: &[Box<str>],
    wall: u64,
    also: Option<Option<u64>>,
) -> Result<Value, Refusal> {
    const NONE: Refusal = Refusal::later("there is no key here that may sign now");
    let held = own.keys.held();
    let key = held.state.signer(wall).ok_or(NONE)?;
    let names = random().ok_or(Refusal::later("the operating system gives no randomness"))?;
    let grant = Grant {
        tenant: subject.tenant.as_str(),
        client,
        tag,
        user: subject.user.as_deref(),
        plan: subject.plan.as_deref(),
        scopes,
    };
    let (issuer, audience) = (own.issuer(), &*own.config.audience);
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let life = millis(own.config.access);
    let access = make(key, Kind::Access, &grant, &Maker { issuer, audience, life, now: wall, jti: &names[..32] });
    let access = access.ok_or(NONE)?;
    let mut given = json!({
        "access_token": access.token, "token_type": "Bearer", "expires_in": access.ends.saturating_sub(wall).div_ceil(1_000),
    });
    if !scopes.is_empty() {
        given["scope"] = scopes.join(" ").into();
    }
    if let Some(ends) = also {
        let life = millis(own.config.refresh).min(ends.map_or(u64::MAX, |ends| ends.saturating_sub(wall)));
        let maker = Maker { issuer, audience, life, now: wall, jti: &names[32..] };
        if let Some(refresh) = make(key, Kind::Refresh, &grant, &maker) {
            given["refresh_token"] = refresh.token.into();
        }
    }
    Ok(given)
}

/// Two names of 128 random bits.
fn random() -> Option<String> {
    let mut bytes = [0_u8; 32];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").ok()?, &mut bytes).ok()?;
    let hex = |mut out: String, byte: &u8| {
        let _ = write!(out, "{byte:02x}");
        out
    };
    Some(bytes.iter().fold(String::new(), hex))
}

fn answer(exchange: Box<Exchange>, given: Result<Value, Refusal>) -> Response<AnswerBody> {
    exchange.gateway().tokens_given.count(&given);
    let refusal = match given {
        Ok(given) => return unstored(finish::own(exchange, StatusCode::OK, given.to_string())),
        Err(refusal) => refusal,
    };
    let told = json!({ "error": refusal.error, "error_description": refusal.words });
    let mut response = finish::own(exchange, refusal.status, told.to_string());
    let fields = response.headers_mut();
    if refusal.status == StatusCode::UNAUTHORIZED {
        fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"holdfast\", charset=\"UTF-8\""));
    }
    if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
        fields.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    unstored(response)
}

/// RFC 6749, 5.1: nobody keeps it on the way.
fn unstored(mut response: Response<AnswerBody>) -> Response<AnswerBody> {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(PRAGMA, HeaderValue::from_static("no-cache"));
    response
}
