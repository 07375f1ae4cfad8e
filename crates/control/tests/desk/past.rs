//! What was, and the way back.

use holdfast_control::desk::{Ask, DeskError, What};
use holdfast_types::Revision;

use crate::bench::{Bench, activation, ask, no_version, pin, pins, promises, tenant};

pub async fn what_was_can_be_read_and_gone_back_to(bench: Bench) {
    let (desk, _, _) = bench.seeded().await;
    desk.change(ask(vec![pin("a/m", "2"), pin("b/m", "3")])).await.unwrap();
    desk.activate(activation(&desk, &[("a/m", "2")], 1)).await.unwrap();
    let numbers: Vec<u64> = desk.history(None, 9).await.unwrap().iter().map(|h| h.revision.0).collect();
    assert_eq!(numbers, [3, 2, 1]);
    assert_eq!(desk.history(Some(Revision(3)), 1).await.unwrap()[0].revision, Revision(2));
    let shown = desk.show(Revision(2), None, 1).await.unwrap();
    assert_eq!((shown.header.author.as_str(), shown.edits.items.len()), ("ann", 1));
    let rest = desk.show(Revision(2), shown.edits.next, 9).await.unwrap();
    assert_eq!(rest.edits.items[0].place.to_string(), "desired pin b/m");
    assert!(matches!(desk.show(Revision(9), None, 9).await, Err(DeskError::NotFound(_))));
    let differs = desk.diff(Revision(1), Revision(3), None, 9).await.unwrap();
    assert_eq!(differs.items.len(), 3);

    // Before the last change in force: the flip is taken back, and what is on its way too.
    let back = desk.revert_target(None).await.unwrap();
    assert_eq!((back.to, back.base), (Revision(2), Revision(3)));
    let moves: Vec<_> = back.moves().into_iter().map(|m| (m.pin.to_string(), m.in_force, m.desired, m.to)).collect();
    let version = |version: &str| Some(version.to_owned());
    assert_eq!(
        moves,
        [
            ("a/m".to_owned(), version("2"), version("2"), version("1")),
            ("b/m".to_owned(), version("1"), version("3"), version("1")),
        ]
    );
    let done = desk.change(Ask { base: Some(back.base), ..ask(back.edits) }).await.unwrap();
    assert_eq!(pins(&desk.truth().desired), "a/m=1 b/m=1");
    assert_eq!(done.pending.len(), 1, "the way back is warmed like any other");
    desk.activate(activation(&desk, &[("a/m", "1")], 1)).await.unwrap();

    // What has changed since and was no flip is passed over: a pin that came, for example.
    desk.change(ask(vec![tenant("d"), pin("d/m", "1")])).await.unwrap();
    let flip = desk.revert_target(None).await.unwrap();
    assert_eq!(flip.to, Revision(4), "before the way back, which was the last flip");
    // A pin that is desired so already, and in force otherwise, is asked for again.
    desk.change(ask(vec![pin("a/m", "2")])).await.unwrap();
    let again = desk.revert_target(Some(Revision(3))).await.unwrap();
    assert!(again.edits.iter().any(|e| &*e.name == "a/m"), "in force it is 1, desired 2, as it was in force then");
    desk.change(ask(vec![pin("a/m", "1")])).await.unwrap();

    // A tenant that came since has no pin there; one that is gone is not brought back.
    let gone = holdfast_plane::Edit { value: None, ..tenant("b") };
    desk.change(ask(vec![gone])).await.unwrap();
    let far = desk.revert_target(Some(Revision(3))).await.unwrap();
    desk.change(ask(far.edits)).await.unwrap();
    assert_eq!(pins(&desk.truth().desired), "a/m=2");
    // A version that is gone cannot be gone back to, and that is said.
    desk.change(ask(vec![pin("a/m", "3"), no_version("m/1")])).await.unwrap();
    let none = desk.revert_target(Some(Revision(1))).await.unwrap();
    let refused = desk.change(Ask { what: What::Edits(none.edits), ..ask(Vec::new()) }).await;
    assert!(
        matches!(&refused, Err(DeskError::Invalid(faults)) if faults[0].reason.contains("has no version \"1\"")),
        "{refused:?}"
    );
    assert!(matches!(desk.revert_target(Some(Revision(99))).await, Err(DeskError::NotFound(_))));
    promises(&desk).await;
}
