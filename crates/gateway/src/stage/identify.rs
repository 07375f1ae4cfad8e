//! Identify: whose request is it? The configured header names the tenant, and only on a listener where it is trusted.

use http::HeaderMap;

use holdfast_types::{Failure, FailureKind, TenantId};

use crate::settings::Settings;

/// The tenant that the trusted header names.
///
/// # Errors
/// `unauthenticated`: no header is trusted, it is missing, it comes more than once, or it is not an id.
pub fn identify<'h>(headers: &'h HeaderMap, settings: &Settings) -> Result<&'h str, Failure> {
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

/// The user that the trusted header names; the empty name if it names none, so that all who hide their name share one. None: users are not known here.
///
/// # Errors
/// `unauthenticated`: it comes more than once, is empty or longer than 256 bytes, or has characters other than visible ASCII, whose forms could be several.
pub fn user<'h>(headers: &'h HeaderMap, settings: &Settings) -> Result<Option<&'h [u8]>, Failure> {
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
            auth: Some(holdfast_config::Auth {
                trusted_header: "x-tenant".into(),
                trusted_user_header: None,
                allow_non_loopback: false,
            }),
            ..holdfast_config::Config::default()
        };
        Settings::new(&config)
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
        assert_eq!(identify(&good, &trusting), Ok("acme"));
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
            let refused = identify(&headers, &settings);
            assert_eq!(refused.map_err(|f| f.kind), Err(FailureKind::Unauthenticated), "{bad:?}");
        }
        let nobody = Settings::new(&holdfast_config::Config::default());
        assert!(identify(&headers(&[b"acme"]), &nobody).is_err());
    }
}
