use super::*;
use crate::model::Edit;

fn place(space: Space, name: &str) -> Place {
    Place { space, key: Key::new("pin", name).unwrap() }
}

fn edit(space: Space, name: &str, value: Option<&str>) -> Edit {
    Edit { place: place(space, name), value: value.map(|v| Json::of(&v).unwrap()) }
}

fn change(purpose: Purpose, base: Option<u64>, edits: Vec<Edit>) -> Change {
    let (author, reason) = ("ann".to_owned(), "why".to_owned());
    Change { purpose, base: base.map(Revision), author, reason, at_ms: 1, edits }
}

fn prepare(change: Change) -> Result<Prepared> {
    Prepared::of(Commit { change: Some(change), ..Commit::default() })
}

/// Applies a change to a state that is kept in memory, leaves and buckets included.
fn apply(state: &mut State, all: &mut Leaves, change: Change) -> Sealed {
    let prepared = prepare(change).unwrap();
    assert_eq!(prepared.admit(state).unwrap(), Admission::Go);
    let mut buckets: BTreeMap<Space, Buckets> = BTreeMap::new();
    for ((space, number), entries) in all.iter() {
        buckets.entry(*space).or_default().set(*number, digest::of_bucket(entries));
    }
    let sealed = prepared.change.unwrap().seal(state, None, all.clone(), buckets);
    for row in &sealed.rows {
        let entries = all.entry((row.place.space, row.bucket)).or_default();
        match &row.value {
            Some((_, leaf)) => entries.insert(row.place.key.clone(), *leaf),
            None => entries.remove(&row.place.key),
        };
    }
    sealed
}

#[test]
fn the_digest_follows_and_edits_without_effect_are_left_out() {
    let (mut state, mut leaves) = (State::default(), Leaves::new());
    let edits = vec![edit(Space::Desired, "a", Some("1")), edit(Space::InForce, "a", Some("1"))];
    let first = apply(&mut state, &mut leaves, change(Purpose::Change, Some(0), edits));
    assert_eq!((first.header.edits, first.header.parent, first.header.revision), (2, Revision(0), Revision(1)));
    let key = Key::new("pin", "a").unwrap();
    assert_eq!(state.head.digests.desired, digest::of_space([(&key, b"\"1\"".as_slice())]));
    assert_eq!(state.head.digests.desired, state.head.digests.in_force);

    let edits = vec![edit(Space::Desired, "a", Some("1")), edit(Space::Desired, "b", None)];
    let second = apply(&mut state, &mut leaves, change(Purpose::Change, Some(1), edits));
    assert_eq!((second.header.edits, state.head.desired, state.head.revision), (0, Revision(1), Revision(2)));
    assert_eq!(second.header.digests, first.header.digests);

    let edits = vec![edit(Space::Desired, "a", None), edit(Space::InForce, "a", None)];
    apply(&mut state, &mut leaves, change(Purpose::Change, Some(1), edits));
    assert_eq!(
        state.head.digests,
        State::default().head.digests,
        "an emptied space is like one that never had anything"
    );
}

/// What a change reads and writes is in proportion to the change, whatever the size of the store.
#[test]
fn one_edit_costs_one_bucket_in_a_large_store() {
    let (mut state, mut leaves) = (State::default(), Leaves::new());
    let many = (0..50_000).map(|n| edit(Space::Desired, &format!("t{n}"), Some("1"))).collect();
    apply(&mut state, &mut leaves, change(Purpose::Change, Some(0), many));

    let one = change(Purpose::Change, Some(1), vec![edit(Space::Desired, "t7", Some("2"))]);
    let draft = prepare(one.clone()).unwrap().change.unwrap();
    let touched = draft.touched();
    let keys: usize =
        touched.iter().flat_map(|(space, numbers)| numbers.iter().map(|n| leaves[&(*space, *n)].len())).sum();
    assert_eq!(touched.values().map(BTreeSet::len).sum::<usize>(), 1);
    assert!(keys < 50_000 / 400, "{keys} leaves are read");
    let sealed = apply(&mut state, &mut leaves, one);
    assert_eq!((sealed.rows.len(), sealed.buckets.len()), (1, 1));
}

#[test]
fn a_change_is_compared_with_what_changed_the_desired_space() {
    let mut state = State::default();
    (state.head.revision, state.head.desired) = (Revision(9), Revision(6));
    let admit = |purpose, base| {
        let edits = vec![edit(Space::InForce, "a", None)];
        prepare(change(purpose, base, edits)).and_then(|p| p.admit(&mut state.clone()))
    };
    for seen in [6, 7, 9] {
        assert_eq!(admit(Purpose::Change, Some(seen)).unwrap(), Admission::Go, "flips since {seen} do not matter");
    }
    assert_eq!(admit(Purpose::Change, Some(5)).unwrap(), Admission::Stale(Revision(5)));
    assert_eq!(admit(Purpose::Activation, Some(5)).unwrap(), Admission::Stale(Revision(5)));
    assert_eq!(admit(Purpose::Activation, None).unwrap(), Admission::Go);
    assert!(matches!(admit(Purpose::Change, Some(10)), Err(Error::NoRevision { .. })));
    assert!(matches!(admit(Purpose::Change, None), Err(Error::Invalid { .. })));
}

