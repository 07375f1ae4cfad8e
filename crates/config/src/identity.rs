//! The section `auth`: how a request proves which tenant it is.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_identity::{Algorithm, Pointer, Rules, Shown, TenantFrom};
use holdfast_types::{PlanName, TenantId};
use serde_json::{Value as Json, json};

use crate::certificates::{self, CertificateForm, CertificateName};
use crate::check::Checker;
use crate::compound::{List, Optional, Parsed, Required};
use crate::forms::File;
use crate::kind::{Choice, Flag};
use crate::number::Count;
use crate::path::Path;
use crate::section::{form, section};
use crate::text::{HEADER, PATH, PLAN, TENANT, check_host};
use crate::tokens::{self, OwnTokens};
use crate::units::{DAY, HOUR, MINUTE, millis_to, secs};

/// How a request proves which tenant it is. Without one every request is refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auth {
    /// The header, in lower case, that names the tenant and is believed as it is.
    pub trusted_header: Option<Box<str>>,
    /// The header, in lower case, that names the user and is believed as it is.
    pub trusted_user_header: Option<Box<str>>,
    /// Whether that header is believed on a data listener that is not loopback.
    pub allow_non_loopback: bool,
    /// Who may sign tokens. Their names are unique.
    pub jwt: Vec<JwtIssuer>,
    /// Whether API keys of the table are taken.
    pub keys: bool,
    /// Whose client certificates are.
    pub certificates: Vec<CertificateName>,
    /// Tokens of the gateways' own.
    pub tokens: Option<OwnTokens>,
    /// The scope of a token or API key whose bearer may override the version. None: nobody may.
    pub override_scope: Option<Box<str>>,
    /// How many verified tokens are remembered in all.
    pub cache: u32,
    /// The bound on bad tokens of one address.
    pub bad_tokens: BadTokens,
}

/// An issuer of signed tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtIssuer {
    /// What its tokens must be.
    pub rules: Rules,
    /// The algorithms that it may use. Not empty.
    pub algorithms: Vec<Algorithm>,
    /// Where its keys are.
    pub keys: JwksSource,
    /// From one fetch of the keys to the next.
    pub refresh: Duration,
    /// How old keys may be that are still used.
    pub keep: Duration,
    /// The least time between two fetches that tokens ask for.
    pub cooldown: Duration,
    /// How long a fetch may take.
    pub timeout: Duration,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwksSource {
    /// In a file.
    File(PathBuf),
    /// At a URL. With `https`, who signs the server's certificate: a file, or those whom the system believes.
    Url(JwksUrl, Option<PathBuf>),
}

/// The URL of a key set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JwksUrl {
    /// Whether it is `https`.
    pub is_secure: bool,
    /// A DNS name in lower case, or an IP address.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// The path, with a query if there is one.
    pub path: Box<str>,
}

/// A claim for targets.
const SHOWN: Parsed<Shown> = Parsed {
    want: "the name of a claim, or a JSON Pointer",
    parse: |text| {
        let parsed = Shown::parse(text).filter(|_| text.len() <= 256 && !text.contains(char::is_control));
        parsed.ok_or_else(|| "is no name of a claim and no JSON Pointer".to_owned())
    },
    show: |_| Json::Null,
    pattern: "^.{1,256}$",
};

section! {
    /// How a request proves which tenant it is.
    pub(crate) struct AuthForm {
        /// A header that names the tenant and is believed as it is: for development, and behind a proxy that sets it. Either this, or `jwt` and `keys`.
        trusted_header: Option<Box<str>> = None, Optional(HEADER);
        /// A header that names the user and is believed as it is, under the same conditions. Without it and without tokens nobody's requests are a user's, and limits of users are not applied.
        trusted_user_header: Option<Box<str>> = None, Optional(HEADER);
        /// Whether that header is believed on a data listener that is not loopback.
        allow_non_loopback: bool = false, Flag;
        /// Who signs the tokens that requests bring (`authorization: Bearer`).
        jwt: Vec<JwtForm> = Vec::new(), List { item: form::<JwtForm>(), least: 0 };
        /// Whether the API keys of tenants are taken (`authorization: Bearer hfk_...`).
        keys: bool = false, Flag;
        /// The scope of administrators: a token or API key that has it may name any version of a model, in `x-holdfast-override`. Left out: nobody may.
        override_scope: Option<Box<str>> = None, Optional(TEXT);
        /// Whose the certificates of clients are, by the names in them (`listen.data_tls.clients` says who signs them). A request with an `authorization` header is whose that says.
        certificates: Vec<CertificateForm> = Vec::new(), List { item: form::<CertificateForm>(), least: 0 };
        /// Tokens that the gateways sign themselves, for whoever shows an API key at `/oauth/token`. Left out: there are none, and nothing is at that path.
        tokens: Option<OwnTokens> = None, Optional(form::<OwnTokens>());
        /// How many verified tokens are remembered, in equal parts for the workers.
        cache: u32 = 10_000, Count { least: 16, most: 10_000_000 };
        /// The bound on tokens of one address that prove nobody. It is asked before a signature is checked; tokens that are remembered as good pass it.
        bad_tokens: BadTokens = BadTokens::default(), form::<BadTokens>();
    }
}

