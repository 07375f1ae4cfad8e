//! The route token.

use holdfast_testkit::eventually;
use serde_json::{Value, json};

use super::fixture::{One, PATIENCE, ask_at, refused, resolved, version_of};
use super::moves::same_again;

fn token() -> Value {
    json!({"route_token": {}})
}

const ROUTE: &str = "x-holdfast-route";

#[tokio::test]
async fn a_retry_with_its_token_keeps_version_and_revision_over_flips_and_a_restart() {
    let mut one = One::start(token()).await;
    let first = one.ask(&[]).await;
    assert_eq!(resolved(&first).2, "pin");
    let route = first.header(ROUTE).to_owned();
    assert!((60..200).contains(&route.len()), "compact: {} bytes", route.len());
    same_again(&first, &one.ask(&[(ROUTE, &route)]).await);
    one.pin("2").await;
    let moved = one.ask(&[]).await;
    assert_eq!((version_of(&moved), resolved(&moved).2.as_str()), ("2", "pin"));
    let again = one.ask(&[(ROUTE, &route)]).await;
    same_again(&first, &again);
    assert_ne!(again.header("x-holdfast-revision"), moved.header("x-holdfast-revision"));
    // Its own token is as good, and so is the first one after a crash.
    let handed_on = again.header(ROUTE).to_owned();
    one.pin("3").await;
    one.gateway.restart().await;
    eventually("the model to be served again", PATIENCE, async || {
        (version_of(&one.ask(&[]).await) == "3").then_some(())
    })
    .await;
    for route in [&route, &handed_on] {
        same_again(&first, &one.ask(&[(ROUTE, route)]).await);
    }
    // The version may be named beside it, but no other one.
    let at = |version: &str| format!("/v2/models/screen/versions/{version}/infer");
    same_again(&first, &ask_at(&one.gateway, &at("1"), &[(ROUTE, &route)]).await);
    let other = ask_at(&one.gateway, &at("2"), &[(ROUTE, &route)]).await;
    refused(&other, 422, "bad_request", "another version");
    // Nor another model.
    refused(
        &ask_at(&one.gateway, "/v2/models/fraud/infer", &[(ROUTE, &route)]).await,
        422,
        "bad_request",
        "another model",
    );
}

#[tokio::test]
async fn a_token_is_one_tenants_and_ends() {
    let one = One::start(json!({"route_token": {"lifetime": "2s"}})).await;
    let route = one.ask(&[]).await.header(ROUTE).to_owned();
    refused(&one.ask(&[("x-tenant", "globex"), (ROUTE, &route)]).await, 403, "forbidden", "another tenant's");
    refused(&one.ask(&[(ROUTE, &route), (ROUTE, &route)]).await, 400, "bad_request", "more than once");
    let over = eventually("the token to end", PATIENCE, async || {
        let answer = one.ask(&[(ROUTE, &route)]).await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    refused(&over, 400, "bad_request", "over its time");
    assert_eq!(over.header("x-holdfast-version"), "", "nothing was resolved");
}

/// Ten thousand tokens that nobody signed: none is taken, none reaches a server, and none moves what others get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_tokens_are_refused() {
    let one = One::start(token()).await;
    let first = one.ask(&[]).await;
    let good = first.header(ROUTE).as_bytes().to_vec();
    let served = one.server.executions();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut chance = 1u64;
    let mut below = move |most: usize| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((chance >> 33) % most as u64).unwrap()
    };
    for n in 0..10_000 {
        let mut forged = good.clone();
        match n % 4 {
            0 => forged.truncate(below(good.len())),
            1 => (0..forged.len()).for_each(|at| forged[at] = alphabet[below(64)]),
            2 => forged.push(alphabet[below(64)]),
            _ => {}
        }
        if n % 4 == 3 || forged == good {
            let at = below(good.len());
            let other = alphabet[(alphabet.iter().position(|c| *c == good[at]).unwrap() + 1 + below(63)) % 64];
            forged[at] = other;
        }
        let forged = String::from_utf8(forged).unwrap();
        let answer = one.ask(&[(ROUTE, &forged)]).await;
        assert!(
            answer.status == 400 && answer.header("x-holdfast-error") == "bad_request",
            "{n} {forged}: {}",
            answer.status
        );
    }
    assert_eq!(one.server.executions(), served);
    same_again(&first, &one.ask(&[(ROUTE, first.header(ROUTE))]).await);
    let metrics = one.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_submissions_total", &[("outcome", "bad_token")]), 10_000.0);
}

#[tokio::test]
async fn two_secrets_are_good_while_one_takes_the_others_place() {
    let dir = holdfast_testkit::TempDir::new();
    let file = dir.join("secrets");
    let (old, new) = ("old".repeat(12), "new".repeat(12));
    let write = |text: String| holdfast_testkit::temp::write_atomically(&file, &text);
    write(old.clone());
    let one = One::start(json!({"route_token": {"key_file": file}})).await;
    let first = one.ask(&[]).await;
    let by_old = first.header(ROUTE).to_owned();
    write(format!("{new}\n{old}\n"));
    let by_new = eventually("the new secret to sign", PATIENCE, async || {
        let route = one.ask(&[]).await.header(ROUTE).to_owned();
        (route[..8] != by_old[..8]).then_some(route)
    })
    .await;
    for route in [&by_old, &by_new] {
        same_again(&first, &one.ask(&[(ROUTE, route)]).await);
    }
    write("too short".to_owned());
    write(new);
    let gone = eventually("the old secret to be gone", PATIENCE, async || {
        let answer = one.ask(&[(ROUTE, &by_old)]).await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    refused(&gone, 400, "bad_request", "not signed here");
    same_again(&first, &one.ask(&[(ROUTE, &by_new)]).await);
}

#[tokio::test]
async fn explain_and_receipts_tell_of_it() {
    let mut one = One::start(token()).await;
    let route = one.ask(&[]).await.header(ROUTE).to_owned();
    one.pin("2").await;
    let again = one.ask(&[(ROUTE, &route)]).await;
    let receipt = one.gateway.cli_json(&["receipt", again.header("x-holdfast-request-id")]).await;
    assert_eq!(
        (&receipt["reason"], &receipt["submission"], &receipt["version"]),
        (&json!("replay"), &json!("route token"), &json!("1")),
        "{receipt}"
    );
    assert_eq!(receipt["revision"].to_string(), again.header("x-holdfast-revision"));
    let told = one.gateway.cli_json(&["explain", "--tenant", "acme", "--model", "screen", "--route", &route]).await;
    assert_eq!((&told["version"], &told["reason"]), (&json!("1"), &json!("replay")), "{told}");
    let told = one.gateway.cli_json(&["explain", "--tenant", "globex", "--model", "screen", "--route", &route]).await;
    assert!(told["detail"].as_str().unwrap().contains("another tenant's"), "{told}");
}

/// Whatever is not configured is not given.
#[tokio::test]
async fn without_the_section_there_is_no_token() {
    let one = One::start(json!({})).await;
    assert_eq!(one.ask(&[]).await.header(ROUTE), "");
    let keyed = One::start(json!({"ledger": {}})).await;
    assert_eq!(keyed.ask(&[]).await.header(ROUTE), "");
    // Where none is given none is looked at: it is resolved like any other, and so it is with a key.
    assert_eq!(resolved(&keyed.ask(&[(ROUTE, "x")]).await).2, "pin");
    let first = keyed.ask(&[("idempotency-key", "k"), (ROUTE, "x")]).await;
    same_again(&first, &keyed.ask(&[("idempotency-key", "k"), (ROUTE, "y")]).await);
}