#[test]
fn a_term_that_is_over_is_refused_and_a_new_one_is_remembered() {
    let mut state = State::default();
    state.head.term = 4;
    let admit = |state: &mut State, term| Prepared::of(Commit { term, ..Commit::default() }).unwrap().admit(state);
    assert!(matches!(admit(&mut state, Some(3)), Err(Error::Fenced { term: 3, highest: 4 })));
    assert!(admit(&mut state, Some(4)).is_ok() && admit(&mut state, None).is_ok());
    assert!(admit(&mut state, Some(7)).is_ok());
    assert_eq!(state.head.term, 7);
}

#[test]
fn the_bounds_of_a_change() {
    let invalid = |change| matches!(prepare(change), Err(Error::Invalid { .. }));
    let one = || vec![edit(Space::InForce, "a", Some("1"))];
    assert!(invalid(change(Purpose::Activation, None, vec![edit(Space::Desired, "a", None)])));
    assert!(invalid(change(Purpose::Activation, None, [one(), one()].concat())));
    for author in [String::new(), "x".repeat(MAX_AUTHOR_BYTES + 1), "a\nb\u{1b}".to_owned()] {
        assert!(invalid(Change { author, ..change(Purpose::Activation, None, one()) }));
    }
    assert!(invalid(Change { reason: "\0".to_owned(), ..change(Purpose::Activation, None, one()) }));
    assert!(invalid(Change { at_ms: u64::MAX, ..change(Purpose::Activation, None, one()) }));

    let big = Json::of(&"x".repeat(crate::MAX_VALUE_BYTES - 2)).unwrap();
    let heavy = |n| Edit { place: place(Space::InForce, &format!("t{n}")), value: Some(big.clone()) };
    let fits = MAX_CHANGE_BYTES / (crate::MAX_VALUE_BYTES + 16);
    assert!(prepare(change(Purpose::Activation, None, (0..fits).map(heavy).collect())).is_ok());
    let over = prepare(change(
        Purpose::Activation,
        None,
        (0..=MAX_CHANGE_BYTES / crate::MAX_VALUE_BYTES).map(heavy).collect(),
    ));
    assert!(matches!(over, Err(Error::TooLarge { what: "bytes of a change", .. })));
    let many = (0..=MAX_EDITS).map(|n| edit(Space::InForce, &format!("t{n}"), None)).collect();
    assert!(matches!(prepare(change(Purpose::Activation, None, many)), Err(Error::TooLarge { what: "edits", .. })));
}

#[test]
fn kinds_are_bounded_in_a_store() {
    let (mut state, mut leaves) = (State::default(), Leaves::new());
    let kind = |n: usize| Edit {
        place: Place { space: Space::InForce, key: Key::new(&format!("k{n}"), "a").unwrap() },
        value: Some(Json::of(&n).unwrap()),
    };
    apply(&mut state, &mut leaves, change(Purpose::Activation, None, (0..MAX_KINDS).map(kind).collect()));
    let more = prepare(change(Purpose::Activation, None, vec![kind(MAX_KINDS)])).unwrap();
    assert!(matches!(more.admit(&mut state), Err(Error::TooLarge { what: "kinds of resources", .. })));
    let old = prepare(change(Purpose::Activation, None, vec![kind(3)])).unwrap();
    assert!(old.admit(&mut state).is_ok());
}

#[test]
fn records_are_compared_and_versions_are_never_used_twice() {
    let mut state = State::default();
    let write = |expected, value: Option<&str>| RecordWrite {
        kind: "rollout".to_owned(),
        id: "acme/screen".to_owned(),
        expected,
        value: value.map(|v| Json::of(&v).unwrap()),
    };
    assert_eq!(Prepared::record(&mut state, &write(None, Some("a")), None).unwrap(), Some(1));
    assert!(Prepared::record(&mut state, &write(None, Some("a")), Some(1)).is_err());
    assert!(Prepared::record(&mut state, &write(Some(1), Some("b")), None).is_err());
    assert_eq!(Prepared::record(&mut state, &write(Some(1), None), Some(1)).unwrap(), None);
    assert_eq!(Prepared::record(&mut state, &write(None, Some("c")), None).unwrap(), Some(2));
    let twice = Commit { records: vec![write(None, Some("a")), write(Some(1), None)], ..Commit::default() };
    assert!(Prepared::of(twice).is_err());
    assert!(Prepared::of(Commit { records: vec![write(None, None)], ..Commit::default() }).is_err());
}
