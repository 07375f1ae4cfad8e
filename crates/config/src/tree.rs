//! YAML text to a tree in which every value and key knows its place.
//!
//! A subset of YAML 1.2, chosen so that one fault has one place and a small file cannot grow: one document, text keys, no tags, and no
//! anchors and aliases. Scalars keep their source text; what they mean depends on what the reader expects there, so `1.10` never becomes
//! `1.1`. Syntax ends at the first error, because what follows it cannot be told apart from its consequences.

use std::borrow::Cow;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use crate::fault::Sink;
use crate::path::Path;

/// The most bytes of a configuration file.
pub const MAX_TEXT: usize = 256 << 20;
/// The most values and keys in a configuration file: a bound on memory, about 64 bytes each.
pub const MAX_VALUES: usize = 20_000_000;
/// The deepest nesting of lists and mappings.
const MAX_DEPTH: usize = 64;

/// A position. Ordered as a person reads: the file from top to bottom, then the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) origin: Origin,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// Which source a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The file, at a byte offset.
    File { offset: u32 },
    /// A variable, by its index in the list that the caller gave.
    Environment { index: u32 },
}

impl Place {
    pub(crate) const START: Self = Self { origin: Origin::File { offset: 0 }, line: 1, column: 1 };

    pub(crate) const fn environment(index: u32) -> Self {
        Self { origin: Origin::Environment { index }, line: 1, column: 1 }
    }

    fn of(mark: &granit_parser::Marker) -> Self {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let offset = number(mark.byte_offset().unwrap_or(0));
        Self {
            origin: Origin::File { offset },
            line: number(mark.line()).max(1),
            column: number(mark.col()).saturating_add(1),
        }
    }
}

/// A value and where it starts.
#[derive(Debug)]
pub(crate) struct Node<'t> {
    pub(crate) place: Place,
    pub(crate) value: Value<'t>,
}

#[derive(Debug)]
pub(crate) enum Value<'t> {
    Scalar(Cow<'t, str>, Style),
    List(Vec<Node<'t>>),
    Map(Vec<(Key<'t>, Node<'t>)>),
    /// Something that has been reported already; readers pass over it in silence.
    Reported,
}

/// How a scalar was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Without quotes: may be a number, a truth value or null.
    Plain,
    /// In quotes or as a block: text.
    Quoted,
    /// The value of a variable: whatever is expected.
    Environment,
}

#[derive(Debug)]
pub(crate) struct Key<'t> {
    pub(crate) text: Cow<'t, str>,
    pub(crate) place: Place,
    /// It is no text, and that has been reported: readers pass over the entry in silence.
    pub(crate) is_reported: bool,
}

impl<'t> From<Node<'t>> for Key<'t> {
    fn from(node: Node<'t>) -> Self {
        let (text, is_reported) = match node.value {
            Value::Scalar(text, _) => (text, false),
            _ => ("?".into(), true),
        };
        Self { text, place: node.place, is_reported }
    }
}

impl<'t> Node<'t> {
    /// Where the value at the path is, or the nearest one above it that exists.
    pub(crate) fn place_of(&self, path: &Path<'_>) -> Place {
        self.descend(path).map_or_else(|above| above, |node| node.place)
    }

    /// Whether the file or the environment has something at the path.
    pub(crate) fn has(&self, path: &Path<'_>) -> bool {
        self.descend(path).is_ok()
    }

    fn descend(&self, path: &Path<'_>) -> Result<&Self, Place> {
        let (parent, next) = match path {
            Path::Root => return Ok(self),
            Path::Field(parent, _) | Path::Item(parent, _) => (parent, path),
        };
        let node = self.descend(parent)?;
        let found = match (&node.value, next) {
            (Value::Map(entries), Path::Field(_, name)) => {
                entries.iter().find(|(key, _)| key.text == *name).map(|(_, node)| node)
            }
            (Value::List(items), Path::Item(_, index)) => items.get(*index),
            _ => None,
        };
        found.ok_or(node.place)
    }
}

