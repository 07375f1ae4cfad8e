//! `auth.tokens`: tokens that the gateways sign themselves.

use std::time::Duration;

use crate::check::Checker;
use crate::compound::Required;
use crate::forms::File;
use crate::identity::{AuthForm, TEXT};
use crate::path::Path;
use crate::section::section;
use crate::units::{DAY, HOUR, MINUTE, millis_to, secs};

section! {
    /// Tokens that the gateways sign themselves.
    pub struct OwnTokens {
        /// Their claim `iss`, to the letter: who signs them, such as the URL that clients know these gateways by. The same in all processes of a fleet.
        issuer: Option<Box<str>> = None, Required(TEXT);
        /// Their claim `aud`.
        audience: Box<str> = "holdfast".into(), TEXT;
        /// How long an access token is good.
        access: Duration = secs(300), millis_to(10_000, HOUR);
        /// How long a refresh token is good; it gets access tokens for as long. It is never longer than its API key.
        refresh: Duration = secs(43_200), millis_to(MINUTE, 30 * DAY);
        /// From the first signature of a key to that of the next. Of the control plane.
        rotate: Duration = secs(604_800), millis_to(10_000, 90 * DAY);
        /// From a key's publication to its first signature. Of the control plane.
        publish: Duration = secs(600), millis_to(1_000, DAY);
    }
}

/// The most times that a refresh token may outlive a rotation: so many keys are published.
const MOST: u32 = 30;

/// From the form to what is meant.
pub(crate) fn check(checker: &mut Checker<'_, '_>, file: &File, form: &AuthForm, path: &Path<'_>) -> Option<OwnTokens> {
    let tokens = form.tokens.as_ref()?;
    let path = path.field("tokens");
    if !form.keys {
        checker.fault(&path, "needs keys: true: an API key is what a client gets tokens by");
    }
    let is_taken = form.jwt.iter().any(|jwt| jwt.issuer.is_some() && jwt.issuer == tokens.issuer);
    if is_taken {
        checker.fault(&path.field("issuer"), "is an issuer of jwt, too: whose keys check its tokens would be luck");
    }
    if tokens.publish * 2 > tokens.rotate {
        let why = format!("is more than half of rotate {:?}", tokens.rotate);
        checker.fault(&path.field("publish"), why);
    }
    if tokens.refresh > tokens.rotate * MOST {
        let why = format!("is more than {MOST} times rotate {:?}: too many keys would be published", tokens.rotate);
        checker.fault(&path.field("refresh"), why);
    }
    let secured = file.listen.data_tls.is_some() || file.listen.data.ip().to_canonical().is_loopback();
    if !secured && file.control.is_none() {
        checker.warn(
            &path,
            "is reached without TLS: keys and tokens cross the network in clear unless a proxy before it has TLS",
        );
    }
    tokens.issuer.is_some().then(|| tokens.clone())
}
