//! JSON in which every name says one thing: a member that is there twice is refused (RFC 7519, 4), since two readers could take two values.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The object that these bytes are. None: they are no object in JSON, or one with a member twice, at whatever depth.
#[must_use]
pub fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice::<Strict>(bytes) {
        Ok(Strict(Value::Object(map))) => Some(map),
        _ => None,
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Read).map(Self)
    }
}

struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("no finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(value)) = seq.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, Strict(value))) = map.next_entry::<String, Strict>()? {
            if members.insert(name, value).is_some() {
                return Err(de::Error::custom("a member is there twice"));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_there_twice_is_refused_at_every_depth() {
        assert!(object(br#"{"a":1,"b":{"a":[{"a":2}]}}"#).is_some());
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":{"a":1,"a":2}}"#,
            r#"{"b":[{"a":1,"a":2}]}"#,
            "[]",
            "1",
            "null",
            "",
            r#"{"a":1} {}"#,
            r#"{"a":1}x"#,
            r#"{"a":1e999}"#,
            r#"{"a":NaN}"#,
            r#"{"a":01}"#,
            "{\"a\":\"\\ud800\"}",
            "\u{feff}{}",
        ] {
            assert_eq!(object(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), None);
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
        assert_eq!(object(deep.as_bytes()), None, "depth is bounded");
    }
}
