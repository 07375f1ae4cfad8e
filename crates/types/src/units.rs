//! Units as types, all of them integers.

use std::fmt;
use std::time::Duration;

/// A point on a monotonic clock: nanoseconds since an origin that the process chose at start. Comparable only within one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` plus a span, held at [`Mono::MAX`].
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The number of a routing table. Grows by one with each change; decimal in headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A share relative to other shares. Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(pub u32);

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

/// An amount of memory or data, in bytes. Written `512`, `64KiB`, `2GB`, `1.5GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Why a text is not an amount of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesError {
    /// Not a decimal number with an optional unit.
    Malformed,
    /// A unit other than B, KB, MB, GB, TB, KiB, MiB, GiB, TiB.
    UnknownUnit,
    /// More than 2^63 - 1 bytes.
    TooLarge,
}

impl fmt::Display for BytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "is not a size; write a number and a unit, such as 512MiB or 2GB",
            Self::UnknownUnit => "has an unknown unit; known are B, KB, MB, GB, TB, KiB, MiB, GiB, TiB",
            Self::TooLarge => "is more than 8 EiB",
        })
    }
}

impl std::error::Error for BytesError {}

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

impl Bytes {
    /// Reads a number with an optional decimal part and an optional unit (any case, a space before it is allowed).
    ///
    /// # Errors
    /// [`BytesError`]; signs, exponents, NaN and infinity are malformed.
    pub fn parse(text: &str) -> Result<Self, BytesError> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_start().to_ascii_lowercase();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || part.is_empty() || part.contains('.') || part.len() > 9 {
            return Err(BytesError::Malformed);
        }
        let &(_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(BytesError::UnknownUnit)?;
        let whole: u128 = whole.parse().map_err(|_| BytesError::TooLarge)?;
        let part: u128 = format!("{part:0<9}").parse().map_err(|_| BytesError::Malformed)?;
        let unit = u128::from(unit);
        let total = whole.checked_mul(unit).ok_or(BytesError::TooLarge)? + part * unit / 1_000_000_000;
        u64::try_from(total).ok().filter(|t| *t <= i64::MAX as u64).map(Self).ok_or(BytesError::TooLarge)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let decimal = [("TB", 1_000_000_000_000u64), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)];
        // The shortest exact form: 2GB rather than 1953125KiB.
        let exact =
            binary.into_iter().chain(decimal).filter(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        if let Some((unit, size)) = exact.max_by_key(|(_, size)| *size) {
            return write!(f, "{}{unit}", self.0 / size);
        }
        match binary.iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) => write!(f, "{:.2}{unit}", self.0 as f64 / *size as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("2GB", 2_000_000_000), ("24GiB", 24 << 30), ("1.5 kib", 1536), ("7mb", 7_000_000)]
        {
            assert_eq!(Bytes::parse(text), Ok(Bytes(bytes)), "{text}");
        }
        for (text, why) in [
            ("", BytesError::Malformed),
            ("-1", BytesError::Malformed),
            ("1e3", BytesError::UnknownUnit),
            ("NaN", BytesError::Malformed),
            ("inf", BytesError::Malformed),
            ("1.", BytesError::Malformed),
            ("3 parsecs", BytesError::UnknownUnit),
            ("9000000000 GiB", BytesError::TooLarge),
            ("99999999999999999999999999999999999999999", BytesError::TooLarge),
        ] {
            assert_eq!(Bytes::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn sizes_as_we_print_them() {
        for (bytes, text) in [(0, "0B"), (2_000_000_000, "2GB"), (24 << 30, "24GiB"), (1500, "1.46KiB"), (1_000, "1KB")]
        {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn monotonic_time_never_wraps() {
        assert_eq!(Mono(5).since(Mono(9)), Duration::ZERO);
        assert_eq!(Mono(u64::MAX - 1).after(Duration::from_secs(1)), Mono::MAX);
    }
}
