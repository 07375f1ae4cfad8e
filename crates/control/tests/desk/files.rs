//! Files: the first content of a store, or the truth.

use std::sync::Arc;

use holdfast_config::{Frame, Source, Truth as Owner, split};
use holdfast_control::desk::{Adopted, Desk, DeskError, DeskSettings, Retired};
use holdfast_store::{Change, Commit, Edit, Json, Key, Place, Purpose, Space};
use holdfast_types::Revision;

use crate::bench::{Bench, TEXT, ask, desk, file, frame, pin, pins, promises};
use crate::unsteady::{Next, Unsteady};

pub async fn a_file_seeds_an_empty_store_once(bench: Bench) {
    let (store, _) = bench.store().await;
    let first = desk(&store, Owner::Store).await;
    assert_eq!(first.truth().head.revision, Revision(0));
    let seeded = first.adopt_file(file(TEXT), frame(TEXT), 7, Retired::new(), None).await.unwrap();
    let Adopted::Seeded(done) = seeded else { panic!("{seeded:?}") };
    assert_eq!((done.revision, done.changes.len(), done.pending.len()), (Some(Revision(1)), 11, 0));
    assert_eq!(pins(&first.truth().in_force), "a/m=1 b/m=1");
    let header = first.history(None, 9).await.unwrap().remove(0);
    assert_eq!((header.author.as_str(), header.at_ms, header.edits), ("file", 7, 22));
    // Who found the store empty too looks again.
    let late = desk(&store, Owner::Store).await;
    let unsteady = Unsteady::over(bench.store().await.0);
    let early = desk(&(unsteady.clone() as _), Owner::Store).await;
    unsteady.next([Next::Meanwhile(seed_of_another())]);
    let adopted = early.adopt_file(file(TEXT), frame(TEXT), 7, Retired::new(), None).await.unwrap();
    assert_eq!((adopted, early.truth().desired.len()), (Adopted::SettingsOnly, 2));
    assert_eq!(late.truth().head, first.truth().head);
    // Another file, and another start: only its settings are looked at.
    let other = TEXT.replace("m: '1'", "m: '2'").replace("x-tenant", "x-other");
    let again = desk(&store, Owner::Store).await;
    let adopted = again.adopt_file(file(&other), frame(&other), 8, Retired::new(), None).await.unwrap();
    assert_eq!(adopted, Adopted::SettingsOnly);
    assert_eq!(again.truth().head.revision, Revision(1));
    assert_eq!(again.frame().rest["auth"]["trusted_header"], "x-other");
    promises(&again).await;
}

fn seed_of_another() -> Commit {
    let edit = |space, kind: &str, name, value: serde_json::Value| Edit {
        place: Place { space, key: Key::new(kind, name).unwrap() },
        value: Some(Json::of(&value).unwrap()),
    };
    let pool = serde_json::json!({ "protocol": "open-inference", "residency": "repository" });
    let replica = serde_json::json!({ "url": "http://127.0.0.1:1" });
    let both = |space| [edit(space, "pool", "z", pool.clone()), edit(space, "replica", "z/r", replica.clone())];
    let edits = Space::ALL.into_iter().flat_map(both).collect();
    let (author, reason, base) = ("file".to_owned(), String::new(), Some(Revision(0)));
    let change = Change { purpose: Purpose::Change, base, author, reason, at_ms: 1, edits };
    Commit { change: Some(change), ..Commit::default() }
}

pub async fn where_the_file_is_the_truth_it_is_asked_for_as_a_whole(bench: Bench) {
    let (store, _) = bench.store().await;
    let desk = desk(&store, Owner::File).await;
    let offer = async |text: &str| desk.adopt_file(file(text), frame(text), 7, Retired::new(), None).await;
    offer(TEXT).await.unwrap();
    assert!(matches!(desk.change(ask(vec![pin("a/m", "2")])).await, Err(DeskError::FileTruth)));
    let Adopted::Taken(done) = offer(&TEXT.replace("b, pins: { m: '1' }", "b, pins: { m: '2' }")).await.unwrap() else {
        panic!()
    };
    assert_eq!((done.revision, done.changes.len(), done.pending.len()), (Some(Revision(2)), 1, 1));
    assert_eq!(
        (pins(&desk.truth().desired), pins(&desk.truth().in_force)),
        ("a/m=1 b/m=2".into(), "a/m=1 b/m=1".into())
    );
    let same = offer(&TEXT.replace("b, pins: { m: '1' }", "b, pins: { m: '2' }")).await.unwrap();
    assert!(matches!(same, Adopted::Taken(done) if done.revision.is_none() && done.changes.is_empty()));
    // An emptied file is refused, and so are its settings.
    let emptied = "auth: { trusted_header: x-empty }\n";
    let Err(DeskError::Invalid(faults)) = offer(emptied).await else { panic!() };
    assert_eq!(faults[0].path, "pools");
    assert_eq!(desk.frame().rest["auth"]["trusted_header"], "x-tenant");
    assert_eq!(desk.truth().head.revision, Revision(2));
    promises(&desk).await;
}

pub async fn golden_questions_need_no_file_afterwards(bench: Bench) {
    let (store, _) = bench.store().await;
    let text = TEXT.replace(
        "{ version: '1', size: 1 }",
        "{ version: '1', size: 1, golden: [{ input: in.json, output: { y: 1 } }] }",
    );
    let read_file = |_: &std::path::Path| Ok(b"{\"x\": [0.5, \"q\"]}".to_vec());
    let taken = split(&Source { read_file: &read_file, ..Source::text("c.yaml", &text) }).unwrap();
    let frame = Frame { read_file: Arc::new(read_file), ..Frame::new(taken.rest.clone()) };
    let first = desk(&store, Owner::Store).await;
    first.adopt_file(taken, frame, 7, Retired::new(), None).await.unwrap();
    // This one has no files.
    let other = desk(&store, Owner::Store).await;
    let version = other.truth().in_force.get(holdfast_config::ResourceKind::Version, "m/1").unwrap().clone();
    assert_eq!(version["golden"][0]["input"], serde_json::json!({ "x": [0.5, "q"] }));
    other.change(ask(vec![pin("c/m", "1")])).await.unwrap();
    promises(&other).await;
}

pub async fn a_large_first_content_is_parted_and_can_be_interrupted(bench: Bench) {
    let tenants: String = (0..1_200).map(|n| format!("  - {{ name: t{n}, pins: {{ m: '1' }} }}\n")).collect();
    let text = format!("{TEXT}{tenants}");
    let (store, _) = bench.store().await;
    let unsteady = Unsteady::over(store.clone());
    let settings = DeskSettings { edits: 1_000, ..DeskSettings::default() };
    let start = async |store| Desk::open(store, frame(TEXT), settings.clone()).await.unwrap();
    let first = start(unsteady.clone()).await;
    unsteady.next([Next::Through, Next::Through, Next::Down]);
    let offer = async |desk: &Desk| desk.adopt_file(file(&text), frame(&text), 7, Retired::new(), None).await;
    assert!(matches!(offer(&first).await, Err(DeskError::Unavailable(_))));
    assert_eq!(store.head().await.unwrap().revision, Revision(2), "what was written is a good configuration by itself");
    promises(&first).await;
    // The next process goes on, and knows the end.
    let second = start(store.clone()).await;
    assert!(matches!(offer(&second).await.unwrap(), Adopted::Seeded(_)));
    assert_eq!(second.truth().in_force.resources(), file(&text).resources);
    assert_eq!(second.truth().desired, second.truth().in_force);
    assert_eq!(offer(&second).await.unwrap(), Adopted::SettingsOnly);
    promises(&second).await;
}
