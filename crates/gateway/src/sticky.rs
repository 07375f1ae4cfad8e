//! Sticky tokens: what is kept, in a client's hands, of the key that gave somebody an arm. As a cookie for browsers, and as a header for all others.
//!
//! The rule is `holdfast_assign::sticky`'s, the token `holdfast_submission::sticky`'s. One that is bad is counted, and passed over as if it were not there:
//! who has none gets an arm as well.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use holdfast_decide::{ArmFacts, Facts, KeyFrom, Reason, subject};
use holdfast_submission::BadToken;
use holdfast_submission::sticky::Keep;
use holdfast_telemetry::Clock;
use holdfast_types::{ExperimentName, TenantId};

use crate::asker::Asker;
use crate::headers::{STICKY, STICKY_COOKIE};
use crate::submissions::Submissions;

/// The most tokens of a request that are looked at.
const MOST: usize = 8;

/// Who was given an arm.
#[derive(Clone, Debug)]
pub struct Given {
    /// By which key.
    pub by: KeyFrom,
    /// What stands for the key.
    pub subject: u64,
    /// What the client has to keep of it: the header and the cookie. None: nothing new.
    keep: Option<Box<[HeaderValue; 2]>>,
}

impl Given {
    /// Who asked, if this arm was given by this key. None: it was none.
    #[cold]
    pub fn of(asker: &Asker<'_>, arm: &ArmFacts, by: KeyFrom, reason: Reason) -> Option<Self> {
        let kept = if reason == Reason::Sticky { asker.keep(&arm.experiment) } else { None };
        let key = kept.map_or_else(|| asker.key(by), |kept| Some(&*kept.key))?;
        let mut given = Self { by, subject: subject(by, key), keep: None };
        let (Some(sticky), Some(submissions)) = (&arm.sticky, asker.submissions) else { return Some(given) };
        if kept.is_some() {
            submissions.counted.count_sticky("kept");
        }
        let now = Clock::wall_millis();
        let so_far = kept.map(|kept| (kept.owner, kept.until.saturating_sub(now)));
        if let Some(anew) = sticky.keep(by, so_far, asker) {
            let keep = Keep {
                tenant: TenantId::parse(asker.who.tenant()).ok()?,
                experiment: ExperimentName::parse(&arm.experiment).ok()?,
                attribute: by.as_str().into(),
                key: key.into(),
                owner: anew.owner,
                until: now.saturating_add(sticky.keep_ms),
            };
            given.keep = as_fields(submissions, &keep, sticky.keep_ms);
        }
        Some(given)
    }

    /// Hands out what the client has to keep.
    pub fn stamp(&self, fields: &mut HeaderMap) {
        if let Some(keep) = &self.keep {
            let [header, cookie] = &**keep;
            fields.insert(STICKY, header.clone());
            fields.append(SET_COOKIE, cookie.clone());
        }
    }
}

fn as_fields(submissions: &Submissions, keep: &Keep, keep_ms: u64) -> Option<Box<[HeaderValue; 2]>> {
    let Some(text) = submissions.tokens.as_ref()?.sticky(keep) else {
        submissions.counted.count_sticky("too_long");
        return None;
    };
    submissions.counted.count_sticky("given");
    let (name, seconds) = (&keep.experiment, keep_ms / 1_000);
    let cookie = format!("{STICKY_COOKIE}{name}={text}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Lax");
    Some(Box::new([HeaderValue::try_from(text).ok()?, HeaderValue::try_from(cookie).ok()?]))
}

/// What a request's tokens say to its tenant: those of headers before those of cookies.
#[cold]
pub fn read(submissions: &Submissions, fields: &HeaderMap, tenant: &str) -> Vec<Keep> {
    let Some(tokens) = &submissions.tokens else { return Vec::new() };
    let now = Clock::wall_millis();
    let headers = fields.get_all(STICKY).iter().map(HeaderValue::as_bytes);
    let mut all = headers.chain(cookies(fields));
    let read = |text| match tokens.open_sticky(text, tenant, now) {
        Ok(keep) => Some(keep),
        Err(why) => {
            submissions.counted.count_sticky(word(why));
            None
        }
    };
    let good = all.by_ref().take(MOST).filter_map(read).collect();
    if all.next().is_some() {
        submissions.counted.count_sticky("too_many");
    }
    good
}

fn cookies(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let pairs = fields.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|b| *b == b';'));
    pairs.filter_map(|pair| {
        let rest = pair.trim_ascii().strip_prefix(STICKY_COOKIE.as_bytes())?;
        let at = rest.iter().position(|b| *b == b'=')?;
        rest.get(at + 1..)
    })
}

const fn word(why: BadToken) -> &'static str {
    match why {
        BadToken::Malformed => "malformed",
        BadToken::Forged => "forged",
        BadToken::Expired => "expired",
        BadToken::OtherTenant => "other_tenant",
    }
}
