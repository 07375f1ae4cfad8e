//! Outcomes by the route token, through a whole process: what arms have shown, and the report of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "submissions/fixture.rs"]
mod fixture;
mod fleet;

use fixture::{One, PATIENCE, refused, resolved, serves};
use holdfast_testkit::http::Answer;
use holdfast_testkit::{TempDir, eventually};
use serde_json::{Value, json};

fn sections() -> Value {
    json!({
        "route_token": {}, "results": {"window": "1d"},
        "experiments": [{
            "name": "ab", "model": "screen", "status": "running", "target": [{"field": "tenant", "is": ["acme"]}],
            "arms": [{"name": "control", "version": "1"}, {"name": "new", "version": "2"}],
        }],
    })
}

async fn tell(one: &One, tenant: &str, token: &str, body: &Value) -> Answer {
    one.gateway.data.post("/v1/outcomes", &[("x-tenant", tenant), ("x-holdfast-route", token)], body).await
}

fn click(value: f64) -> Value {
    json!({"values": {"click": value}})
}

async fn report(one: &One, more: &[&str]) -> Value {
    let args: Vec<&str> = ["experiment", "report", "ab"].iter().chain(more).copied().collect();
    one.gateway.cli_json(&args).await
}

fn row<'r>(report: &'r Value, of: &str, member: &str, is: &str) -> &'r Value {
    let rows = report[of].as_array().unwrap();
    rows.iter().find(|row| row[member] == is).unwrap_or_else(|| panic!("no {member} {is} in {report}"))
}

/// Of people in the new arm every second one clicks, of the others every tenth.
async fn people(one: &One) -> [u64; 2] {
    let mut people = [0_u64; 2];
    for user in 0..400 {
        let user = format!("u{user}");
        let answer = one.ask(&[("x-user", &user)]).await;
        let (version, _, reason) = resolved(&answer);
        assert_eq!(reason, "experiment");
        let arm = usize::from(version == "2");
        assert_eq!(answer.header("x-holdfast-experiment"), ["ab=control", "ab=new"][arm]);
        people[arm] += 1;
        let clicks = people[arm] % [10, 2][arm] == 0;
        let told = tell(one, "acme", answer.header("x-holdfast-route"), &click(f64::from(u8::from(clicks)))).await;
        assert_eq!(told.expect(200).json(), json!({"counted": 1}));
    }
    people
}

#[tokio::test]
async fn outcomes_are_told_by_the_route_token_and_a_report_says_what_arms_have_shown() {
    let mut one = One::start(sections()).await;
    let people = people(&one).await;
    // A request is counted when it is over, which its client may know a moment earlier.
    let told = eventually("all requests to be counted", PATIENCE, async || {
        let told = report(&one, &[]).await;
        let requests = ["control", "new"].map(|arm| row(&told, "arms", "arm", arm)["requests"].as_u64().unwrap());
        (requests == people).then_some(told)
    })
    .await;
    for (arm, people) in ["control", "new"].into_iter().zip(people) {
        let arm = row(&told, "arms", "arm", arm);
        assert_eq!((&arm["people"], &arm["errors"]), (&json!(people), &json!(0)), "{told}");
        assert_eq!(arm["requests"], people, "{told}");
        assert!(arm["latency_us"]["mean"].as_f64().unwrap() > 0.0 && arm["latency_us"]["quantiles"][2][1].is_number());
    }
    let compared = row(&told, "comparisons", "metric", "click");
    assert_eq!((&compared["found"], &compared["values"]), (&json!(true), &json!(people)), "{compared}");
    let interval = [0, 1].map(|end| compared["interval"][end].as_f64().unwrap());
    assert!(0.0 < interval[0] && interval[0] < 0.4 && 0.4 < interval[1], "{compared}");
    assert_eq!(row(&told, "comparisons", "metric", "errors")["found"], false);
    assert!(row(&told, "people", "by", "user")["p"].as_f64().unwrap() > 0.0001, "{told}");

    // In words, and as a picture.
    let dir = TempDir::new();
    let file = dir.join("effect.svg");
    let shown = one.gateway.cli(&["experiment", "report", "ab", "--plot", file.to_str().unwrap()]).await;
    let text = String::from_utf8_lossy(&shown.stdout).to_lowercase();
    assert!(shown.status.success() && text.contains("click") && text.contains("differs"), "{text}");
    assert!(text.contains("people by") && !text.contains("left out"), "{text}");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.contains("ab: click") && svg.contains("new less control") && svg.contains("<polygon"), "{svg}");
    let bad =
        one.gateway.cli(&["experiment", "report", "ab", "--plot", file.to_str().unwrap(), "--metric", "no"]).await;
    assert_eq!(bad.status.code(), Some(2), "{}", String::from_utf8_lossy(&bad.stderr));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("errors, latency, click"));

    // What was told is still there after a stop in order.
    one.gateway.proc.sigterm();
    assert!(one.gateway.proc.wait_exit(PATIENCE).await.success());
    one.gateway.restart().await;
    serves(&one.gateway).await;
    let again = report(&one, &[]).await;
    for (of, member, is, kept) in [
        ("arms", "arm", "control", ["people", "requests"]),
        ("arms", "arm", "new", ["people", "requests"]),
        ("comparisons", "metric", "click", ["values", "found"]),
    ] {
        let (before, after) = (row(&told, of, member, is), row(&again, of, member, is));
        kept.iter().for_each(|one| assert_eq!(before[one], after[one], "{before} {after}"));
    }

    // Days are left out by the experiment itself, and the report says what that costs.
    one.config["experiments"][0]["exclude"] =
        json!([{"from": "2020-01-01T00:00:00Z", "to": "2200-01-01T00:00:00Z", "why": "an outage"}]);
    let text = fleet::text(&one.config);
    one.gateway.edit_config(|_| text);
    one.gateway.proc.sighup();
    let told = eventually("the report to leave everything out", PATIENCE, async || {
        let told = report(&one, &[]).await;
        (row(&told, "left_out", "metric", "click")["windows"] != 0).then_some(told)
    })
    .await;
    let cost = row(&told, "left_out", "metric", "click");
    assert_eq!(
        (&cost["values"], &cost["share"], &cost["delay_ms"]),
        (&json!(400), &json!(1.0), &Value::Null),
        "{told}"
    );
    assert_eq!(row(&told, "comparisons", "metric", "click")["values"], json!([0, 0]));
    let shown = one.gateway.cli(&["experiment", "report", "ab"]).await;
    assert!(String::from_utf8_lossy(&shown.stdout).to_lowercase().contains("expected delay"));
}

