//! What a request for a token says: its form, and who its client is (RFC 6749, 2.3.1, 3.2, 4.4.2, 6). Pure.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use holdfast_identity::base64;

use super::Refusal;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub grant: Grants,
    /// Id and secret.
    pub client: Option<(String, String)>,
    pub scope: Option<String>,
}

/// By what a token is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Grants {
    ClientCredentials,
    Refresh(String),
}

/// The most fields of a form.
const FIELDS: usize = 32;

/// Reads it.
///
/// # Errors
/// `invalid_request`, `invalid_client`, `unsupported_grant_type`.
pub(crate) fn read(fields: &HeaderMap, body: &[u8]) -> Result<Asked, Refusal> {
    let mut form = parse(body)?;
    let client = client(fields, &mut form)?;
    let grant = match form.remove("grant_type").as_deref() {
        None => return Err(Refusal::bad("invalid_request", "grant_type is missing")),
        Some("client_credentials") => Grants::ClientCredentials,
        Some("refresh_token") => {
            let token = form.remove("refresh_token");
            Grants::Refresh(token.ok_or(Refusal::bad("invalid_request", "refresh_token is missing"))?)
        }
        Some(_) => {
            return Err(Refusal::bad("unsupported_grant_type", "client_credentials and refresh_token are known here"));
        }
    };
    Ok(Asked { grant, client, scope: form.remove("scope") })
}

/// RFC 6749, 3.2: no parameter comes twice, and one without a value is not there. What is not known is passed over.
fn parse(body: &[u8]) -> Result<BTreeMap<String, String>, Refusal> {
    const BAD: Refusal = Refusal::bad("invalid_request", "the body is no form, or has a parameter twice");
    let text = std::str::from_utf8(body).map_err(|_| BAD)?;
    let mut form = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name).ok_or(BAD)?, decode(value).ok_or(BAD)?);
        if form.insert(name, value).is_some() || form.len() > FIELDS {
            return Err(BAD);
        }
    }
    form.retain(|_, value| !value.is_empty());
    Ok(form)
}

/// Undoes the encoding of forms.
fn decode(text: &str) -> Option<String> {
    let (mut out, mut bytes) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// Id and secret, by the header or by the form, and never by both.
fn client(fields: &HeaderMap, form: &mut BTreeMap<String, String>) -> Result<Option<(String, String)>, Refusal> {
    let (id, secret) = (form.remove("client_id"), form.remove("client_secret"));
    let mut values = fields.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => match (id, secret) {
            (Some(id), Some(secret)) => Ok(Some((id, secret))),
            (None, Some(_)) => Err(Refusal::bad("invalid_request", "client_secret comes without client_id")),
            // An id alone proves nothing, and who has a refresh token need prove nothing.
            (_, None) => Ok(None),
        },
        (Some(_), Some(_)) => Err(Refusal::bad("invalid_request", "there is more than one authorization header")),
        (Some(_), None) if secret.is_some() => {
            Err(Refusal::bad("invalid_request", "the client proves who it is in two ways"))
        }
        (Some(value), None) => {
            const BAD: Refusal = Refusal::client("the authorization header is not Basic with an id and a secret");
            let (own, own_secret) = basic(value.as_bytes()).ok_or(BAD)?;
            if id.is_some_and(|id| id != own) {
                return Err(Refusal::bad("invalid_request", "client_id is another one than that of the header"));
            }
            Ok(Some((own, own_secret)))
        }
    }
}

/// RFC 7617, with both parts encoded like a form (RFC 6749, 2.3.1).
fn basic(value: &[u8]) -> Option<(String, String)> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let rest = std::str::from_utf8(rest).ok()?.trim();
    let text = rest.trim_end_matches('=').replace('+', "-").replace('/', "_");
    let text = String::from_utf8(base64::decode(text.as_bytes())?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((decode(id)?, decode(secret)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn fields(values: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn error(values: &[&str], body: &str) -> &'static str {
        read(&fields(values), body.as_bytes()).err().map_or("none", |refusal| refusal.error)
    }

    #[test]
    fn a_client_says_who_it_is_in_one_way() {
        let by_form = "grant_type=client_credentials&client_id=a&client_secret=b%2Bc+d";
        let asked = read(&fields(&[]), by_form.as_bytes()).unwrap();
        assert_eq!((asked.client, asked.grant), (Some(("a".into(), "b+c d".into())), Grants::ClientCredentials));
        // a%3Ab:c%2Fd
        let asked = read(&fields(&["bAsIc YSUzQWI6YyUyRmQ="]), b"grant_type=client_credentials&scope=x+y").unwrap();
        assert_eq!((asked.client, asked.scope.as_deref()), (Some(("a:b".into(), "c/d".into())), Some("x y")));
        for (values, body, told) in [
            (&["Basic YTpi"][..], by_form, "invalid_request"),
            (&["Basic YTpi", "Basic YTpi"], "grant_type=client_credentials", "invalid_request"),
            (&["Basic YTpi"], "grant_type=client_credentials&client_id=z", "invalid_request"),
            (&["Basic ???"], "grant_type=client_credentials", "invalid_client"),
            (&["Basic YQ=="], "grant_type=client_credentials", "invalid_client"),
            (&["Bearer YTpi"], "grant_type=client_credentials", "invalid_client"),
            (&[], "grant_type=client_credentials&client_secret=b", "invalid_request"),
        ] {
            assert_eq!(error(values, body), told, "{values:?} {body}");
        }
    }

    #[test]
    fn what_a_form_may_not_be() {
        for (body, told) in [
            ("", "invalid_request"),
            ("grant_type=", "invalid_request"),
            ("grant_type=password", "unsupported_grant_type"),
            ("grant_type=authorization_code&code=1", "unsupported_grant_type"),
            ("grant_type=client_credentials&grant_type=client_credentials", "invalid_request"),
            ("grant_type=refresh_token", "invalid_request"),
            ("grant_type=refresh_token&refresh_token=", "invalid_request"),
            ("grant_type=%zz", "invalid_request"),
            ("grant_type=%ff", "invalid_request"),
            ("grant_type=refresh_token&refresh_token=a.b.c&unknown=1", "none"),
        ] {
            assert_eq!(error(&[], body), told, "{body}");
        }
        let many: String = (0..100).map(|n| format!("a{n}=1&")).collect();
        assert_eq!(error(&[], &many), "invalid_request");
    }
}
