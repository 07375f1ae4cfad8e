//! Kinds made of other kinds, and texts with a form of their own.

use serde_json::{Value as Json, json};

use crate::fault::{Sink, quoted};
use crate::kind::{Kind, items, mapping, text};
use crate::path::Path;
use crate::tree::{Node, Place};

/// A field that may be left out and has no default.
pub(crate) struct Optional<K>(pub(crate) K);

/// A field that must be there. Its value is an option so that a form without it can still be checked.
pub(crate) struct Required<K>(pub(crate) K);

impl<K: Kind> Kind for Optional<K> {
    type Out = Option<K::Out>;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out> {
        self.0.read(node, path, sink).map(Some)
    }

    fn schema(&self) -> Json {
        self.0.schema()
    }

    fn show(&self, value: &Self::Out) -> Json {
        value.as_ref().map_or(Json::Null, |value| self.0.show(value))
    }
}

impl<K: Kind> Kind for Required<K> {
    type Out = Option<K::Out>;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out> {
        self.0.read(node, path, sink).map(Some)
    }

    fn schema(&self) -> Json {
        self.0.schema()
    }

    fn show(&self, _: &Self::Out) -> Json {
        Json::Null
    }

    fn is_required(&self) -> bool {
        true
    }
}

/// A list. A faulty item is replaced by its default, so that the index of an item is its index in the file.
pub(crate) struct List<K> {
    pub(crate) item: K,
    pub(crate) least: usize,
}

impl<K: Kind<Out: Default>> Kind for List<K> {
    type Out = Vec<K::Out>;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out> {
        let nodes = items(node, path, sink)?;
        if nodes.len() < self.least {
            sink.add(node.place, path, format!("has {} items; it must have at least {}", nodes.len(), self.least));
        }
        let read = |(index, node)| self.item.read(node, &path.item(index), sink).unwrap_or_default();
        Some(nodes.iter().enumerate().map(read).collect())
    }

    fn schema(&self) -> Json {
        let mut schema = json!({ "type": "array", "items": self.item.schema() });
        if let (Some(object), 1..) = (schema.as_object_mut(), self.least) {
            object.insert("minItems".to_owned(), json!(self.least));
        }
        schema
    }

    fn show(&self, _: &Self::Out) -> Json {
        Json::Null
    }
}

/// An entry of a [`MapOf`]. It keeps its places: to look a name up in a large mapping once per fault would take the square of its size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named<T> {
    pub(crate) name: Box<str>,
    pub(crate) name_place: Place,
    pub(crate) value: T,
    pub(crate) value_place: Place,
}

/// A mapping from names of the user's choice. Entries with a faulty value are left out.
pub(crate) struct MapOf<K>(pub(crate) K);

impl<K: Kind> Kind for MapOf<K> {
    type Out = Vec<Named<K::Out>>;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out> {
        let entries = mapping(node, path, sink)?;
        let mut read = Vec::with_capacity(entries.len());
        for (key, node) in entries.iter().filter(|(key, _)| !key.is_reported) {
            if let Some(value) = self.0.read(node, &path.field(&key.text), sink) {
                read.push(Named {
                    name: key.text.as_ref().into(),
                    name_place: key.place,
                    value,
                    value_place: node.place,
                });
            }
        }
        Some(read)
    }

    fn schema(&self) -> Json {
        json!({ "type": "object", "additionalProperties": self.0.schema() })
    }

    fn show(&self, _: &Self::Out) -> Json {
        Json::Null
    }
}

/// Text that is read by a function. Its error goes after the text: `"a b" has the character ' '`.
pub(crate) struct Parsed<T> {
    /// Finishes "expected ...".
    pub(crate) want: &'static str,
    pub(crate) parse: fn(&str) -> Result<T, String>,
    pub(crate) show: fn(&T) -> Json,
    /// A regular expression that all good texts match, for the schema; empty for none.
    pub(crate) pattern: &'static str,
}

impl<T> Kind for Parsed<T> {
    type Out = T;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<T> {
        let text = text(node, path, sink, self.want)?;
        match (self.parse)(text) {
            Ok(value) => Some(value),
            Err(why) => {
                sink.add(node.place, path, format!("{} {why}", quoted(text)));
                None
            }
        }
    }

    fn schema(&self) -> Json {
        match self.pattern {
            "" => json!({ "type": "string" }),
            pattern => json!({ "type": "string", "pattern": pattern }),
        }
    }

    fn show(&self, value: &T) -> Json {
        (self.show)(value)
    }
}