/// Reads the text. None if its syntax is broken; the fault is in the sink then. An empty file is an empty mapping.
pub(crate) fn parse<'t>(text: &'t str, sink: &mut Sink<'_>) -> Option<Node<'t>> {
    if text.len() > MAX_TEXT {
        let reason = format!("has {} bytes; the most is {MAX_TEXT}", text.len());
        sink.add(Place::START, &Path::Root, reason);
        return None;
    }
    let mut builder = Builder { frames: Vec::new(), root: None, values: 0 };
    for event in Parser::new_from_str_with_options(text, options()) {
        match event {
            Ok((event, span)) => builder.take(event, span, sink)?,
            Err(error) => {
                let reason = format!("is not YAML: {}", error.info());
                sink.add(Place::of(error.marker()), &Path::Root, reason);
                return None;
            }
        }
    }
    let nothing = || Node { place: Place::START, value: Value::Map(Vec::new()) };
    let root = builder.root.unwrap_or_else(nothing);
    let is_empty = matches!(&root.value, Value::Scalar(text, Style::Plain) if is_null(text));
    Some(if is_empty { nothing() } else { root })
}

/// Whether a plain scalar is YAML's null.
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn options() -> Options {
    let mut options = Options::default();
    options.emit_unresolved_aliases = true;
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    options.set_emit_comments(false);
    options
}

/// A list or mapping that is still open.
enum Frame<'t> {
    List { place: Place, items: Vec<Node<'t>> },
    Map { place: Place, entries: Vec<(Key<'t>, Node<'t>)>, key: Option<Key<'t>> },
}

struct Builder<'t> {
    frames: Vec<Frame<'t>>,
    root: Option<Node<'t>>,
    values: usize,
}

impl<'t> Builder<'t> {
    /// None: stop, the reason is in the sink.
    fn take(&mut self, event: Event<'t>, span: Span, sink: &mut Sink<'_>) -> Option<()> {
        let place = Place::of(&span.start);
        if event.is_node() {
            self.values += 1;
            if self.values > MAX_VALUES {
                sink.add(place, &Path::Root, format!("there are more than {MAX_VALUES} values in the file"));
                return None;
            }
        }
        if event.tag().is_some() {
            let place = span.tag_start().map_or(place, |mark| Place::of(&mark));
            self.report(place, sink, "has a tag; tags are not read here");
        }
        match event {
            Event::Scalar(_, _, _, Some(_)) => self.put(Node { place, value: Value::Reported }, sink),
            Event::Scalar(text, style, ..) => {
                let style = if style == ScalarStyle::Plain { Style::Plain } else { Style::Quoted };
                self.put(Node { place, value: Value::Scalar(text, style) }, sink);
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.report(place, sink, "is an alias; write the value out, so that a fault in it has one place");
                self.put(Node { place, value: Value::Reported }, sink);
            }
            Event::SequenceStart(..) => self.frames.push(Frame::List { place, items: Vec::new() }),
            Event::MappingStart(..) => self.frames.push(Frame::Map { place, entries: Vec::new(), key: None }),
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.frames.pop()? {
                    Frame::List { place, items } => Node { place, value: Value::List(items) },
                    Frame::Map { place, entries, .. } => Node { place, value: Value::Map(entries) },
                };
                self.put(node, sink);
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                sink.add(place, &Path::Root, "a second document starts here; a configuration is one document");
                return None;
            }
            _ => {}
        }
        Some(())
    }

    /// Adds a whole value, or a key, to what is open.
    fn put(&mut self, node: Node<'t>, sink: &mut Sink<'_>) {
        let is_key = matches!(self.frames.last(), Some(Frame::Map { key: None, .. }));
        if is_key && matches!(node.value, Value::List(_) | Value::Map(_)) {
            self.report(node.place, sink, "has a list or mapping as a key; keys are text");
        }
        match self.frames.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { entries, key, .. }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => *key = Some(Key::from(node)),
            },
        }
    }

    fn report(&self, place: Place, sink: &mut Sink<'_>, reason: &str) {
        add_at(&self.frames, &Path::Root, place, sink, reason);
    }
}

/// Follows the open frames to the path of the value that is being read.
fn add_at(frames: &[Frame<'_>], path: &Path<'_>, place: Place, sink: &mut Sink<'_>, reason: &str) {
    match frames.split_first() {
        None => sink.add(place, path, reason),
        Some((Frame::List { items, .. }, rest)) => add_at(rest, &path.item(items.len()), place, sink, reason),
        Some((Frame::Map { key: Some(key), .. }, rest)) => add_at(rest, &path.field(&key.text), place, sink, reason),
        Some((Frame::Map { key: None, .. }, _)) => sink.add(place, path, reason),
    }
}
