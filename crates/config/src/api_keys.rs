//! API keys of a tenant, as the table has them: prefixes and hashes, never a secret.

use std::collections::HashSet;

use holdfast_identity::api_key;
use serde_json::{Value as Json, json};

use crate::check::Checker;
use crate::compound::{List, Optional, Parsed, Required};
use crate::path::Path;
use crate::pool::Digest;
use crate::section::section;
use crate::text::DIGEST;

/// A key of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// By which it is looked up.
    pub prefix: Box<str>,
    /// Of its secret.
    pub hash: [u8; 32],
    /// Until when it is good, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// Which user shows it.
    pub user: Option<Box<str>>,
    /// The plan that says what its user may use.
    pub plan: Option<Box<str>>,
    /// For what.
    pub scopes: Box<[Box<str>]>,
}

/// The most keys of one tenant: enough to replace each of some by a second one.
const MOST: usize = 32;

section! {
    /// A key of a tenant. `holdfast key create` makes it.
    pub(crate) struct KeyForm {
        /// What stands between the first two underscores of the key.
        prefix: Option<Box<str>> = None, Required(PREFIX);
        /// The hash of its secret.
        hash: Option<Digest> = None, Required(DIGEST);
        /// Until when it is good. Left out: until it is taken away.
        expires: Option<u64> = None, Optional(TIME);
        /// Which user shows it.
        user: Option<Box<str>> = None, Optional(NAME);
        /// The plan that says what its user may use.
        plan: Option<Box<str>> = None, Optional(NAME);
        /// What rules, experiments and the override see of it. A scope by itself allows and refuses nothing.
        scopes: Vec<Box<str>> = Vec::new(), List { item: NAME, least: 0 };
        /// Whatever people want to know of it.
        note: Option<Box<str>> = None, Optional(NAME);
    }
}

const PREFIX: Parsed<Box<str>> = Parsed {
    want: "the prefix of a key",
    parse: |text| match api_key::is_prefix(text) {
        true => Ok(text.into()),
        false => Err("is not 12 hexadecimal digits in lower case".to_owned()),
    },
    show: |text| json!(text),
    pattern: "^[0-9a-f]{12}$",
};

const NAME: Parsed<Box<str>> = Parsed { want: "a text", parse: name, show: |text| json!(text), pattern: "^.{1,256}$" };

fn name(text: &str) -> Result<Box<str>, String> {
    match text {
        _ if text.is_empty() || text.len() > 256 => Err("does not have 1 to 256 bytes".to_owned()),
        _ if text.contains(char::is_control) || text.trim() != text => {
            Err("has a control character, or white space at an end".to_owned())
        }
        _ => Ok(text.into()),
    }
}

const TIME: Parsed<u64> = Parsed {
    want: "a time such as 2027-01-31T00:00:00Z",
    parse: |text| time(text).ok_or_else(|| "is not a time such as 2027-01-31T00:00:00Z".to_owned()),
    show: |_| Json::Null,
    pattern: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z$",
};

/// Milliseconds since 1970 of a time in RFC 3339 with `Z`.
fn time(text: &str) -> Option<u64> {
    const FORM: &[u8] = b"0000-00-00T00:00:00.000Z";
    let form: Vec<u8> = if text.len() == FORM.len() { FORM.to_vec() } else { [&FORM[..19], b"Z"].concat() };
    let fits = |(is, form): (u8, &u8)| if *form == b'0' { is.is_ascii_digit() } else { is == *form };
    if text.len() != form.len() || !text.bytes().zip(&form).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years that begin on 1 March; the days from there to 1970 are 719,468.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(seconds * 1000 + number(20, 23).unwrap_or(0))
}

pub(crate) fn check(checker: &mut Checker<'_, '_>, path: &Path<'_>, forms: &[KeyForm]) -> Box<[ApiKey]> {
    if forms.len() > MOST {
        checker.fault(path, format!("has {} keys; a tenant has {MOST} at most", forms.len()));
    }
    let mut seen = HashSet::new();
    let mut keys = Vec::with_capacity(forms.len());
    for (index, form) in forms.iter().enumerate() {
        let Some(prefix) = &form.prefix else { continue };
        if !seen.insert(prefix) {
            checker.fault(&path.item(index).field("prefix"), "is the prefix of another key of this tenant");
        }
        let hash = match form.hash {
            Some(Digest::Blake3(hash)) => hash,
            Some(_) => {
                checker.fault(&path.item(index).field("hash"), "is not a blake3 hash");
                continue;
            }
            None => continue,
        };
        keys.push(ApiKey {
            prefix: prefix.clone(),
            hash,
            expires: form.expires,
            user: form.user.clone(),
            plan: form.plan.clone(),
            scopes: form.scopes.clone().into(),
        });
    }
    keys.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56Z", 951_827_696_000),
            ("2027-01-31T00:00:00.125Z", 1_801_353_600_125),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
        ] {
            assert_eq!(time(text), Some(millis), "{text}");
        }
        for bad in [
            "",
            "2027-01-31",
            "2027-01-31T00:00:00",
            "2027-01-31T00:00:00+01:00",
            "2027-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2027-13-01T00:00:00Z",
            "2027-00-01T00:00:00Z",
            "2027-01-00T00:00:00Z",
            "2027-01-31T24:00:00Z",
            "2027-01-31T00:60:00Z",
            "2027-01-31 00:00:00Z",
            "1969-12-31T00:00:00Z",
            "2027-01-31T00:00:00.1Z",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
