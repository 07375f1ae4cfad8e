//! What a gateway holds, part by part, without any socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;

use holdfast_config::ResourceKind;
use holdfast_digest::{Digest, of_space};
use holdfast_testkit::TempDir;
use holdfast_types::Revision;
use holdfast_wire::held::{Assembly, Held, Refusal, Stamp, Taken};
use holdfast_wire::proto::{Edit, Head, TablePart, Tail};
use holdfast_wire::saved::Folder;

type Content = BTreeMap<(String, String), Vec<u8>>;

fn stamp(revision: u64, content: &Content) -> Stamp {
    let digest = of_space(content.iter().map(|(key, value)| (key, value.as_slice())));
    Stamp { revision: Revision(revision), digest }
}

fn put(kind: &str, name: &str, value: &str) -> Edit {
    Edit { kind: kind.to_owned(), name: name.to_owned(), value: Some(value.to_owned().into()) }
}

fn take_away(kind: &str, name: &str) -> Edit {
    Edit { kind: kind.to_owned(), name: name.to_owned(), value: None }
}

fn apply(content: &mut Content, edits: &[Edit]) {
    for edit in edits {
        let key = (edit.kind.clone(), edit.name.clone());
        match &edit.value {
            Some(value) => content.insert(key, value.to_vec()),
            None => content.remove(&key),
        };
    }
}

fn one(makes: Stamp, base: Option<Stamp>, edits: Vec<Edit>) -> TablePart {
    let tail = Some(Tail { edits: edits.len() as u64, orders: None });
    TablePart { head: Some(Head { makes: Some(makes.wire()), base: base.map(Stamp::wire) }), edits, tail }
}

fn taken(held: &Held, part: TablePart) -> Held {
    match Assembly::default().take(held, part) {
        Ok(Taken::New(held, _)) => *held,
        other => panic!("{other:?}"),
    }
}

fn refused(held: &Held, part: TablePart) -> Refusal {
    Assembly::default().take(held, part).unwrap_err()
}

