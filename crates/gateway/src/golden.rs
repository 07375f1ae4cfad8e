//! Comparing an answer with a known one.

use std::fmt::Write;

use serde_json::Value;

use holdfast_config::Digest;

/// Compares what `known` names with what `got` has there. Members that `known` does not name are not looked at; arrays are compared whole;
/// numbers may differ by the tolerance.
///
/// # Errors
/// The first difference: its place and both values, cut.
pub fn compare(known: &Value, got: &Value, tolerance: f64) -> Result<(), String> {
    at("", known, got, tolerance)
}

fn at(place: &str, known: &Value, got: &Value, tolerance: f64) -> Result<(), String> {
    match (known, got) {
        (Value::Object(known), Value::Object(got)) => known.iter().try_for_each(|(name, value)| match got.get(name) {
            Some(other) => at(&format!("{place}/{name}"), value, other, tolerance),
            None => Err(format!("{place}/{name} is missing")),
        }),
        (Value::Array(known), Value::Array(got)) if known.len() == got.len() => {
            let pairs = known.iter().zip(got).enumerate();
            pairs.into_iter().try_for_each(|(i, (a, b))| at(&format!("{place}/{i}"), a, b, tolerance))
        }
        (Value::Number(a), Value::Number(b)) => {
            let close = match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => (a - b).abs() <= tolerance,
                _ => a == b,
            };
            if close { Ok(()) } else { Err(format!("{place} is {b}, known is {a}")) }
        }
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{place} is {}, known is {}", short(b), short(a))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

/// The digest as it is written in configurations and metadata.
#[must_use]
pub fn digest_text(digest: &Digest) -> String {
    let (name, bytes) = match digest {
        Digest::Blake3(bytes) => ("blake3:", bytes),
        Digest::Sha256(bytes) => ("sha256:", bytes),
    };
    bytes.iter().fold(name.to_owned(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_known_is_compared_and_nothing_else() {
        let known = json!({"outputs": [{"name": "score", "data": [0.5, 1]}]});
        let close = json!({"id": "x", "outputs": [{"name": "score", "shape": [2], "data": [0.5004, 1.0]}]});
        assert_eq!(compare(&known, &close, 0.001), Ok(()));
        assert_eq!(compare(&known, &close, 0.0), Err("/outputs/0/data/0 is 0.5004, known is 0.5".into()));
        for wrong in [
            json!({}),
            json!({"outputs": []}),
            json!({"outputs": [{"name": "other", "data": [0.5, 1]}]}),
            json!({"outputs": [{"name": "score", "data": [0.5]}]}),
            json!({"outputs": [{"name": "score", "data": ["0.5", 1]}]}),
        ] {
            assert!(compare(&known, &wrong, 0.1).is_err(), "{wrong}");
        }
    }
}
