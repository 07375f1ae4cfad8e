//! Keys of submissions, and the ledger in a file.

use holdfast_testkit::eventually;
use serde_json::{Value, json};

use super::fixture::{One, PATIENCE, ask_at, refused, resolved, serves, version_of};
use super::fleet::{Fleet, INFER, holders, probe};
use super::moves::same_again;

fn ledger() -> Value {
    json!({"ledger": {}})
}

const KEY: &str = "idempotency-key";

#[tokio::test]
async fn a_retry_with_its_key_keeps_version_and_revision_over_flips_and_a_crash() {
    let mut one = One::start(ledger()).await;
    let first = one.ask(&[(KEY, "order-1")]).await;
    assert_eq!(resolved(&first).2, "pin");
    one.pin("2").await;
    same_again(&first, &one.ask(&[(KEY, "order-1")]).await);
    // Answered, so it is on disk: the process is killed, and what it remembered is gone.
    let last = one.ask(&[(KEY, "order-2")]).await;
    assert_eq!(version_of(&last), "2");
    one.gateway.restart().await;
    serves(&one.gateway).await;
    one.pin("3").await;
    same_again(&first, &one.ask(&[(KEY, "order-1")]).await);
    same_again(&last, &one.ask(&[(KEY, "order-2")]).await);
    assert_eq!(version_of(&one.ask(&[(KEY, "order-3")]).await), "3");
    let metrics = one.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_ledger_entries", &[]), 3.0);
}

#[tokio::test]
async fn a_key_is_its_tenants_and_its_users() {
    let mut one = One::start(json!({"ledger": {"header": "X-Submission-Id"}})).await;
    let key = ("x-submission-id", "k");
    let first = one.ask(&[key, ("x-user", "ann")]).await;
    one.pin("2").await;
    same_again(&first, &one.ask(&[key, ("x-user", "ann")]).await);
    for others in [
        &[key, ("x-user", "bob")][..],
        &[key],
        &[key, ("x-user", "ann"), ("x-tenant", "globex")],
        &[(KEY, "k"), ("x-user", "ann")],
    ] {
        assert_eq!(version_of(&one.ask(others).await), "2", "{others:?}");
    }
    let ann = [key, ("x-user", "ann")];
    refused(&ask_at(&one.gateway, "/v2/models/fraud/infer", &ann).await, 422, "bad_request", "another model");
    let named = ask_at(&one.gateway, "/v2/models/screen/versions/2/infer", &ann).await;
    refused(&named, 422, "bad_request", "another version");
    let long = "x".repeat(257);
    for bad in ["", "a b", long.as_str()] {
        refused(&one.ask(&[("x-submission-id", bad)]).await, 400, "bad_request", "visible ASCII");
    }
    refused(&one.ask(&[key, key]).await, 400, "bad_request", "once");
    let receipt = one.gateway.cli_json(&["receipt", one.ask(&ann).await.header("x-holdfast-request-id")]).await;
    assert_eq!((&receipt["reason"], &receipt["submission"]), (&json!("replay"), &json!("key")), "{receipt}");
}

/// Token and key together: they lead to one version, or nowhere.
#[tokio::test]
async fn a_key_and_a_token_may_not_contradict_each_other() {
    let mut one = One::start(json!({"ledger": {}, "route_token": {}})).await;
    let route = |answer: &holdfast_testkit::http::Answer| answer.header("x-holdfast-route").to_owned();
    let (bare, keyed) = (one.ask(&[]).await, one.ask(&[(KEY, "a")]).await);
    one.pin("2").await;
    let late = one.ask(&[(KEY, "b")]).await;
    same_again(&keyed, &one.ask(&[(KEY, "a"), ("x-holdfast-route", &route(&keyed))]).await);
    refused(&one.ask(&[(KEY, "b"), ("x-holdfast-route", &route(&keyed))]).await, 422, "bad_request", "another key");
    refused(
        &one.ask(&[(KEY, "b"), ("x-holdfast-route", &route(&bare))]).await,
        422,
        "bad_request",
        "different versions",
    );
    same_again(&late, &one.ask(&[(KEY, "b")]).await);
    // A key that comes only with the retry is the submission's from then on.
    same_again(&bare, &one.ask(&[(KEY, "c"), ("x-holdfast-route", &route(&bare))]).await);
    same_again(&bare, &one.ask(&[(KEY, "c")]).await);
}