fn first() -> (Held, Content) {
    let edits = vec![put("pin", "a/m", r#""1""#), put("quota", "a", r#"{"later":true}"#)];
    let mut content = Content::new();
    apply(&mut content, &edits);
    (taken(&Held::default(), one(stamp(5, &content), None, edits)), content)
}

#[test]
fn a_kind_of_a_later_release_counts_for_the_digest_and_routes_nothing() {
    let (held, mut content) = first();
    assert_eq!((held.table().entries.len(), held.foreign()), (1, 1));
    assert!(held.table().entries.get(ResourceKind::Pin, "a/m").is_some());
    // It is still there after a restart, and a deletion of it is a change like any other.
    let dir = TempDir::new();
    let folder = Folder::open(dir.path()).unwrap();
    folder.save(&held).unwrap();
    let held = folder.load().unwrap().unwrap();
    assert_eq!((held.stamp(), held.foreign()), (Some(stamp(5, &content)), 1));
    let edits = vec![take_away("quota", "a"), put("quota", "b", "1"), put("pin", "b/m", r#""1""#)];
    apply(&mut content, &edits);
    let held = taken(&held, one(stamp(6, &content), held.stamp(), edits));
    assert_eq!((held.table().entries.len(), held.foreign()), (2, 1));
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_held_stays() {
    let (held, content) = first();
    let (has, mut next) = (stamp(5, &content), content.clone());
    let edits = vec![take_away("pin", "a/m")];
    apply(&mut next, &edits);
    let makes = stamp(6, &next);
    let older = refused(&held, one(stamp(4, &next), None, vec![]));
    assert_eq!(older, Refusal::Older { offered: Revision(4), has: Revision(5) });
    assert_eq!(refused(&held, one(stamp(5, &next), None, vec![])), Refusal::OtherContent(Revision(5)));
    let other = Stamp { digest: Digest([1; 32]), ..has };
    assert_eq!(refused(&held, one(makes, Some(other), edits.clone())), Refusal::OtherBase { base: Revision(5) });
    assert_eq!(
        refused(&Held::default(), one(makes, Some(has), edits.clone())),
        Refusal::OtherBase { base: Revision(5) }
    );
    let missing = refused(&held, one(makes, Some(has), vec![]));
    assert_eq!(missing, Refusal::Digest { revision: Revision(6), whole: false });
    assert!(matches!(refused(&held, one(makes, None, vec![])), Refusal::Digest { whole: true, .. }));
    let mut short = one(makes, Some(has), edits.clone());
    short.tail.as_mut().unwrap().edits = 2;
    assert!(matches!(refused(&held, short), Refusal::Malformed(_)));
    assert!(matches!(refused(&held, one(makes, Some(has), vec![put("pin", "x", "{")])), Refusal::Malformed(_)));
    assert!(matches!(
        refused(&held, TablePart { edits: edits.clone(), ..TablePart::default() }),
        Refusal::Malformed(_)
    ));
    let no_base = TablePart {
        head: Some(Head { makes: Some(makes.wire()), base: Some(Default::default()) }),
        ..Default::default()
    };
    assert!(matches!(refused(&held, no_base), Refusal::Malformed(_)));
    assert!(matches!(Assembly::default().take(&held, one(has, None, vec![])), Ok(Taken::Same(None))));
    assert_eq!(taken(&held, one(makes, Some(has), edits)).stamp(), Some(makes));
}

#[test]
fn the_parts_of_a_refused_table_pass_by_and_the_next_table_is_taken() {
    let (held, content) = first();
    let mut assembly = Assembly::default();
    let head = Head { makes: Some(stamp(3, &content).wire()), base: None };
    assert!(assembly.take(&held, TablePart { head: Some(head), ..TablePart::default() }).is_err());
    let rest = TablePart { edits: vec![put("pin", "x", "{")], ..TablePart::default() };
    assert!(matches!(assembly.take(&held, rest), Ok(Taken::More)));
    let end = TablePart { tail: Some(Tail { edits: 1, orders: None }), ..TablePart::default() };
    assert!(matches!(assembly.take(&held, end), Ok(Taken::More)));
    let edits = vec![put("pin", "a/m", r#""1""#)];
    let mut next = Content::new();
    apply(&mut next, &edits);
    assert!(matches!(assembly.take(&held, one(stamp(6, &next), None, edits)), Ok(Taken::New(..))));
}

proptest! {
    /// However a table is cut into parts, and wherever the link breaks: it is taken whole or not at all.
    #[test]
    fn cut_anywhere_a_table_is_taken_whole_or_not_at_all(
        names in prop::collection::btree_set("[a-z]{1,3}", 1..40),
        cuts in prop::collection::vec(1..8_usize, 1..12),
        lost_after in 0..20_usize,
    ) {
        let (held, mut content) = first();
        let edits: Vec<_> = names.iter().map(|name| put(if name.len() == 1 { "quota" } else { "pin" }, name, "1")).collect();
        apply(&mut content, &edits);
        let makes = stamp(6, &content);
        let (mut parts, mut left, mut cuts) = (Vec::new(), edits.as_slice(), cuts.iter().cycle());
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(*cuts.next().unwrap()));
            parts.push(TablePart { edits: now.to_vec(), ..TablePart::default() });
            left = later;
        }
        parts[0].head = Some(Head { makes: Some(makes.wire()), base: held.stamp().map(Stamp::wire) });
        parts.last_mut().unwrap().tail = Some(Tail { edits: edits.len() as u64, orders: None });
        let (count, mut assembly, mut got) = (parts.len(), Assembly::default(), None);
        for part in parts.into_iter().take(lost_after) {
            if let Taken::New(held, _) = assembly.take(&held, part).unwrap() {
                got = Some(*held);
            }
        }
        prop_assert_eq!(got.and_then(|held| held.stamp()), (lost_after >= count).then_some(makes));
    }
}