#[tokio::test]
async fn what_is_told_without_a_good_token_or_twice_counts_for_nothing() {
    let one = One::start(sections()).await;
    let answer = one.ask(&[("x-user", "ann")]).await;
    assert_eq!(resolved(&answer).2, "experiment");
    let token = answer.header("x-holdfast-route").to_owned();
    let other = one.ask(&[("x-user", "ann"), ("x-tenant", "globex")]).await;
    assert_eq!(resolved(&other).2, "pin");
    let served = one.server.executions();
    let told = async |tenant: &str, token: &str, body: Value| tell(&one, tenant, token, &body).await;
    refused(&told("globex", &token, click(1.0)).await, 403, "forbidden", "another tenant's");
    refused(&told("acme", "AAAA", click(1.0)).await, 400, "bad_request", "no route token");
    refused(
        &one.gateway.data.post("/v1/outcomes", &[("x-tenant", "acme")], &click(1.0)).await,
        400,
        "bad_request",
        "needed is",
    );
    refused(
        &one.gateway.data.post("/v1/outcomes", &[("x-holdfast-route", &token)], &click(1.0)).await,
        401,
        "unauthenticated",
        "",
    );
    refused(&told("acme", &token, json!({"values": {"click": "yes"}})).await, 400, "bad_request", "click");
    refused(
        &told("acme", &token, json!({"values": {"click": 1}, "x": "y".repeat(20_000)})).await,
        413,
        "too_large",
        "16384",
    );
    assert_eq!(one.gateway.data.get("/v1/outcomes", &[("x-tenant", "acme")]).await.status, 405);
    let counted = |told: Answer| told.expect(200).json();
    let none = told("globex", other.header("x-holdfast-route"), click(1.0)).await;
    assert_eq!(counted(none), json!({"counted": 0, "not_counted": {"no_arm": 1}}));
    let order = || json!({"id": "order-7", "values": {"spent": 12.5, "items": 3}});
    assert_eq!(counted(told("acme", &token, order()).await), json!({"counted": 2}));
    assert_eq!(counted(told("acme", &token, order()).await), json!({"counted": 0, "not_counted": {"repeated": 2}}));
    assert_eq!(one.server.executions(), served, "no model server hears of outcomes");
    let told = report(&one, &[]).await;
    let spent = row(&told, "comparisons", "metric", "spent");
    let values: u64 = spent["values"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(values, 1, "{told}");
    let metrics = one.gateway.metrics().await;
    let outcomes = |outcome: &str| metrics.sum("holdfast_outcomes_total", &[("outcome", outcome)]);
    assert_eq!(
        [outcomes("counted"), outcomes("repeated"), outcomes("bad_token"), outcomes("no_arm")],
        [2.0, 2.0, 3.0, 1.0]
    );

    let off = One::start(json!({"route_token": {}})).await;
    assert_eq!(off.gateway.data.post("/v1/outcomes", &[("x-tenant", "acme")], &click(1.0)).await.status, 404);
    assert_eq!(off.gateway.admin.get("/v1/results?experiment=ab", &[]).await.status, 404);
}
