//! Fields that may be written in two ways.

use std::path::PathBuf;

use serde_json::{Number, Value as Json, json};

use crate::fault::{Sink, quoted};
use crate::kind::{Choice, Kind, items, mapping, scalar, text};
use crate::path::Path;
use crate::section::form;
use crate::settings::Admin;
use crate::stamps::{Stamp, Stamps};
use crate::text::{ADDRESS, PATH};
use crate::tree::{Node, Style, Value, is_null};

/// The admin port: an address, or a section.
pub(crate) struct AdminKind;

impl Kind for AdminKind {
    type Out = Admin;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Admin> {
        if matches!(node.value, Value::Map(_)) {
            return form().read(node, path, sink);
        }
        ADDRESS.read(node, path, sink).map(|address| Admin { address, ..Admin::default() })
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [ADDRESS.schema(), form::<Admin>().schema()] })
    }

    fn show(&self, value: &Admin) -> Json {
        ADDRESS.show(&value.address)
    }
}

/// `all`, or a list of stamps.
pub(crate) struct StampsKind;

impl Kind for StampsKind {
    type Out = Stamps;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Stamps> {
        if !matches!(node.value, Value::List(_)) {
            return Choice(&[("all", Stamps::ALL)]).read(node, path, sink);
        }
        let mut stamps = Stamps::NONE;
        for (index, node) in items(node, path, sink)?.iter().enumerate() {
            let path = &path.item(index);
            let Some((name, _)) = scalar(node, path, sink, "the name of a stamp") else { continue };
            match Stamp::ALL.into_iter().find(|stamp| stamp.as_str() == name) {
                Some(stamp) if stamps.contains(stamp) => sink.add(node.place, path, format!("{name:?} is there twice")),
                Some(stamp) => stamps = stamps.with(stamp),
                None => {
                    let names = Stamp::ALL.map(Stamp::as_str);
                    let reason = format!("{} is not known here; known are {}", quoted(name), names.join(", "));
                    sink.add_unknown(node.place, path, reason, name, &names);
                }
            }
        }
        Some(stamps)
    }

    fn schema(&self) -> Json {
        let names = Stamp::ALL.map(Stamp::as_str);
        json!({ "anyOf": [{ "const": "all" }, { "type": "array", "items": { "enum": names }, "uniqueItems": true }] })
    }

    fn show(&self, _: &Stamps) -> Json {
        Json::Null
    }
}

/// A JSON document: in the file itself, or in a file of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    Inline(Json),
    File(PathBuf),
}

/// A mapping is the document, a text is the path of its file.
pub(crate) struct DocumentKind;

impl Kind for DocumentKind {
    type Out = Document;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Document> {
        match node.value {
            Value::Map(_) => to_json(node, path, sink).map(Document::Inline),
            _ => PATH.read(node, path, sink).map(Document::File),
        }
    }

    fn schema(&self) -> Json {
        json!({ "type": ["object", "string"] })
    }

    fn show(&self, _: &Document) -> Json {
        Json::Null
    }
}

/// The node as JSON. Depth is bounded by the tree's.
pub(crate) fn to_json(node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Json> {
    match &node.value {
        Value::Reported => None,
        Value::Scalar(text, Style::Plain) => plain_to_json(text, node, path, sink),
        Value::Scalar(text, _) => Some(json!(text)),
        Value::List(nodes) => {
            let convert = |(index, node)| to_json(node, &path.item(index), sink);
            nodes.iter().enumerate().map(convert).collect::<Option<Vec<_>>>().map(Json::Array)
        }
        Value::Map(_) => {
            let entries = mapping(node, path, sink)?.iter();
            let convert = |(key, node): &(crate::tree::Key<'_>, Node<'_>)| {
                let value = to_json(node, &path.field(&key.text), sink)?;
                Some((key.text.to_string(), value))
            };
            entries.map(convert).collect::<Option<_>>().map(Json::Object)
        }
    }
}

fn plain_to_json(plain: &str, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Json> {
    match plain {
        "true" => return Some(json!(true)),
        "false" => return Some(json!(false)),
        _ if is_null(plain) => return Some(Json::Null),
        _ => {}
    }
    match serde_json::from_str::<Number>(plain) {
        Ok(number) => Some(Json::Number(number)),
        Err(_) => text(node, path, sink, "a number as JSON has it, or text").map(|text| json!(text)),
    }
}

/// A number from 0, with a decimal part if need be.
pub(crate) struct Tolerance;

impl Kind for Tolerance {
    type Out = f64;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<f64> {
        let (text, style) = scalar(node, path, sink, "a number")?;
        // The first character keeps out signs, so -0 too, and the names of what is not finite.
        let number = if text.starts_with(|c: char| c.is_ascii_digit()) { text.parse::<f64>().ok() } else { None };
        let good = number.filter(|number| number.is_finite() && style != Style::Quoted);
        if good.is_none() {
            sink.add(node.place, path, format!("is {}; expected a finite number from 0, without quotes", quoted(text)));
        }
        good
    }

    fn schema(&self) -> Json {
        json!({ "type": "number", "minimum": 0 })
    }

    fn show(&self, value: &f64) -> Json {
        json!(value)
    }
}