section! {
    /// The bound on tokens of one address that prove nobody.
    pub struct BadTokens {
        /// So many a second. Zero: there is no bound.
        rate: u32 = 10, Count { least: 0, most: 1_000_000 };
        /// So many at once.
        burst: u32 = 100, Count { least: 1, most: 1_000_000 };
    }
}

section! {
    /// Who signs tokens.
    pub(crate) struct JwtForm {
        /// The claim `iss` of its tokens, to the letter.
        issuer: Option<Box<str>> = None, Required(TEXT);
        /// Where its keys are published (RFC 7517): https://HOST/PATH. Redirects are not followed. Either this or `jwks_file`.
        jwks_url: Option<JwksUrl> = None, Optional(JWKS_URL);
        /// A file with its keys. It is looked at again like a URL, and with each reload.
        jwks_file: Option<PathBuf> = None, Optional(PATH);
        /// Who signs the certificate of `jwks_url`, in PEM. Left out: whom the system believes.
        authorities: Option<PathBuf> = None, Optional(PATH);
        /// The algorithms that its tokens may use, as far as they are those of the key.
        algorithms: Option<Vec<Option<Algorithm>>> = None, Required(List { item: Optional(ALGORITHM), least: 1 });
        /// Whom tokens must be meant for (`aud`): one of these. An empty list: it is not looked at.
        audiences: Option<Vec<Box<str>>> = None, Required(List { item: TEXT, least: 0 });
        /// The tenant of all its tokens. Either this or `claims.tenant`.
        tenant: Option<TenantId> = None, Optional(TENANT);
        /// The tenants that it speaks for; a token of another one is refused. Left out: all of them.
        tenants: Vec<Option<TenantId>> = Vec::new(), List { item: Optional(TENANT), least: 0 };
        /// The plans that its tokens may choose for their user by `claims.plan`. Left out: none, and the claim is only shown in receipts.
        plans: Vec<Option<PlanName>> = Vec::new(), List { item: Optional(PLAN), least: 0 };
        /// Which claim says what: its name, or from `/` on a JSON Pointer (RFC 6901).
        claims: ClaimsForm = ClaimsForm::default(), form::<ClaimsForm>();
        /// Claims that targets of experiments and rules may look at, as `claim:NAME` with the name as it is written here: a text, a whole number, or true or false.
        shown: Vec<Option<Shown>> = Vec::new(), List { item: Optional(SHOWN), least: 0 };
        /// Claims that must be there, beside `exp`.
        required: Vec<Option<Pointer>> = Vec::new(), List { item: Optional(CLAIM), least: 0 };
        /// What kind of token it must say to be (`typ`): one of these, such as at+jwt. Left out: it is not looked at.
        types: Vec<Box<str>> = Vec::new(), List { item: TEXT, least: 0 };
        /// How far the issuer's clock and this one may be apart.
        leeway: Duration = secs(30), millis_to(0, 5 * MINUTE);
        /// From one fetch of the keys to the next, at most.
        refresh: Duration = secs(300), millis_to(1_000, DAY);
        /// How old keys may be that are still used, if the issuer is away.
        keep: Duration = secs(86_400), millis_to(1_000, 30 * DAY);
        /// The least time between two fetches that tokens with unknown keys ask for.
        cooldown: Duration = secs(30), millis_to(1_000, HOUR);
        /// How long a fetch may take, and how long a token with an unknown key waits for one.
        timeout: Duration = secs(5), millis_to(100, MINUTE);
    }
}

