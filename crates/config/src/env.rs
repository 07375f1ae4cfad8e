//! Environment overrides: `HOLDFAST__LIMITS__BODY=1MiB` sets `limits.body`.
//!
//! An override changes the tree before it is read, so it is checked by the same rules as the file and its faults name the variable. The
//! parts of a name are fields in any case; an item of a list that is there is named by its index from 0. Values are scalars.

use std::borrow::Cow;

use crate::fault::Sink;
use crate::path::Path;
use crate::tree::{Key, Node, Place, Style, Value, is_null};

/// What the name of every override starts with.
pub const PREFIX: &str = "HOLDFAST__";

/// Applies the overrides in the order of their names, so that the order of the environment does not matter.
pub(crate) fn apply<'t>(tree: &mut Node<'t>, environment: &'t [(String, String)], sink: &mut Sink<'_>) {
    let mut overrides: Vec<(usize, &str, &str)> = Vec::new();
    for (index, (name, value)) in environment.iter().enumerate() {
        if let Some(rest) = name.strip_prefix(PREFIX) {
            overrides.push((index, rest, value));
        }
    }
    overrides.sort_by_key(|(_, name, _)| *name);
    for (index, name, value) in overrides {
        let place = Place::environment(u32::try_from(index).unwrap_or(u32::MAX));
        let parts: Vec<String> = name.split("__").map(str::to_ascii_lowercase).collect();
        if parts.iter().any(String::is_empty) || parts.len() > 16 {
            sink.add(
                place,
                &Path::Root,
                "is not the name of a field; write HOLDFAST__ and the fields with __ between them",
            );
            continue;
        }
        set(tree, &parts, &Path::Root, place, value, sink);
    }
}

fn set<'t>(node: &mut Node<'t>, parts: &[String], path: &Path<'_>, place: Place, value: &'t str, sink: &mut Sink<'_>) {
    let Some((part, rest)) = parts.split_first() else {
        *node = Node { place, value: Value::Scalar(Cow::Borrowed(value), Style::Environment) };
        return;
    };
    open(node, path);
    match &mut node.value {
        Value::Map(entries) => {
            let index = entries.iter().position(|(key, _)| key.text.eq_ignore_ascii_case(part)).unwrap_or_else(|| {
                let empty = Node { place, value: Value::Map(Vec::new()) };
                entries.push((Key { text: Cow::Owned(part.clone()), place, is_reported: false }, empty));
                entries.len() - 1
            });
            if let Some((key, child)) = entries.get_mut(index) {
                let name = key.text.to_string();
                set(child, rest, &path.field(&name), place, value, sink);
            }
        }
        Value::List(items) => match part.parse::<usize>().ok().and_then(|index| Some((index, items.get_mut(index)?))) {
            Some((index, child)) => set(child, rest, &path.item(index), place, value, sink),
            None => {
                let reason = format!("has {} items, numbered from 0; {part:?} is none of them", items.len());
                sink.add(place, path, reason);
            }
        },
        Value::Scalar(..) => sink.add(place, path, format!("is a single value in the file; it has no field {part:?}")),
        Value::Reported => {}
    }
}

/// Makes room for a field: in nothing, and in the short form of `listen.admin`.
fn open<'t>(node: &mut Node<'t>, path: &Path<'_>) {
    let place = node.place;
    match &mut node.value {
        Value::Scalar(text, Style::Plain) if is_null(text) => node.value = Value::Map(Vec::new()),
        Value::Scalar(text, style) if matches!(path, Path::Field(Path::Field(Path::Root, "listen"), "admin")) => {
            let address = Node { place, value: Value::Scalar(std::mem::take(text), *style) };
            node.value = Value::Map(vec![(Key { text: "address".into(), place, is_reported: false }, address)]);
        }
        _ => {}
    }
}
