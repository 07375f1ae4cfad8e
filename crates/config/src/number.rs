//! Kinds with a unit or a range: sizes, times, whole numbers. No floating point anywhere: what is not finite cannot be written.

use std::num::NonZeroU32;
use std::time::Duration;

use holdfast_types::Bytes;
use serde_json::{Value as Json, json};

use crate::fault::{Sink, quoted};
use crate::kind::{Kind, scalar};
use crate::path::Path;
use crate::tree::{Node, Style};

/// An amount of bytes in a range.
pub(crate) struct Size {
    pub(crate) least: Bytes,
    pub(crate) most: Bytes,
}

impl Kind for Size {
    type Out = Bytes;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Bytes> {
        let (text, _) = scalar(node, path, sink, "a size such as 512MiB or 2GB")?;
        let reason = match Bytes::parse(text) {
            Ok(bytes) if (self.least..=self.most).contains(&bytes) => return Some(bytes),
            Ok(_) => format!("is {}; it must be from {} to {}", quoted(text), self.least, self.most),
            Err(why) => format!("{} {why}", quoted(text)),
        };
        sink.add(node.place, path, reason);
        None
    }

    fn schema(&self) -> Json {
        let range = format!("A size from {} to {}, such as 512MiB or 2GB.", self.least, self.most);
        json!({
            "anyOf": [
                { "type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]{1,9})?\s*([bB]|[kKmMgGtT]i?[bB])?\s*$" },
                { "type": "integer", "minimum": self.least.0, "maximum": self.most.0 },
            ],
            "$comment": range,
        })
    }

    fn show(&self, value: &Bytes) -> Json {
        json!(value.to_string())
    }
}

/// A length of time in a range.
pub(crate) struct Span {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

pub(crate) const SPAN_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A whole number and a unit; nothing else, so there is one way to write a time.
fn parse_span(text: &str) -> Result<Duration, &'static str> {
    const FORM: &str = "is not a time; write a whole number and a unit out of ms, s, m, h, d, such as 500ms or 30s";
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if unit.is_empty() && !number.is_empty() {
        return Err("has no unit; write one out of ms, s, m, h, d, such as 30s");
    }
    let &(_, millis) = SPAN_UNITS.iter().find(|(name, _)| *name == unit).ok_or(FORM)?;
    if number.is_empty() {
        return Err(FORM);
    }
    let count: u64 = number.parse().map_err(|_| "is too long a time")?;
    count.checked_mul(millis).map(Duration::from_millis).ok_or("is too long a time")
}

/// The longest unit that is exact.
pub(crate) fn show_span(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let exact = SPAN_UNITS.iter().rev().find(|(_, size)| millis >= *size && millis.is_multiple_of(*size));
    exact.map_or_else(|| "0s".to_owned(), |(name, size)| format!("{}{name}", millis / size))
}

impl Kind for Span {
    type Out = Duration;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Duration> {
        let (text, _) = scalar(node, path, sink, "a time such as 500ms or 30s")?;
        let reason = match parse_span(text) {
            Ok(span) if (self.least..=self.most).contains(&span) => return Some(span),
            Ok(_) => {
                let (least, most) = (show_span(self.least), show_span(self.most));
                format!("is {}; it must be from {least} to {most}", quoted(text))
            }
            Err(why) => format!("{} {why}", quoted(text)),
        };
        sink.add(node.place, path, reason);
        None
    }

    fn schema(&self) -> Json {
        let range = format!("A time from {} to {}, such as 500ms or 30s.", show_span(self.least), show_span(self.most));
        json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$", "$comment": range })
    }

    fn show(&self, value: &Duration) -> Json {
        json!(show_span(*value))
    }
}

/// A whole number in a range. Decimal digits only: no sign, no exponent, no leading zero, no quotes.
pub(crate) struct Count {
    pub(crate) least: u32,
    pub(crate) most: u32,
}

impl Kind for Count {
    type Out = u32;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<u32> {
        let (text, style) = scalar(node, path, sink, "a whole number")?;
        let Self { least, most } = self;
        let is_digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let has_extra_zero = text.len() > 1 && text.starts_with('0');
        let reason = match text.parse::<u32>() {
            _ if style == Style::Quoted => format!("{} is text; write the number without quotes", quoted(text)),
            _ if !is_digits => format!("{} is not a whole number from {least} to {most}", quoted(text)),
            _ if has_extra_zero => format!("{} has a leading zero", quoted(text)),
            Ok(number) if (*least..=*most).contains(&number) => return Some(number),
            _ => format!("is {}; it must be from {least} to {most}", quoted(text)),
        };
        sink.add(node.place, path, reason);
        None
    }

    fn schema(&self) -> Json {
        json!({ "type": "integer", "minimum": self.least, "maximum": self.most })
    }

    fn show(&self, value: &u32) -> Json {
        json!(value)
    }
}

/// A whole number from 1.
pub(crate) struct Positive {
    pub(crate) most: u32,
}

impl Positive {
    const fn count(&self) -> Count {
        Count { least: 1, most: self.most }
    }
}

impl Kind for Positive {
    type Out = NonZeroU32;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<NonZeroU32> {
        self.count().read(node, path, sink).and_then(NonZeroU32::new)
    }

    fn schema(&self) -> Json {
        self.count().schema()
    }

    fn show(&self, value: &NonZeroU32) -> Json {
        json!(value.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, span) in [
            ("0s", Ok(0)),
            ("500ms", Ok(500)),
            ("90s", Ok(90_000)),
            ("2m", Ok(120_000)),
            ("1d", Ok(86_400_000)),
            ("30", Err("has no unit; write one out of ms, s, m, h, d, such as 30s")),
            ("99999999999999999999s", Err("is too long a time")),
            ("9999999999999999999d", Err("is too long a time")),
        ] {
            assert_eq!(parse_span(text), span.map(Duration::from_millis), "{text}");
        }
        for text in ["", "s", "-1s", "1.5s", "1e3s", "1 s", "NaN", "inf", "1m30s", "5weeks", "\u{663}s"] {
            assert!(parse_span(text).is_err_and(|why| why.contains("is not a time")), "{text}");
        }
        for (millis, text) in
            [(0, "0s"), (1, "1ms"), (1_500, "1500ms"), (75_000, "75s"), (300_000, "5m"), (3_600_000, "1h")]
        {
            assert_eq!(show_span(Duration::from_millis(millis)), text);
        }
    }
}