section! {
    /// Which claim says what.
    pub(crate) struct ClaimsForm {
        /// The tenant.
        tenant: Option<Pointer> = None, Optional(CLAIM);
        /// The user. The default is `sub`.
        user: Option<Pointer> = None, Optional(CLAIM);
        /// The plan, one of `plans`.
        plan: Option<Pointer> = None, Optional(CLAIM);
        /// The device.
        device: Option<Pointer> = None, Optional(CLAIM);
        /// The scopes: a text with spaces between them, or a list. The default is `scope`.
        scopes: Option<Pointer> = None, Optional(CLAIM);
    }
}

const ALGORITHM: Choice<Algorithm> = Choice(&[
    ("RS256", Algorithm::Rs256),
    ("RS384", Algorithm::Rs384),
    ("RS512", Algorithm::Rs512),
    ("PS256", Algorithm::Ps256),
    ("PS384", Algorithm::Ps384),
    ("PS512", Algorithm::Ps512),
    ("ES256", Algorithm::Es256),
    ("ES384", Algorithm::Es384),
    ("ES512", Algorithm::Es512),
    ("EdDSA", Algorithm::EdDsa),
]);

pub(crate) const TEXT: Parsed<Box<str>> =
    Parsed { want: "a text", parse: plain, show: |text| json!(text), pattern: "^[^\\s]{1,512}$" };

fn plain(text: &str) -> Result<Box<str>, String> {
    match text {
        "" => Err("is empty".to_owned()),
        _ if text.len() > 512 => Err("is longer than 512 bytes".to_owned()),
        _ if text.contains(|c: char| c.is_whitespace() || c.is_control()) => Err("has white space in it".to_owned()),
        _ => Ok(text.into()),
    }
}

const CLAIM: Parsed<Pointer> = Parsed {
    want: "the name of a claim, or a JSON Pointer such as /app/tenant",
    parse: |text| Pointer::parse(text).ok_or_else(|| "is neither the name of a claim nor a JSON Pointer".to_owned()),
    show: |_| Json::Null,
    pattern: "",
};

const JWKS_URL: Parsed<JwksUrl> = Parsed {
    want: "a URL such as https://id.example.com/.well-known/jwks.json",
    parse: jwks_url,
    show: |_| Json::Null,
    pattern: "^https?://[^@#\\s]+$",
};

fn jwks_url(text: &str) -> Result<JwksUrl, String> {
    let (is_secure, rest) = match text.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        _ => return Err("is not a URL such as https://id.example.com/.well-known/jwks.json".to_owned()),
    };
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    if authority.contains('@') {
        return Err("has a user name; expected a host".to_owned());
    }
    if !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains('#') || path.starts_with('?') {
        return Err("has a path that a request cannot name".to_owned());
    }
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| is_port(port)) {
        Some((host, port)) => {
            (host, port.parse().ok().filter(|port| *port > 0).ok_or("has a port that is not from 1 to 65535")?)
        }
        None => (authority, if is_secure { 443 } else { 80 }),
    };
    let path = if path.is_empty() { "/" } else { path };
    Ok(JwksUrl { is_secure, host: check_host(host)?.into(), port, path: path.into() })
}

impl JwksUrl {
    fn is_loopback(&self) -> bool {
        let ip = self.host.parse::<std::net::IpAddr>().ok();
        ip.map_or(&*self.host == "localhost", |ip| ip.to_canonical().is_loopback())
    }

