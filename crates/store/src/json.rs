//! Values: JSON in one canonical form, so that equal content has equal bytes and equal digests.
//!
//! Canonical is what `serde_json` writes for a value whose objects are sorted by the bytes of their keys: no white space, shortest escapes.
//! A text that names a key twice, or whose numbers do not survive being read and written, is refused: two readers could differ on it.

use crate::error::{Error, Result};
use crate::limits::MAX_VALUE_BYTES;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Canonical JSON of at most [`MAX_VALUE_BYTES`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// The canonical form of a value.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it cannot be written as JSON without loss, [`Error::TooLarge`] if it is too long.
    pub fn of<T: Serialize>(value: &T) -> Result<Self> {
        let value = serde_json::to_value(value).map_err(|_| Error::invalid("the value is no JSON"))?;
        Self::from_value(&value)
    }

    /// Reads any JSON text and brings it into the canonical form.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not JSON, names a key twice, or has a number that does not survive; [`Error::TooLarge`].
    pub fn parse(text: &[u8]) -> Result<Self> {
        if text.len() > MAX_VALUE_BYTES * 2 {
            return Err(Error::too_large("bytes of a value", text.len(), MAX_VALUE_BYTES));
        }
        let value: Value = serde_json::from_slice(text).map_err(|_| Error::invalid("the value is no JSON"))?;
        if members(text) != count(&value) {
            return Err(Error::invalid("the value names a key twice"));
        }
        Self::from_value(&value)
    }

    fn from_value(value: &Value) -> Result<Self> {
        let bytes = serde_json::to_vec(value).map_err(|_| Error::invalid("the value is no JSON"))?;
        if bytes.len() > MAX_VALUE_BYTES {
            return Err(Error::too_large("bytes of a value", bytes.len(), MAX_VALUE_BYTES));
        }
        let json = Self(bytes.into());
        match json.value() {
            Ok(again) if again == *value => Ok(json),
            _ => Err(Error::invalid("the value has a number that does not survive being written and read")),
        }
    }

    /// What a backend kept. It was canonical when it was written; the length is looked at again.
    pub(crate) fn stored(bytes: Vec<u8>) -> Result<Self> {
        if bytes.len() > MAX_VALUE_BYTES {
            return Err(Error::corrupt("a value longer than any that is taken"));
        }
        Ok(Self(bytes.into()))
    }

    /// The canonical bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value as a tree.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the backend gave something that is not JSON.
    pub fn value(&self) -> Result<Value> {
        serde_json::from_slice(&self.0).map_err(|_| Error::corrupt("a value that is no JSON"))
    }
}

/// A value may hold what is nobody's business: only its length is shown.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// Members of all objects of a text that is known to be JSON: each has one colon outside of strings.
fn members(text: &[u8]) -> usize {
    let (mut colons, mut inside, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b':' if !inside => colons += 1,
            _ => {}
        }
    }
    colons
}

fn count(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(count).sum::<usize>(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String> {
        Json::parse(text.as_bytes()).map(|json| String::from_utf8(json.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn one_form_for_equal_content() {
        let forms = [
            r#"{"b": [1, 2.5], "a": "\u00e9\/", "c":{"y":null,"x":true}}"#,
            r#"{"c":{"x":true,"y":null},"a":"é/","b":[1,2.5]}"#,
        ];
        for form in forms {
            assert_eq!(canonical(form).unwrap(), r#"{"a":"é/","b":[1,2.5],"c":{"x":true,"y":null}}"#);
        }
        assert_eq!(canonical(r#"{"\":\"":":"}"#).unwrap(), r#"{"\":\"":":"}"#);
    }

    #[test]
    fn what_two_readers_could_differ_on_is_refused() {
        for text in
            [r#"{"a":1,"a":2}"#, r#"[{"x":{"a":1,"\u0061":2}}]"#, "{} {}", "", "NaN", "1e999", "{a:1}", "\u{feff}1"]
        {
            assert!(matches!(canonical(text), Err(Error::Invalid { .. })), "{text:?}");
        }
        let numbers = serde_json::json!({"a": f64::NAN});
        assert_eq!(Json::of(&numbers).unwrap().as_bytes(), br#"{"a":null}"#, "serde_json has no other form for it");
    }

    #[test]
    fn the_bound_is_on_the_canonical_form() {
        let text = |n: usize| format!("  \"{}\"  ", "x".repeat(n));
        assert!(canonical(&text(MAX_VALUE_BYTES - 2)).is_ok());
        assert!(matches!(canonical(&text(MAX_VALUE_BYTES - 1)), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn a_value_is_not_shown() {
        let json = Json::parse(br#"{"token":"hunter2"}"#).unwrap();
        assert_eq!(format!("{json:?}"), "Json(19 bytes)");
    }
}
