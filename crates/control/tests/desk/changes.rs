//! Changes by people.

use holdfast_config::ResourceKind::Pin;
use holdfast_control::desk::{Ask, DeskError, Done, PIN_OPTIONS, PinOptions, RolloutOptions, What};
use holdfast_types::Revision;
use serde_json::json;

use crate::bench::{Bench, activation, ask, desk, no_pin, no_version, pin, pins, promises, put, tenant};
use holdfast_config::{ResourceKind, Truth as Owner};

pub async fn a_dry_run_says_what_the_real_thing_says(bench: Bench) {
    let (desk, store, _) = bench.seeded().await;
    let edits = vec![pin("a/m", "2"), pin("c/m", "3"), no_pin("b/m")];
    let before = store.head().await.unwrap();
    let dry = desk.change(Ask { dry_run: true, ..ask(edits.clone()) }).await.unwrap();
    assert_eq!((store.head().await.unwrap(), desk.truth().head.clone()), (before.clone(), before));
    let real = desk.change(ask(edits.clone())).await.unwrap();
    assert_eq!(Done { revision: Some(Revision(2)), ..dry }, real);
    let told: Vec<_> =
        real.changes.iter().map(|c| (&*c.name, c.before.as_deref().cloned(), c.after.as_deref().cloned())).collect();
    assert_eq!(
        told,
        [("a/m", Some(json!("1")), Some(json!("2"))), ("b/m", Some(json!("1")), None), ("c/m", None, Some(json!("3")))]
    );
    assert_eq!(real.pending.iter().map(|p| (p.tenant.as_str(), p.to.as_str())).collect::<Vec<_>>(), [("a", "2")]);
    let truth = desk.truth();
    assert_eq!((pins(&truth.desired), pins(&truth.in_force)), ("a/m=2 c/m=3".into(), "a/m=1 c/m=3".into()));
    let again = desk.change(ask(edits)).await.unwrap();
    assert_eq!((again.revision, again.changes.len()), (None, 0), "nothing is different, so there is no revision");
    promises(&desk).await;
}

pub async fn what_is_wrong_leaves_nothing(bench: Bench) {
    let (desk, store, _) = bench.seeded().await;
    let before = store.head().await.unwrap();
    let wrong = [
        (vec![pin("a/m", "9")], "tenants[a].pins.m"),
        (vec![pin("z/m", "1")], "pin z/m"),
        (vec![pin("a/m", "2"), pin("b/m", "9")], "tenants[b].pins.m"),
        (vec![put(ResourceKind::Version, "m/4", json!({}))], "models[m].versions[4].size"),
        (vec![put(ResourceKind::Tenant, "x y", json!({}))], "tenants[x y].name"),
        (vec![put(ResourceKind::Model, "n", json!({ "pool": "p", "idempotent": true }))], "models[n].versions"),
        (vec![put(ResourceKind::Tenant, "big", json!({ "x": "y".repeat(70_000) }))], "tenants[big].x"),
    ];
    for (edits, path) in wrong {
        for dry_run in [true, false] {
            let refused = desk.change(Ask { dry_run, ..ask(edits.clone()) }).await;
            let Err(DeskError::Invalid(faults)) = refused else { panic!("{path}: {refused:?}") };
            assert!(faults.iter().any(|fault| fault.path == path), "{path}: {faults:?}");
        }
    }
    let long = Ask { reason: "x".repeat(5_000), ..ask(vec![pin("a/m", "2")]) };
    assert!(matches!(desk.change(long).await, Err(DeskError::Invalid(faults)) if faults[0].path == "reason"));
    let nobody = Ask { author: String::new(), dry_run: true, ..ask(vec![pin("a/m", "2")]) };
    assert!(matches!(desk.change(nobody).await, Err(DeskError::Invalid(faults)) if faults[0].path == "author"));
    assert_eq!(store.head().await.unwrap(), before);
    promises(&desk).await;
}

pub async fn a_version_that_is_pinned_is_not_taken_away(bench: Bench) {
    let (desk, _, _) = bench.seeded().await;
    let refused = async |edits| match desk.change(ask(edits)).await {
        Err(DeskError::Invalid(faults)) => faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(vec![no_version("m/1")]).await, ["models[m].versions[1]: pinned by a, b"]);
    let mut more = vec![pin("c/m", "1")];
    for name in ["d", "e", "f", "g"] {
        more.extend([tenant(name), pin(&format!("{name}/m"), "1")]);
    }
    desk.change(ask(more)).await.unwrap();
    let told = refused(vec![no_version("m/1"), pin("a/m", "2")]).await;
    assert_eq!(told, ["models[m].versions[1]: pinned by b, c, d, e, f and 1 more"]);
    desk.change(ask(vec![no_version("m/3")])).await.unwrap();
    promises(&desk).await;
}

