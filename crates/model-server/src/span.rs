//! A length of time as people write it in settings and faults: `250ms`, `2s`, `1.5s`, `1m`.
//!
//! One form for the command line, the model file and the control API, so that what is shown can be sent back unchanged.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time, at most one day: longer is a slip of the pen in a drill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Why a text is not a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// Not a decimal number with a unit.
    #[error("is not a length of time; write a number and a unit, such as 250ms or 2s")]
    Malformed,
    /// A unit other than us, ms, s, m, h.
    #[error("has an unknown unit; known are us, ms, s, m, h")]
    UnknownUnit,
    /// More than one day.
    #[error("is more than one day")]
    TooLong,
}

const DAY_NANOS: u128 = 86_400 * 1_000_000_000;
const UNITS: [(&str, u128); 5] =
    [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || part.is_empty() || part.contains('.') || part.len() > 9 || unit.is_empty() {
            return Err(SpanError::Malformed);
        }
        let unit = unit.trim_start();
        let &(_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(SpanError::UnknownUnit)?;
        let whole = whole.parse::<u64>().map_err(|_| SpanError::TooLong)?;
        let part: u128 = format!("{part:0<9}").parse().map_err(|_| SpanError::Malformed)?;
        let nanos = u128::from(whole) * unit + part * unit / 1_000_000_000;
        if nanos > DAY_NANOS {
            return Err(SpanError::TooLong);
        }
        Ok(Self(Duration::from_nanos(u64::try_from(nanos).map_err(|_| SpanError::TooLong)?)))
    }
}

impl fmt::Display for Span {
    /// The largest unit that divides the length exactly; below a microsecond it is cut off.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        match UNITS.iter().find(|(_, size)| nanos.is_multiple_of(*size)) {
            Some((name, size)) => write!(f, "{}{name}", nanos / size),
            None => write!(f, "{}us", nanos / 1_000),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|why| serde::de::Error::custom(format!("{text:?} {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_as_people_write_them() {
        for (text, micros) in [("0s", 0), ("250ms", 250_000), ("1.5s", 1_500_000), ("2 m", 120_000_000), ("7us", 7)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_micros(micros))), "{text}");
        }
        for (text, why) in [
            ("", SpanError::Malformed),
            ("5", SpanError::Malformed),
            ("-1s", SpanError::Malformed),
            ("1.s", SpanError::Malformed),
            ("1e3s", SpanError::UnknownUnit),
            ("3 fortnights", SpanError::UnknownUnit),
            ("24.000001h", SpanError::TooLong),
            ("99999999999999999999s", SpanError::TooLong),
        ] {
            assert_eq!(text.parse::<Span>(), Err(why), "{text}");
        }
    }

    #[test]
    fn what_is_printed_reads_back() {
        for text in ["0s", "250ms", "1500ms", "2s", "90s", "3m", "24h", "7us"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), text);
        }
    }
}