/// While requests with the same keys come from everywhere, the pin moves: whatever a key was told first is what it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_at_the_same_time_gets_the_same() {
    let mut one = One::start(ledger()).await;
    let (data, mut tasks) = (one.gateway.data.addr(), Vec::new());
    for _ in 0..4 {
        tasks.push(tokio::spawn(async move {
            let client = holdfast_testkit::http::Client::new(data);
            let mut seen = Vec::new();
            for n in 0..150 {
                let key = format!("k{n}");
                let fields = [("x-tenant", "acme"), (KEY, key.as_str())];
                let answer = client.post(INFER, &fields, &json!({"inputs": []})).await;
                seen.push((version_of(&answer).to_owned(), answer.header("x-holdfast-revision").to_owned()));
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
            seen
        }));
    }
    one.pin("2").await;
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    for n in 0..150 {
        assert!(
            all.iter().all(|seen| seen[n] == all[0][n]),
            "k{n}: {:?}",
            all.iter().map(|s| &s[n]).collect::<Vec<_>>()
        );
    }
}

/// The version is held nowhere any more: the retry has it loaded. It has left the table: the retry is refused. It never gets another one.
#[tokio::test]
async fn a_version_that_is_gone_is_loaded_or_refused() {
    let tenants = json!([{"name": "acme", "subset": 1, "pins": {"screen": "1"}}]);
    let mut fleet = Fleet::start((1, &["--memory", "4GiB"]), 3, tenants, |config| {
        config["ledger"] = json!({});
        config["rollouts"] = json!({"retain": "0s"});
        config["pools"][0]["replicas"][0]["memory"] = json!("4GiB");
        config["pools"][0]["thrash_window"] = json!("0s");
    })
    .await;
    fleet.wait_held("1", 1).await;
    let ask =
        async |fleet: &Fleet| fleet.gateway.data.post(INFER, &[("x-tenant", "acme"), (KEY, "old")], &probe()).await;
    let first = ask(&fleet).await;
    let (version, revision) = (version_of(&first).to_owned(), first.header("x-holdfast-revision").to_owned());
    assert_eq!((first.status.as_u16(), version.as_str()), (200, "1"));
    fleet.pin(0, "2");
    fleet.wait_pin("acme", "2").await;
    fleet.pin(0, "3");
    fleet.wait_pin("acme", "3").await;
    eventually("the old version to be gone", PATIENCE, async || {
        holders(&fleet.gateway, "1").await.is_empty().then_some(())
    })
    .await;
    let again = ask(&fleet).await;
    assert_eq!((again.status.as_u16(), version_of(&again)), (200, "1"), "{}", again.text());
    assert_eq!(again.header("x-holdfast-revision"), revision);
    assert_eq!(again.json()["outputs"], first.json()["outputs"], "the same verdict");
    fleet.edit(|config| {
        config["models"][0]["versions"].as_array_mut().unwrap().remove(0);
    });
    let gone = eventually("the version to leave the table", PATIENCE, async || {
        let answer = ask(&fleet).await;
        assert!(answer.status != 200 || version_of(&answer) == "1", "{}", version_of(&answer));
        (answer.status != 200).then_some(answer)
    })
    .await;
    refused(&gone, 503, "no_holder", "");
    assert!(!gone.header("retry-after").is_empty());
}

/// The arm that a submission was in is its retries' too, by key and by token, when its experiment has ended.
#[tokio::test]
async fn an_arm_stays_with_its_submission_when_the_experiment_has_ended() {
    let experiment = |status: &str| {
        json!([{
            "name": "trial", "model": "screen", "status": status, "coverage": 100,
            "target": [{"field": "tenant", "is": ["acme"]}], "arms": [{"name": "only", "version": "3", "weight": 1}],
        }])
    };
    let mut one = One::start(json!({"ledger": {}, "route_token": {}, "experiments": experiment("running")})).await;
    let ann = [(KEY, "a"), ("x-user", "ann")];
    let first = one.ask(&ann).await;
    assert_eq!((resolved(&first).0.as_str(), resolved(&first).2.as_str()), ("3", "experiment"));
    let arm = first.header("x-holdfast-experiment").to_owned();
    assert_eq!(arm, "trial=only");
    one.config["experiments"] = experiment("ended");
    one.pin("2").await;
    let by_token = [("x-holdfast-route", first.header("x-holdfast-route")), ("x-user", "ann")];
    for fields in [&ann[..], &by_token] {
        let again = one.ask(fields).await;
        same_again(&first, &again);
        assert_eq!(again.header("x-holdfast-experiment"), arm, "{fields:?}");
    }
    assert_eq!(version_of(&one.ask(&[(KEY, "b"), ("x-user", "ann")]).await), "2");
}
