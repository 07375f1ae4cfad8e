//! Sections: mappings with a closed list of fields. One declaration is the struct, its defaults, its reader and its schema.

use std::marker::PhantomData;

use serde_json::{Map, Value as Json, json};

use crate::fault::{Sink, quoted};
use crate::kind::{Kind, mapping};
use crate::path::Path;
use crate::tree::{Key, Node};

/// A mapping with a closed list of fields. Made by [`section!`].
pub(crate) trait Section: Default {
    /// Reads the fields that are there; what is missing or faulty has its default.
    fn read_fields(entries: &[(Key<'_>, Node<'_>)], node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Self;
    /// What the section is for, and its fields.
    fn describe() -> (String, Vec<Field>);
}

/// A field as the schema has it.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) description: String,
    pub(crate) schema: Json,
    pub(crate) default: Json,
    pub(crate) required: bool,
}

/// Declares a struct of checked values: `name: type = default, kind;`. The doc comments become the schema's descriptions.
macro_rules! section {
    ($(#[doc = $about:literal])+ $vis:vis struct $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr, $kind:expr;)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name { $($(#[doc = $doc])+ $vis $field: $type,)+ }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::section::Section for $name {
            fn read_fields(
                entries: &[($crate::tree::Key<'_>, $crate::tree::Node<'_>)],
                node: &$crate::tree::Node<'_>,
                path: &$crate::path::Path<'_>,
                sink: &mut $crate::fault::Sink<'_>,
            ) -> Self {
                let mut section = Self::default();
                for (key, value) in entries {
                    match key.text.as_ref() {
                        $(stringify!($field) => {
                            let value = $crate::kind::Kind::read(&$kind, value, &path.field(&key.text), sink);
                            section.$field = value.unwrap_or(section.$field);
                        })+
                        _ => $crate::section::report_unknown(key, &[$(stringify!($field)),+], path, sink),
                    }
                }
                $($crate::section::report_missing(&$kind, stringify!($field), entries, node, path, sink);)+
                section
            }

            fn describe() -> (String, Vec<$crate::section::Field>) {
                let default = Self::default();
                let fields = vec![$($crate::section::Field {
                    name: stringify!($field),
                    description: $crate::section::join_doc(&[$($doc),+]),
                    schema: $crate::kind::Kind::schema(&$kind),
                    default: $crate::kind::Kind::show(&$kind, &default.$field),
                    required: $crate::kind::Kind::is_required(&$kind),
                },)+];
                ($crate::section::join_doc(&[$($about),+]), fields)
            }
        }
    };
}
pub(crate) use section;

pub(crate) fn report_unknown(key: &Key<'_>, names: &[&str], path: &Path<'_>, sink: &mut Sink<'_>) {
    if !key.is_reported {
        let reason = format!("there is no field {} here", quoted(&key.text));
        sink.add_unknown(key.place, &path.field(&key.text), reason, &key.text, names);
    }
}

pub(crate) fn report_missing(
    kind: &impl Kind,
    name: &str,
    entries: &[(Key<'_>, Node<'_>)],
    node: &Node<'_>,
    path: &Path<'_>,
    sink: &mut Sink<'_>,
) {
    if kind.is_required() && !entries.iter().any(|(key, _)| key.text == name) {
        sink.add(node.place, &path.field(name), "is missing");
    }
}

pub(crate) fn join_doc(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// A section as the value of a field or an item of a list.
pub(crate) struct Form<T>(PhantomData<T>);

/// A section of the type that the field has.
pub(crate) const fn form<T: Section>() -> Form<T> {
    Form(PhantomData)
}

impl<T: Section> Kind for Form<T> {
    type Out = T;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<T> {
        let entries = mapping(node, path, sink)?;
        Some(T::read_fields(entries, node, path, sink))
    }

    fn schema(&self) -> Json {
        let (about, fields) = T::describe();
        let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let properties: Map<String, Json> =
            fields.into_iter().map(|field| (field.name.to_owned(), field.property())).collect();
        let mut schema = json!({
            "type": "object", "description": about, "additionalProperties": false, "properties": properties,
        });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }

    fn show(&self, _: &T) -> Json {
        Json::Null
    }
}

impl Field {
    fn property(self) -> Json {
        let mut schema = self.schema;
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".to_owned(), Json::String(self.description));
            if !self.default.is_null() {
                object.insert("default".to_owned(), self.default);
            }
        }
        schema
    }
}
