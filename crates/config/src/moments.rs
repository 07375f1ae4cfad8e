//! Shares, moments, and what a target looks at: the texts of experiments and rules.

use serde_json::{Value as Json, json};

use holdfast_assign::Field;

use crate::compound::Parsed;
use crate::fault::{Sink, quoted};
use crate::kind::{Kind, scalar};
use crate::path::Path;
use crate::text::HEADER;
use crate::tree::{Node, Style};

/// A share in percent with at most two digits behind the point, as parts of 10,000.
pub(crate) struct Share;

impl Kind for Share {
    type Out = u16;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<u16> {
        const WANT: &str = "a percentage from 0 to 100, with at most two digits behind the point";
        let (text, style) = scalar(node, path, sink, WANT)?;
        let share = (style != Style::Quoted).then(|| share(text)).flatten();
        if share.is_none() {
            sink.add(node.place, path, format!("is {}; expected {WANT}, without quotes", quoted(text)));
        }
        share
    }

    fn schema(&self) -> Json {
        json!({ "type": "number", "minimum": 0, "maximum": 100, "multipleOf": 0.01 })
    }

    fn show(&self, value: &u16) -> Json {
        json!(f64::from(*value) / 100.0)
    }
}

fn share(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, most| (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole, 3) || !digits(part, 2) {
        return None;
    }
    let tenths = if part.len() == 1 { 10 } else { 1 };
    let all = whole.parse::<u32>().ok()? * 100 + part.parse::<u32>().ok()? * tenths;
    u16::try_from(all).ok().filter(|all| *all <= 10_000)
}

/// A moment in UTC, as milliseconds since 1970.
pub(crate) const INSTANT: Parsed<u64> = Parsed {
    want: "a moment such as 2027-01-31T08:00:00Z",
    parse: |text| instant(text).ok_or_else(|| "is no moment in UTC such as 2027-01-31T08:00:00Z".to_owned()),
    show: |_| Json::Null,
    pattern: "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
};

/// RFC 3339 with whole seconds in UTC, from 1970 to 9999, as milliseconds since 1970. None: it is none.
#[must_use]
pub fn instant(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let shape = b"0000-00-00T00:00:00Z";
    let fits = |(byte, shape): (&u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    if bytes.len() != shape.len() || !bytes.iter().zip(shape).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if year < 1970 || !(1..=length).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let days = years + lengths.iter().take(usize::try_from(month).ok()? - 1).sum::<u64>() + day - 1;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000)
}

/// What a condition of a target looks at.
pub(crate) const TARGET_FIELD: Parsed<Field> = Parsed {
    want: "tenant, model, plan, user, device, scope:NAME, claim:NAME or header:NAME",
    parse: target_field,
    show: |_| Json::Null,
    pattern: "^(tenant|model|plan|user|device|scope:.+|claim:.+|header:.+)$",
};

fn target_field(text: &str) -> Result<Field, String> {
    let named = |name: &str| (1..=256).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    match text.split_once(':') {
        None => match text {
            "tenant" => Some(Field::Tenant),
            "model" => Some(Field::Model),
            "plan" => Some(Field::Plan),
            "user" => Some(Field::User),
            "device" => Some(Field::Device),
            _ => None,
        },
        Some(("scope", name)) if named(name) => Some(Field::Scope(name.to_owned())),
        Some(("claim", name)) if named(name) => Some(Field::Claim(name.to_owned())),
        Some(("header", name)) => match (HEADER.parse)(name) {
            Ok(_) => Some(Field::Header(name.to_ascii_lowercase())),
            Err(why) => return Err(format!("names a header that {why}")),
        },
        Some(_) => None,
    }
    .ok_or_else(|| "is not one of tenant, model, plan, user, device, scope:NAME, claim:NAME and header:NAME".to_owned())
}

/// What a field of a target is compared with.
pub(crate) const TARGET_TEXT: Parsed<Box<str>> = Parsed {
    want: "a text",
    parse: |text| match text.len() {
        1..=256 if !text.contains(char::is_control) => Ok(text.into()),
        _ => Err("is not 1 to 256 bytes without control characters".to_owned()),
    },
    show: |_| Json::Null,
    pattern: "^.{1,256}$",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_shares() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-03-01T00:00:00Z", Some(951_868_800_000)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199_000)),
            ("2027-01-31T08:00:00Z", Some(1_801_382_400_000)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400_000)),
            ("2023-02-29T00:00:00Z", None),
            ("2100-02-29T00:00:00Z", None),
            ("2027-13-01T00:00:00Z", None),
            ("2027-00-01T00:00:00Z", None),
            ("2027-01-31T24:00:00Z", None),
            ("2027-01-31T08:00:00+01:00", None),
            ("2027-01-31 08:00:00Z", None),
            ("1969-12-31T23:59:59Z", None),
        ] {
            assert_eq!(instant(text), ms, "{text}");
        }
        for (text, parts) in [
            ("0", Some(0)),
            ("100", Some(10_000)),
            ("12.5", Some(1_250)),
            ("0.01", Some(1)),
            ("0.07", Some(7)),
            ("100.01", None),
            ("0.001", None),
            ("-1", None),
            (".5", None),
            ("1e1", None),
            ("999", None),
            ("656", None),
            ("", None),
        ] {
            assert_eq!(share(text), parts, "{text}");
        }
    }
}