    /// Host and port as a request names them.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        match (self.is_secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// From the form to what is meant.
pub(crate) fn check(checker: &mut Checker<'_, '_>, file: &File) -> Option<Auth> {
    let path = Path::Root.field("auth");
    let Some(form) = &file.auth else {
        if !checker.tree.has(&path) && file.control.is_none() {
            checker.warn(&path, "is missing: no request can prove its tenant, so every request is refused");
        }
        return None;
    };
    let has = |checker: &Checker<'_, '_>, name: &str| checker.tree.has(&path.field(name));
    match (has(checker, "trusted_header"), !form.jwt.is_empty() || form.keys || !form.certificates.is_empty()) {
        (true, true) => {
            let why = "stands beside jwt, keys or certificates: whoever sends the header would be believed without a proof; take one of the two away";
            checker.fault(&path.field("trusted_header"), why);
        }
        (false, false) => checker.fault(&path, "says nothing; write trusted_header, jwt, keys: true or certificates"),
        _ => {}
    }
    check_header(checker, file, form, &path);
    let certificates = certificates::check(checker, file, &form.certificates, &path);
    if !form.keys && file.tenants.iter().any(|tenant| !tenant.keys.is_empty()) {
        checker.warn(&path, "does not say keys: true, so the keys of tenants are not taken");
    }
    if form.override_scope.is_some() && form.jwt.is_empty() && !form.keys {
        checker.warn(&path.field("override_scope"), "is of no use: only tokens and API keys have scopes");
    }
    let list = path.field("jwt");
    checker.check_unique_exactly(&list, "issuer", form.jwt.iter().map(|jwt| jwt.issuer.as_deref()));
    let issuers = form.jwt.iter().enumerate();
    let issuers = issuers.filter_map(|(index, jwt)| {
        check_plans(checker, file, jwt, &list.item(index));
        check_issuer(checker, jwt, &list.item(index))
    });
    let issuers = issuers.collect();
    Some(Auth {
        trusted_header: form.trusted_header.clone(),
        trusted_user_header: form.trusted_user_header.clone(),
        allow_non_loopback: form.allow_non_loopback,
        jwt: issuers,
        keys: form.keys,
        certificates,
        tokens: tokens::check(checker, file, form, &path),
        override_scope: form.override_scope.clone(),
        cache: form.cache,
        bad_tokens: form.bad_tokens.clone(),
    })
}

fn check_header(checker: &mut Checker<'_, '_>, file: &File, form: &AuthForm, path: &Path<'_>) {
    let data = file.listen.data;
    if form.trusted_header.is_some() && !data.ip().to_canonical().is_loopback() && !form.allow_non_loopback {
        let reason = format!(
            "anybody who reaches {data} can claim any tenant by this header; listen on a loopback address, or set allow_non_loopback: true if \
             only a proxy that sets the header can reach it"
        );
        checker.fault(&path.field("trusted_header"), reason);
    }
    let Some(user) = &form.trusted_user_header else { return };
    let why = match &form.trusted_header {
        None => "stands without trusted_header: whoever sends it would be believed to be any user",
        Some(tenant) if tenant == user => "is the header that names the tenant",
        Some(_) => return,
    };
    checker.fault(&path.field("trusted_user_header"), why);
}

fn check_issuer(checker: &mut Checker<'_, '_>, jwt: &JwtForm, path: &Path<'_>) -> Option<JwtIssuer> {
    let keys = check_source(checker, jwt, path);
    let tenant = check_tenant(checker, jwt, path);
    if jwt.audiences.as_ref().is_some_and(Vec::is_empty) {
        checker
            .warn(&path.field("audiences"), "is empty: a token that the issuer made for another service is taken too");
    }
    if jwt.keep < jwt.refresh {
        let field = if checker.tree.has(&path.field("keep")) { "keep" } else { "refresh" };
        checker.fault(&path.field(field), format!("keep {:?} is less than refresh {:?}", jwt.keep, jwt.refresh));
    }
    let pointer = |name: &str| Pointer::parse(name);
    let rules = Rules {
        issuer: Arc::from(jwt.issuer.as_deref()?),
        audiences: jwt.audiences.as_ref()?.iter().map(|one| one.to_string()).collect(),
        leeway: i64::try_from(jwt.leeway.as_millis()).unwrap_or(i64::MAX),
        required: jwt.required.iter().flatten().cloned().collect(),
        types: jwt.types.iter().map(|one| one.to_string()).collect(),
        tenant: tenant?,
        tenants: jwt.tenants.iter().flatten().cloned().collect(),
        user: jwt.claims.user.clone().or_else(|| pointer("sub")),
        plan: jwt.claims.plan.clone(),
        plans: jwt.plans.iter().flatten().map(|plan| plan.as_str().into()).collect(),
        device: jwt.claims.device.clone(),
        scopes: jwt.claims.scopes.clone().or_else(|| pointer("scope")),
        shown: jwt.shown.iter().flatten().cloned().collect(),
    };
    Some(JwtIssuer {
        rules,
        algorithms: jwt.algorithms.as_ref()?.iter().flatten().copied().collect(),
        keys: keys?,
        refresh: jwt.refresh,
        keep: jwt.keep,
        cooldown: jwt.cooldown,
        timeout: jwt.timeout,
    })
}

/// Plans that tokens may choose. Which there are, the table says, which need not be in this file.
fn check_plans(checker: &mut Checker<'_, '_>, file: &File, jwt: &JwtForm, path: &Path<'_>) {
    let list = path.field("plans");
    match (jwt.claims.plan.is_some(), jwt.plans.is_empty()) {
        (false, false) => checker.fault(&list, "stands without claims.plan, which says what plan a token names"),
        (true, true) => {
            let why = "is only shown in receipts: plans names none that a token may choose for its user";
            checker.warn(&path.field("claims").field("plan"), why);
        }
        _ => {}
    }
    let known = |plan: &PlanName| file.plans.iter().any(|known| known.name.as_ref() == Some(plan));
    for (index, plan) in jwt.plans.iter().enumerate() {
        if let Some(plan) = plan.as_ref().filter(|plan| !file.plans.is_empty() && !known(plan)) {
            let known = file.plans.iter().filter_map(|plan| plan.name.as_ref()).map(PlanName::as_str);
            let reason = format!("there is no plan {:?} in this file", plan.as_str());
            checker.warn_unknown(&list.item(index), reason, plan.as_str(), known);
        }
    }
}

fn check_source(checker: &mut Checker<'_, '_>, jwt: &JwtForm, path: &Path<'_>) -> Option<JwksSource> {
    let has = |checker: &Checker<'_, '_>, name: &str| checker.tree.has(&path.field(name));
    match (has(checker, "jwks_url"), has(checker, "jwks_file")) {
        (true, true) => checker.fault(&path.field("jwks_file"), "stands beside jwks_url; take one of the two away"),
        (false, false) => checker.fault(path, "does not say where its keys are; write jwks_url or jwks_file"),
        _ => {}
    }
    let url = jwt.jwks_url.as_ref();
    if url.is_some_and(|url| !url.is_secure && !url.is_loopback()) {
        let why = "is not https: whoever is on the way can put keys of his own in the place of the issuer's";
        checker.warn(&path.field("jwks_url"), why);
    }
    if has(checker, "authorities") && !url.is_some_and(|url| url.is_secure) {
        checker.fault(&path.field("authorities"), "is for a jwks_url with https");
    }
    let url = url.map(|url| JwksSource::Url(url.clone(), jwt.authorities.clone()));
    url.or_else(|| jwt.jwks_file.clone().map(JwksSource::File))
}

fn check_tenant(checker: &mut Checker<'_, '_>, jwt: &JwtForm, path: &Path<'_>) -> Option<TenantFrom> {
    let has_claim = checker.tree.has(&path.field("claims").field("tenant"));
    match (checker.tree.has(&path.field("tenant")), has_claim) {
        (true, true) => checker.fault(&path.field("tenant"), "stands beside claims.tenant; take one of the two away"),
        (false, false) => checker.fault(path, "does not say whose its tokens are; write tenant or claims.tenant"),
        _ => {}
    }
    let fixed = jwt.tenant.clone().map(TenantFrom::Fixed);
    fixed.or_else(|| jwt.claims.tenant.clone().map(TenantFrom::Claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_key_sets() {
        for (text, authority, path) in [
            ("https://id.example.com/.well-known/jwks.json", "id.example.com", "/.well-known/jwks.json"),
            ("https://ID.example.com", "id.example.com", "/"),
            ("https://id.example.com:8443/keys?v=1", "id.example.com:8443", "/keys?v=1"),
            ("http://[::1]:9000/k", "[::1]:9000", "/k"),
            ("http://127.0.0.1:80/k", "127.0.0.1", "/k"),
        ] {
            let url = jwks_url(text).unwrap();
            assert_eq!((url.authority().as_str(), &*url.path), (authority, path), "{text}");
        }
        for bad in [
            "",
            "id.example.com/keys",
            "ftp://id.example.com/keys",
            "HTTPS://id.example.com/keys",
            "https://",
            "https://:443/k",
            "https://u:p@id.example.com/k",
            "https://id.example.com:0/k",
            "https://id.example.com:99999/k",
            "https://id.example.com/k#f",
            "https://id.example.com/a b",
            "https://id.example.com/caf\u{e9}",
            "https://300.1.1.1/k",
            "https://id.example.com?k",
        ] {
            assert!(jwks_url(bad).is_err(), "{bad}");
        }
    }
}
