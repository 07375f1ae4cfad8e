use super::*;
use crate::model::Purpose;
use holdfast_testkit::TempDir;

fn past(name: &str, revision: u64, value: Option<&str>) -> Item {
    let place = Place { space: Space::Desired, key: Key::new("pin", name).unwrap() };
    Item::Past(Past { place, revision: Revision(revision), value: value.map(|v| Json::of(&v).unwrap()) })
}

fn header(revision: u64) -> Item {
    let (author, reason) = ("ann".to_owned(), String::new());
    let digests = Digests::default();
    let (revision, parent, purpose) = (Revision(revision), Revision(0), Purpose::Change);
    Item::Header(Box::new(Header {
        revision,
        purpose,
        parent,
        author,
        reason,
        at_ms: 1,
        edits: 1,
        term: None,
        digests,
    }))
}

fn record(version: u64) -> Item {
    let (kind, id) = ("rollout".to_owned(), "a".to_owned());
    Item::Record(Record { kind, id, version, value: Json::of(&1).unwrap() })
}

/// The state after `a` became 1, then 2, and `b` came and went.
fn state() -> Item {
    let mut state = State { records: 3, ..State::default() };
    let key = Key::new("pin", "a").unwrap();
    state.head.revision = Revision(3);
    state.head.digests.desired = digest::of_space([(&key, b"\"2\"".as_slice())]);
    Item::State(Box::new(state))
}

fn whole() -> Vec<Item> {
    let rows = [past("a", 1, Some("1")), past("a", 3, Some("2")), past("b", 1, Some("1")), past("b", 2, None)];
    [vec![state(), header(1), header(2), header(3)], rows.to_vec(), vec![record(2)]].concat()
}

/// Writes the items with a right checksum, whatever they say, and checks the file.
fn check(items: &[Item]) -> Result<Verified> {
    let dir = TempDir::new();
    let file = dir.join("backup");
    let mut writer = Writer::create(&file).unwrap();
    items.iter().try_for_each(|item| writer.item(item)).unwrap();
    writer.finish().unwrap();
    verify(&file)
}

#[test]
fn a_whole_backup_is_taken() {
    let verified = check(&whole()).unwrap();
    assert_eq!((verified.summary.headers, verified.summary.edits, verified.summary.records), (3, 4, 1));
    assert_eq!(verified.buckets.len(), 1, "what came and went has no bucket");
}

/// A right checksum says that the file is what was written, not that what was written is a store.
#[test]
fn what_does_not_agree_with_itself_is_refused() {
    type Spoil = fn(&mut Vec<Item>);
    let spoils: [(&str, Spoil); 9] = [
        ("another value", |items| items[5] = past("a", 3, Some("3"))),
        ("a row too few", |items| drop(items.remove(7))),
        ("rows out of order", |items| items.swap(4, 5)),
        ("a row twice", |items| items.insert(5, items[4].clone())),
        ("a row from the future", |items| items[5] = past("a", 4, Some("2"))),
        ("a gap in the headers", |items| drop(items.remove(2))),
        ("the last header is missing", |items| drop(items.remove(3))),
        ("a record from the future", |items| items[8] = record(4)),
        ("two states", |items| items.push(state())),
    ];
    for (what, spoil) in spoils {
        let mut items = whole();
        spoil(&mut items);
        let refused = check(&items).map(|verified| verified.summary);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{what}: {refused:?}");
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let dir = TempDir::new();
    let mut writer = Writer::create(&dir.join("backup")).unwrap();
    writer.item(&state()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