pub async fn a_conflict_names_what_changed_and_leaves_nothing(bench: Bench) {
    let (desk, store, _) = bench.seeded().await;
    let saw = |base| Some(Revision(base));
    desk.change(Ask { base: saw(1), ..ask(vec![pin("a/m", "2")]) }).await.unwrap();
    desk.activate(activation(&desk, &[("a/m", "2")], 1)).await.unwrap();
    // Who saw revision 2 is not held up by what went into force since.
    desk.change(Ask { base: saw(2), ..ask(vec![pin("b/m", "2")]) }).await.unwrap();
    let before = store.head().await.unwrap();
    for dry_run in [true, false] {
        let refused = desk.change(Ask { base: saw(2), dry_run, ..ask(vec![tenant("d")]) }).await;
        let Err(DeskError::Conflict { seen, current, changed }) = refused else { panic!("{refused:?}") };
        assert_eq!((seen, current, changed), (Revision(2), Revision(4), vec!["pin b/m".to_owned()]));
    }
    let future = desk.change(Ask { base: saw(99), ..ask(vec![tenant("d")]) }).await;
    assert!(matches!(future, Err(DeskError::NotFound(_))), "{future:?}");
    assert_eq!(store.head().await.unwrap(), before);
    promises(&desk).await;
}

pub async fn options_stay_beside_their_pins(bench: Bench) {
    let (desk, store, _) = bench.seeded().await;
    let record = async |id: &str| {
        let record = store.record(PIN_OPTIONS.to_owned(), id.to_owned()).await.unwrap();
        record.map(|r| serde_json::from_slice::<PinOptions>(r.value.as_bytes()).unwrap())
    };
    let options = RolloutOptions { atomic: true, ..RolloutOptions::default() };
    let with = |edits, options: &RolloutOptions| Ask { options: Some(options.clone()), ..ask(edits) };
    let done = desk.change(with(vec![pin("a/m", "2"), pin("b/m", "2"), pin("c/m", "1")], &options)).await.unwrap();
    let line = "pin c/m is new: it is in force at once, without canary or shadow";
    assert_eq!(done.warnings.lines().filter(|warning| warning.starts_with("pin ")).collect::<Vec<_>>(), [line]);
    let (a, b) = (record("a/m").await.unwrap(), record("b/m").await.unwrap());
    assert_eq!((a.to.as_str(), &a.options, &a.group), ("2", &options, &b.group));
    assert_eq!(record("c/m").await, None, "what is in force at once has no roll-out");
    let other = RolloutOptions { loads: Some(3), ..RolloutOptions::default() };
    desk.change(with(vec![pin("a/m", "3")], &other)).await.unwrap();
    let changed = record("a/m").await.unwrap();
    assert_eq!((changed.to.as_str(), &changed.options), ("3", &other));
    assert_ne!(changed.group, b.group);
    desk.change(ask(vec![pin("a/m", "2")])).await.unwrap();
    assert_eq!((record("a/m").await, record("b/m").await), (None, Some(b)));
}

pub async fn many_writers_lose_nothing(bench: Bench) {
    let (first, store, name) = bench.seeded().await;
    let second = desk(&bench.second(&name, &store).await, Owner::Store).await;
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let desk = if writer % 2 == 0 { first.clone() } else { second.clone() };
        tasks.push(tokio::spawn(async move {
            for n in 0..4 {
                let name = format!("w{writer}-{n}");
                let edits =
                    vec![tenant(&name), pin(&format!("{name}/m"), "1"), pin("a/m", ["1", "2", "3"][(writer + n) % 3])];
                let done = loop {
                    match desk.change(ask(edits.clone())).await {
                        Err(DeskError::Unavailable(_)) => {}
                        done => break done.unwrap(),
                    }
                };
                assert!(done.revision.is_some());
                let to = desk.truth().pending.get("a/m").map(|p| p.to.to_string());
                // It may be late; then it is refused.
                if let Some(to) = to {
                    let _ = desk.activate(activation(&desk, &[("a/m", &to)], 1)).await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for desk in [&first, &second] {
        promises(desk).await;
        let truth = desk.truth();
        assert_eq!(truth.in_force.of_kind(Pin).filter(|(name, _)| name.starts_with('w')).count(), 16);
    }
    let whole = What::Whole(first.truth().desired.resources());
    assert_eq!(second.change(Ask { what: whole, ..ask(Vec::new()) }).await.unwrap().changes.len(), 0);
}
