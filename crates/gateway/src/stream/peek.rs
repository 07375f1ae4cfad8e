//! A look into messages that are not ours.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use holdfast_codec::ws::Kind;

use super::message::Id;

/// What of a message that is not ours decides over what becomes of it: members of a JSON object, if it is one.
#[derive(Default, Deserialize)]
pub struct Peek<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    /// Its type.
    #[serde(borrow, default, rename = "type")]
    pub kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
}

impl<'a> Peek<'a> {
    /// What it says. A message that is no JSON object says nothing.
    pub fn of(kind: Kind, data: &'a [u8]) -> Self {
        let is_object = kind == Kind::Text && data.first() == Some(&b'{');
        if is_object { serde_json::from_slice(data).unwrap_or_default() } else { Self::default() }
    }

    /// The stream of latest values that it is one of, if its type has those.
    pub fn stream(&self) -> u64 {
        let (kind, key) = (self.kind.as_deref().unwrap_or_default(), self.key.as_deref().unwrap_or_default());
        xxh3_64(format!("{kind}\0{key}").as_bytes())
    }

    /// Its id, to be echoed.
    pub fn id(&self) -> Option<Id> {
        self.id.and_then(Id::read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_says_nothing_and_what_is_one_need_not_be_ours() {
        let peek = Peek::of(Kind::Text, br#"{"type":"tick","key":"k","id":7,"more":[{}],"price":1.5}"#);
        assert_eq!((peek.kind.as_deref(), peek.key.as_deref(), peek.id().is_some()), (Some("tick"), Some("k"), true));
        assert_ne!(peek.stream(), Peek::of(Kind::Text, br#"{"type":"tick","key":"l"}"#).stream());
        for other in [&b"hello"[..], b"[1]", b"{", b"", br#"{"type":5}"#] {
            let peek = Peek::of(Kind::Text, other);
            assert!(peek.kind.is_none() && peek.id().is_none(), "{}", other.escape_ascii());
        }
        assert!(Peek::of(Kind::Binary, br#"{"type":"tick"}"#).kind.is_none());
    }
}
