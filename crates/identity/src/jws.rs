//! A token in the compact form (RFC 7515, 7.1), taken apart. Nothing of it is believed here.

use serde_json::{Map, Value};

use crate::alg::Algorithm;
use crate::reject::{Reject, Why};
use crate::{base64, json};

/// The longest token that is looked at.
pub const MOST: usize = 16 * 1024;
/// The longest name of a key.
const KID: usize = 256;

/// See the module.
#[derive(Clone, Debug)]
pub struct Compact<'t> {
    /// What is signed: header and payload, as they came.
    pub signed: &'t [u8],
    /// The algorithm that the token names. It is compared with what is allowed and with the key's, and chooses neither.
    pub alg: Algorithm,
    /// The name of its key.
    pub kid: Option<String>,
    /// What kind of token it says to be.
    pub typ: Option<String>,
    /// The payload's bytes.
    pub payload: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

impl<'t> Compact<'t> {
    /// Takes a token apart: three parts, each in base64url.
    ///
    /// # Errors
    /// `Malformed`, or `Algorithm` for one that is never allowed, `none` and shared secrets among them.
    pub fn parse(token: &'t [u8]) -> Result<Self, Reject> {
        if token.len() > MOST {
            return Err(Reject::malformed("the token is too long"));
        }
        let parts = || Reject::malformed("the token has not three parts");
        let first = token.iter().position(|b| *b == b'.').ok_or_else(parts)?;
        let last = token.iter().rposition(|b| *b == b'.').ok_or_else(parts)?;
        let (header, rest) = (&token[..first], &token[first..]);
        let payload = rest.get(1..last - first).ok_or_else(parts)?;
        if payload.contains(&b'.') {
            return Err(parts());
        }
        let decode = |part| base64::decode(part).ok_or(Reject::malformed("a part of the token is not base64url"));
        let header = decode(header)?;
        let header = json::object(&header).ok_or(Reject::malformed("the token's header is no JSON object"))?;
        check_header(&header)?;
        Ok(Self {
            signed: &token[..last],
            alg: algorithm(&header)?,
            kid: text(&header, "kid", KID)?,
            typ: text(&header, "typ", KID)?,
            payload: decode(payload)?,
            signature: decode(&token[last + 1..])?,
        })
    }
}

/// What no token may say: extensions that must be understood (RFC 7515, 4.1.11; RFC 7797), and a key that comes with it (RFC 8725, 3.5).
fn check_header(header: &Map<String, Value>) -> Result<(), Reject> {
    if header.contains_key("crit") || header.contains_key("b64") {
        return Err(Reject::malformed("the token asks for an extension that is not known here"));
    }
    if ["jwk", "jku", "x5u", "x5c"].iter().any(|name| header.contains_key(*name)) {
        return Err(Reject::new(Why::UnknownKey, "the token brings a key of its own"));
    }
    Ok(())
}

fn algorithm(header: &Map<String, Value>) -> Result<Algorithm, Reject> {
    let name = header.get("alg").and_then(Value::as_str).ok_or(Reject::malformed("the token names no algorithm"))?;
    Algorithm::parse(name).ok_or(Reject::new(Why::Algorithm, "the token's algorithm is not allowed"))
}

fn text(header: &Map<String, Value>, name: &str, most: usize) -> Result<Option<String>, Reject> {
    match header.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.len() <= most => Ok(Some(text.clone())),
        Some(_) => Err(Reject::malformed("a member of the token's header is not a short text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str) -> String {
        format!("{}.e30.c2ln", base64::encode(header.as_bytes()))
    }

    #[test]
    fn what_is_not_three_good_parts_is_refused() {
        let good = token(r#"{"alg":"RS256","kid":"a"}"#);
        let parsed = Compact::parse(good.as_bytes()).unwrap();
        assert_eq!((parsed.alg, parsed.kid.as_deref()), (Algorithm::Rs256, Some("a")));
        assert_eq!((parsed.payload.as_slice(), parsed.signature.as_slice()), (&b"{}"[..], &b"sig"[..]));
        assert_eq!(parsed.signed, &good.as_bytes()[..good.len() - 5]);
        for bad in [
            String::new(),
            ".".into(),
            "..".into(),
            "a".into(),
            "a.b".into(),
            format!("{good}."),
            format!("{good}.a"),
            format!(" {good}"),
            format!("{good} "),
            format!("{good}\n"),
            format!("{good}="),
            good.replace("e30", "e30="),
            good.replace("e30", "e31"),
            good.replace("e30", "e3 0"),
            good.replace("e30", "e30.e30"),
            "a".repeat(MOST + 1),
        ] {
            assert_eq!(Compact::parse(bad.as_bytes()).map_err(|r| r.why).err(), Some(Why::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn headers_that_ask_for_more_are_refused() {
        for (header, why) in [
            (r#"{}"#, Why::Malformed),
            (r#"{"alg":7}"#, Why::Malformed),
            (r#"{"alg":["RS256"]}"#, Why::Malformed),
            (r#"{"alg":"none"}"#, Why::Algorithm),
            (r#"{"alg":"None"}"#, Why::Algorithm),
            (r#"{"alg":""}"#, Why::Algorithm),
            (r#"{"alg":"HS256"}"#, Why::Algorithm),
            (r#"{"alg":"rs256"}"#, Why::Algorithm),
            (r#"{"alg":"RS256 "}"#, Why::Algorithm),
            (r#"{"alg":"RS256","alg":"RS256"}"#, Why::Malformed),
            (r#"{"alg":"RS256","kid":1}"#, Why::Malformed),
            (r#"{"alg":"RS256","crit":["exp"]}"#, Why::Malformed),
            (r#"{"alg":"RS256","crit":[]}"#, Why::Malformed),
            (r#"{"alg":"RS256","b64":true}"#, Why::Malformed),
            (r#"{"alg":"RS256","jwk":{}}"#, Why::UnknownKey),
            (r#"{"alg":"RS256","jku":"http://127.0.0.1/"}"#, Why::UnknownKey),
            (r#"{"alg":"RS256","x5u":"http://127.0.0.1/"}"#, Why::UnknownKey),
            (r#"{"alg":"RS256","x5c":[]}"#, Why::UnknownKey),
        ] {
            let refused = Compact::parse(token(header).as_bytes()).map_err(|r| r.why).err();
            assert_eq!(refused, Some(why), "{header}");
        }
        let long = format!(r#"{{"alg":"RS256","kid":"{}"}}"#, "k".repeat(KID + 1));
        assert!(Compact::parse(token(&long).as_bytes()).is_err());
    }
}
