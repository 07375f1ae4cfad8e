//! A table, or what leads from one to another, as parts of bounded size.

use holdfast_plane::{Entries, Table};

use crate::held::{Stamp, put};
use crate::proto;

/// Edits of one part at most.
const PART_EDITS: usize = 2_000;
/// A part is closed when its names and values pass this. One value may be long, so a part may be longer by one.
const PART_BYTES: usize = 128 * 1024;

/// Parts, made one by one as they are sent.
pub(crate) struct Parts<E: Iterator<Item = proto::Edit>> {
    head: Option<proto::Head>,
    edits: std::iter::Peekable<E>,
    orders: Option<proto::Orders>,
    count: u64,
    done: bool,
}

/// What makes this table: upon a base, or upon nothing. `None`: there is no table, or its digest is none.
pub(crate) fn parts(
    base: Option<&Table>,
    to: &Table,
    orders: Option<proto::Orders>,
) -> Option<Parts<impl Iterator<Item = proto::Edit> + use<>>> {
    let (makes, base_stamp) = (Stamp::of(to)?, base.and_then(Stamp::of));
    let nothing = Entries::default();
    let from = base.filter(|_| base_stamp.is_some()).map_or(&nothing, |base| &base.entries);
    let edits = from.changes(&to.entries).into_iter().map(|edit| match &edit.value {
        Some(value) => put(edit.kind.as_str(), &edit.name, value),
        None => proto::Edit { kind: edit.kind.as_str().to_owned(), name: edit.name.to_string(), value: None },
    });
    Some(Parts::new(makes, base_stamp, edits, orders))
}

impl<E: Iterator<Item = proto::Edit>> Parts<E> {
    pub(crate) fn new(makes: Stamp, base: Option<Stamp>, edits: E, orders: Option<proto::Orders>) -> Self {
        let head = proto::Head { makes: Some(makes.wire()), base: base.map(Stamp::wire) };
        Self { head: Some(head), edits: edits.peekable(), orders, count: 0, done: false }
    }
}

impl<E: Iterator<Item = proto::Edit>> Iterator for Parts<E> {
    type Item = proto::TablePart;

    fn next(&mut self) -> Option<proto::TablePart> {
        if self.done {
            return None;
        }
        let (mut edits, mut bytes) = (Vec::new(), 0);
        while edits.len() < PART_EDITS && bytes < PART_BYTES {
            let Some(edit) = self.edits.next() else { break };
            bytes += edit.kind.len() + edit.name.len() + edit.value.as_ref().map_or(0, bytes::Bytes::len);
            edits.push(edit);
        }
        self.count += edits.len() as u64;
        self.done = self.edits.peek().is_none();
        let tail = self.done.then(|| proto::Tail { edits: self.count, orders: self.orders.take() });
        Some(proto::TablePart { head: self.head.take(), edits, tail })
    }
}
