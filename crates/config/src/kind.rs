//! What a field may hold: one object per field that reads it, describes it as JSON Schema, and writes a default as a file would have it.
//!
//! A reader never stops at a fault: it reports and answers None, and the section goes on with the field's default, so that the checks after
//! it see as much of the file as can be seen.

use serde_json::{Value as Json, json};

use crate::fault::{Sink, quoted};
use crate::path::Path;
use crate::tree::{Key, Node, Style, Value, is_null};

/// What one field may hold.
pub(crate) trait Kind {
    /// What it is in the program.
    type Out;
    /// Reads a value that is there. None: it is faulty, and that is reported.
    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out>;
    /// JSON Schema of the value.
    fn schema(&self) -> Json;
    /// The value as a file has it. Null where a default has nothing to show.
    fn show(&self, value: &Self::Out) -> Json;
    /// Whether the field must be there.
    fn is_required(&self) -> bool {
        false
    }
}

/// The text of a scalar that is not null, and how it was written. `want` finishes the sentence "expected ...".
pub(crate) fn scalar<'n>(
    node: &'n Node<'_>,
    path: &Path<'_>,
    sink: &mut Sink<'_>,
    want: &str,
) -> Option<(&'n str, Style)> {
    let what = match &node.value {
        Value::Reported => return None,
        Value::Scalar(text, Style::Plain) if is_null(text) => "has no value",
        Value::Scalar(text, style) => return Some((text, *style)),
        Value::List(_) => "is a list",
        Value::Map(_) => "is a mapping",
    };
    sink.add(node.place, path, format!("{what}; expected {want}"));
    None
}

/// Text: quoted, or plain and not a number or a truth value to other readers of YAML.
pub(crate) fn text<'n>(node: &'n Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>, want: &str) -> Option<&'n str> {
    let (text, style) = scalar(node, path, sink, want)?;
    let what = match style {
        Style::Quoted | Style::Environment => return Some(text),
        Style::Plain if is_flag(text) => "a truth value",
        Style::Plain if is_number(text) => "a number",
        Style::Plain => return Some(text),
    };
    sink.add(node.place, path, format!("is {what} in YAML; expected {want}: put {} in quotes", quoted(text)));
    None
}

fn is_flag(text: &str) -> bool {
    matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
}

/// YAML 1.2 core schema, 10.3.2: integers in three bases and floats.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = |t: &str, radix| !t.is_empty() && t.chars().all(|c| c.is_digit(radix));
    if let Some(hex) = unsigned.strip_prefix("0x") {
        return digits(hex, 16);
    }
    if let Some(octal) = unsigned.strip_prefix("0o") {
        return digits(octal, 8);
    }
    let named = matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN");
    named || (unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') && unsigned.parse::<f64>().is_ok())
}

/// The entries of a mapping. Reports a key that is there twice, at the second place, and other values.
pub(crate) fn mapping<'n, 't>(
    node: &'n Node<'t>,
    path: &Path<'_>,
    sink: &mut Sink<'_>,
) -> Option<&'n [(Key<'t>, Node<'t>)]> {
    let what = match &node.value {
        Value::Map(entries) => {
            report_duplicate_keys(entries, path, sink);
            return Some(entries);
        }
        Value::Reported => return None,
        Value::Scalar(text, Style::Plain) if is_null(text) => "has no value",
        Value::Scalar(..) => "is a single value",
        Value::List(_) => "is a list",
    };
    sink.add(node.place, path, format!("{what}; expected a mapping ({{}} for an empty one)"));
    None
}

fn report_duplicate_keys(entries: &[(Key<'_>, Node<'_>)], path: &Path<'_>, sink: &mut Sink<'_>) {
    if entries.len() < 2 {
        return;
    }
    let mut keys: Vec<&Key<'_>> = entries.iter().map(|(key, _)| key).filter(|key| !key.is_reported).collect();
    keys.sort_by_key(|key| (key.text.as_ref(), key.place));
    for [first, second] in keys.array_windows() {
        if first.text == second.text {
            sink.add(
                second.place,
                &path.field(&second.text),
                format!("is there twice, first on line {}", first.place.line),
            );
        }
    }
}

/// The items of a list.
pub(crate) fn items<'n, 't>(node: &'n Node<'t>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<&'n [Node<'t>]> {
    let what = match &node.value {
        Value::List(items) => return Some(items),
        Value::Reported => return None,
        Value::Scalar(text, Style::Plain) if is_null(text) => "has no value",
        Value::Scalar(..) => "is a single value",
        Value::Map(_) => "is a mapping",
    };
    sink.add(node.place, path, format!("{what}; expected a list ([] for an empty one)"));
    None
}

/// `true` or `false`.
pub(crate) struct Flag;

impl Kind for Flag {
    type Out = bool;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<bool> {
        let (text, style) = scalar(node, path, sink, "true or false")?;
        match text {
            "true" if style != Style::Quoted => Some(true),
            "false" if style != Style::Quoted => Some(false),
            _ => {
                sink.add(node.place, path, format!("is {}; expected true or false, without quotes", quoted(text)));
                None
            }
        }
    }

    fn schema(&self) -> Json {
        json!({ "type": "boolean" })
    }

    fn show(&self, value: &bool) -> Json {
        json!(value)
    }
}

/// One name out of a closed list.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Out = T;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<T> {
        let names = self.names();
        let want = names.join(", ");
        let (text, _) = scalar(node, path, sink, &want)?;
        if let Some((_, value)) = self.0.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let reason = match names.len() {
            1 => format!("{} is not known here; known is {want}", quoted(text)),
            _ => format!("{} is not known here; known are {want}", quoted(text)),
        };
        sink.add_unknown(node.place, path, reason, text, &names);
        None
    }

    fn schema(&self) -> Json {
        json!({ "enum": self.names() })
    }

    fn show(&self, value: &T) -> Json {
        self.0.iter().find(|(_, one)| one == value).map_or(Json::Null, |(name, _)| json!(name))
    }
}

impl<T> Choice<T> {
    fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_that_other_readers_take_for_a_number() {
        for text in ["1", "-1", "+1", "1.10", ".5", "1e3", "0x1f", "0o17", "012", ".inf", "-.inf", ".nan"] {
            assert!(is_number(text), "{text}");
        }
        for text in
            ["1.2.3", "v1", "2024-05-01", "nan", "inf", "infinity", "-", ".", "1_000", "e3", "0x", "127.0.0.1:7400"]
        {
            assert!(!is_number(text), "{text}");
        }
    }
}
