//! Experiments at the desk: what has been given is kept by the table, by whatever way an edit comes.

use holdfast_config::ResourceKind::{Experiment, Tenant};
use holdfast_config::{Truth as Owner, assemble};
use holdfast_control::desk::{DeskError, Retired, What};
use holdfast_plane::Edit;
use serde_json::{Value as Json, json};

use crate::bench::{Bench, TEXT, ask, desk, file, frame, no_version, pin, promises, put};

fn content(coverage: u32, weights: [u32; 2]) -> Json {
    json!({
        "model": "m", "status": "running", "coverage": coverage,
        "arms": [{"name": "x", "version": "1", "weight": weights[0]}, {"name": "y", "version": "2", "weight": weights[1]}],
    })
}

fn told(error: &DeskError) -> String {
    format!("{error:?}")
}

pub async fn an_edit_extends_the_history_or_is_refused(bench: Bench) {
    let (desk, _, _) = bench.seeded().await;
    let change =
        async |coverage, weights| desk.change(ask(vec![put(Experiment, "ab", content(coverage, weights))])).await;
    let given = || desk.truth().desired.get(Experiment, "ab").map(|content| content["given"].clone());
    let first = change(40, [1, 1]).await.unwrap();
    assert_eq!((first.changes.len(), given()), (1, Some(Json::Null)));
    assert_eq!(change(40, [1, 1]).await.unwrap().revision, None, "the same again is no change");
    let _ = change(20, [1, 1]).await.unwrap();
    assert_eq!(given().unwrap()[0]["to"], 4_000, "those who have left keep their arm");
    assert_eq!(change(20, [1, 1]).await.unwrap().revision, None);
    let before = desk.truth().head.clone();
    let refused = change(30, [1, 3]).await.unwrap_err();
    assert!(told(&refused).contains("experiments[ab].arms") && told(&refused).contains("4000 of 10000"), "{refused:?}");
    assert_eq!(desk.truth().head, before, "nothing is written");
    let _ = change(50, [1, 3]).await.unwrap();
    assert_eq!(given().unwrap()[1]["to"], 5_000);
    // In force as it is desired, and what arms name stays.
    let truth = desk.truth();
    assert_eq!(truth.in_force.get(Experiment, "ab"), truth.desired.get(Experiment, "ab"));
    let refused = desk.change(ask(vec![no_version("m/2")])).await.unwrap_err();
    assert!(told(&refused).contains("experiments[ab].arms[1].version"), "{refused:?}");
    // Pins and tenants go their own way.
    let _ = desk.change(ask(vec![pin("a/m", "3")])).await.unwrap();
    let rules = json!({"rules": [{"name": "r", "model": "m", "version": "3"}]});
    let _ = desk.change(ask(vec![put(Tenant, "c", rules.clone())])).await.unwrap();
    let refused = desk.change(ask(vec![no_version("m/3"), pin("a/m", "1")])).await.unwrap_err();
    assert!(told(&refused).contains("tenants[c].rules[0].version"), "{refused:?}");
    // A whole state that says nothing of the history does not forget it; one that names the experiment no more does.
    let mut whole = desk.truth().desired.resources();
    whole.insert((Experiment, "ab".to_owned()), content(50, [1, 3]));
    let same =
        desk.change(holdfast_control::desk::Ask { what: What::Whole(whole.clone()), ..ask(Vec::new()) }).await.unwrap();
    assert_eq!(same.revision, None, "{:?}", same.changes);
    let gone = desk.change(ask(vec![Edit { kind: Experiment, name: "ab".into(), value: None }])).await.unwrap();
    assert!(gone.revision.is_some() && given().is_none());
    promises(&desk).await;
}

pub async fn a_file_that_is_read_again_moves_nobody(bench: Bench) {
    let (store, _) = bench.store().await;
    let held = desk(&store, Owner::File).await;
    let offer = async |coverage, weights| {
        let experiment = {
            let mut content = content(coverage, weights);
            content["name"] = json!("ab");
            content
        };
        let text = format!("{TEXT}experiments: [{experiment}]\n");
        held.adopt_file(file(&text), frame(&text), 7, Retired::new(), None).await
    };
    let given = || held.truth().in_force.get(Experiment, "ab").map(|content| content["given"].clone());
    let _ = offer(100, [1, 1]).await.unwrap();
    for coverage in [20, 60, 20, 100] {
        let _ = offer(coverage, [1, 1]).await.unwrap();
        let head = held.truth().head.revision;
        let _ = offer(coverage, [1, 1]).await.unwrap();
        assert_eq!(held.truth().head.revision, head, "a file that has not changed is no change");
    }
    let refused = offer(100, [1, 3]).await.unwrap_err();
    assert!(told(&refused).contains("10000 of 10000"), "{refused:?}");
    let _ = offer(20, [1, 1]).await.unwrap();
    assert!(offer(100, [1, 3]).await.is_err(), "who is out for now would be moved too");
    // Another process over the same store knows it, and so does a new store that is filled with what is exported.
    let again = desk(&store, Owner::File).await;
    assert_eq!(again.truth().desired.get(Experiment, "ab").map(|content| content["given"].clone()), given());
    let export = assemble(&again.frame().rest, &again.truth().desired.resources());
    let (other, _) = bench.store().await;
    let copy = desk(&other, Owner::Store).await;
    let _ = copy.adopt_file(file(&export), frame(&export), 8, Retired::new(), None).await.unwrap();
    assert!(copy.change(ask(vec![put(Experiment, "ab", content(100, [1, 3]))])).await.is_err());
    promises(&held).await;
}
