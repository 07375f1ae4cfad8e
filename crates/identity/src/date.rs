//! NumericDate (RFC 7519, 2): seconds since 1970 as a JSON number, with a fraction or an exponent if need be. Read to milliseconds since 1970.

use serde_json::Value;

/// Which way a part of a millisecond goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the earlier one: for the end of a span.
    Down,
    /// To the later one: for its beginning.
    Up,
}

/// The date, held at the bounds of what can be told. None: it is no number.
#[must_use]
pub fn millis(value: &Value, round: Round) -> Option<i64> {
    if let Some(whole) = value.as_i64() {
        return Some(whole.saturating_mul(1000));
    }
    if value.is_u64() {
        return Some(i64::MAX);
    }
    let millis = value.as_f64()? * 1000.0;
    let millis = match round {
        Round::Down => millis.floor(),
        Round::Up => millis.ceil(),
    };
    // A cast from a float holds at the bounds.
    #[allow(clippy::cast_possible_truncation, reason = "it holds at the bounds, as is meant")]
    Some(millis as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_every_form_and_nothing_else() {
        let both = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            (millis(&value, Round::Down), millis(&value, Round::Up))
        };
        assert_eq!(both("1300819380"), (Some(1_300_819_380_000), Some(1_300_819_380_000)));
        assert_eq!(both("1300819380.336"), (Some(1_300_819_380_336), Some(1_300_819_380_336)));
        assert_eq!(both("1.300819380336e9"), (Some(1_300_819_380_336), Some(1_300_819_380_336)));
        assert_eq!(both("1300819380.3367").0, Some(1_300_819_380_336));
        assert_eq!(both("1300819380.3367").1, Some(1_300_819_380_337));
        assert_eq!(both("-1"), (Some(-1000), Some(-1000)));
        assert_eq!(both("1e308"), (Some(i64::MAX), Some(i64::MAX)));
        assert_eq!(both("-1e308"), (Some(i64::MIN), Some(i64::MIN)));
        assert_eq!(both("18446744073709551615"), (Some(i64::MAX), Some(i64::MAX)));
        assert_eq!(both("9223372036854775807"), (Some(i64::MAX), Some(i64::MAX)));
        assert_eq!(both("99999999999999999999999"), (Some(i64::MAX), Some(i64::MAX)));
        for other in [json!("1300819380"), json!(null), json!(true), json!([1]), json!({})] {
            assert_eq!(millis(&other, Round::Down), None, "{other}");
        }
    }
}
