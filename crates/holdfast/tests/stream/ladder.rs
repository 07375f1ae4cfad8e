//! Limits of messages, and the steps down the ladder.

use serde_json::{Value, json};

use crate::rig::{Rig, Ws, message};

fn of(id: u64, kind: &str, key: &str) -> Value {
    let mut whole = message(id, "screen");
    (whole["type"], whole["key"]) = (json!(kind), json!(key));
    whole
}

fn row<'l>(limits: &'l Value, scope: &str) -> &'l Value {
    let rows = limits["tenants"][0]["limits"].as_array().expect("limits");
    rows.iter().find(|row| row["scope"] == scope).unwrap_or_else(|| panic!("{limits:#}"))
}

#[tokio::test]
async fn a_user_over_its_limit_is_told_refused_and_closed_kept_out_and_takes_nothing_from_others() {
    let rig = Rig::start("", "user: { requests: 5/h }, tenant: { requests: 1000/h }").await;
    let mut noisy = Ws::user(&rig.gateway, "acme", "noisy").await;
    for id in 0..5 {
        noisy.ask(id, "screen").await;
        assert_eq!(noisy.frame().await["status"], 200);
    }
    for id in 5..40 {
        noisy.ask(id, "screen").await;
    }
    let (frames, code) = noisy.rest().await;
    assert_eq!(code, Some(1008));
    let errors: Vec<&Value> = frames.iter().filter(|frame| frame["error"].is_object()).collect();
    let warned: Vec<&Value> = frames.iter().filter(|frame| frame["type"] == "rate_limited").collect();
    assert_eq!(
        (warned.len(), errors.len()),
        (1, 10),
        "one warning in a second, and the tenth refusal closes: {frames:?}"
    );
    assert_eq!(warned[0]["limit"], "user-requests");
    let wait = warned[0]["retry_after_ms"].as_u64().unwrap();
    assert!((600_000..=720_000).contains(&wait), "one token of five in an hour: {wait}");
    for error in &errors {
        assert_eq!(
            (&error["error"]["kind"], &error["error"]["status"]),
            (&json!("rate_limited"), &json!(429)),
            "{error}"
        );
        assert!(error["id"].is_u64() && error["error"]["retry_after_ms"].as_u64().is_some(), "{error}");
    }

    // Coming back at once gains nothing, and it is said clearly when it is worth to come again.
    let fields = [("x-tenant", "acme"), ("x-user", "noisy")];
    for _ in 0..3 {
        let refused = Ws::try_open(&rig.gateway, &fields).await.map(|_| ()).expect_err("kept out");
        assert_eq!(refused.status(), 429, "{refused:?}");
        let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!(wait >= 1 && refused.headers()["x-holdfast-error"] == "rate_limited", "{refused:?}");
        let body = String::from_utf8(refused.body().clone().unwrap_or_default()).unwrap();
        assert!(body.contains("kept out"), "{body}");
    }

    // Nobody else has noticed, over sockets or over HTTP.
    let mut quiet = Ws::user(&rig.gateway, "acme", "quiet").await;
    for id in 0..5 {
        quiet.ask(id, "screen").await;
        assert_eq!(quiet.frame().await["status"], 200);
    }
    quiet.leave().await;
    let limits = rig.gateway.admin_get("/v1/limits").await;
    assert_eq!(row(&limits, "tenant")["available"], 990, "five of each user, none of a refused message: {limits:#}");
    let ladder = &limits["tenants"][0]["ladder"];
    assert_eq!(
        (&ladder["refused"], &ladder["warned"], &ladder["closed"]),
        (&json!(9), &json!(1), &json!(1)),
        "{limits:#}"
    );
    assert_eq!(limits["stream"]["kept_out"], 1, "{limits:#}");
    for (step, count) in [("refused", 9.0), ("warned", 1.0), ("closed", 1.0)] {
        assert_eq!(
            rig.count("holdfast_stream_ladder_total", &[("scope", "user"), ("step", step)]).await,
            count,
            "{step}"
        );
    }
    assert_eq!(rig.count("holdfast_stream_handshakes_total", &[("outcome", "kept_out")]).await, 3.0);
    rig.settled().await;
}

#[tokio::test]
async fn below_a_quarter_droppable_messages_go_first_streams_coalesce_and_critical_ones_pass_on_credit() {
    let types = "types: { typing: { priority: droppable }, price: { coalesce: true } }, ladder: { coalesce: 3s }";
    let rig = Rig::start(types, "user: { requests: 20/h }, tenant: { requests: 1000/h }").await;
    let mut socket = Ws::user(&rig.gateway, "acme", "u").await;
    let mut id = 0;
    let mut next = |kind: &str, key: &str| {
        id += 1;
        of(id, kind, key)
    };
    for _ in 0..15 {
        socket.say(&next("typing", "")).await;
        assert_eq!(socket.frame().await["status"], 200, "a quarter is there");
    }
    // Five of twenty are left: a quarter, and no less.
    socket.say(&next("typing", "")).await;
    assert_eq!(socket.frame().await["status"], 200);
    socket.say(&next("typing", "")).await;
    assert_eq!(socket.frame().await["dropped"], "low", "four are left");
    socket.say(&next("droppable", "")).await;
    assert_eq!(socket.frame().await["dropped"], "low", "types that are always there");
    socket.say(&next("normal", "")).await;
    assert_eq!(socket.frame().await["status"], 200, "three are left");

    // Of a stream the first passes, then the newest.
    for key in ["a", "a", "a", "b", "a"] {
        socket.say(&next("price", key)).await;
    }
    let (mut served, mut replaced) = (Vec::new(), Vec::new());
    while served.len() + replaced.len() < 5 {
        let frame = socket.frame().await;
        let list = if frame["dropped"] == "replaced" { &mut replaced } else { &mut served };
        list.push(frame["id"].as_u64().unwrap());
    }
    served.sort_unstable();
    assert_eq!((served, replaced), (vec![20, 23, 24], vec![21, 22]), "the first and the newest of a, and b");

    // Nothing is left. What is critical passes on credit, what is not is refused.
    socket.say(&next("normal", "")).await;
    let (warned, refused) = (socket.frame().await, socket.frame().await);
    assert_eq!(
        (&warned["type"], &refused["error"]["kind"]),
        (&json!("rate_limited"), &json!("rate_limited")),
        "{refused}"
    );
    for _ in 0..20 {
        socket.say(&next("critical", "")).await;
        assert_eq!(socket.frame().await["status"], 200, "a debt of one burst");
    }
    socket.say(&next("critical", "")).await;
    assert_eq!(socket.frame().await["error"]["kind"], "rate_limited", "and no more: refused aloud, not dropped");
    let limits = rig.gateway.admin_get("/v1/limits").await;
    let ladder = &limits["tenants"][0]["ladder"];
    assert_eq!((&ladder["dropped"], &ladder["coalesced"]), (&json!(2), &json!(2)), "{limits:#}");
    socket.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn the_same_holds_at_the_tenant_and_a_patient_socket_is_not_closed_for_what_others_have_used() {
    let rig = Rig::start("ladder: { violations: 3 }", "user: { requests: 1000/h }, tenant: { requests: 8/h }").await;
    let mut noisy = Ws::user(&rig.gateway, "acme", "noisy").await;
    let mut patient = Ws::user(&rig.gateway, "acme", "patient").await;
    for id in 0..8 {
        noisy.ask(id, "screen").await;
        assert_eq!(noisy.frame().await["status"], 200);
    }
    patient.say(&of(1, "droppable", "")).await;
    assert_eq!(patient.frame().await["dropped"], "low", "the tenant's bucket is low for all of it");
    patient.ask(2, "screen").await;
    assert_eq!(patient.frame().await["limit"], "tenant-requests");
    assert_eq!(patient.frame().await["error"]["kind"], "rate_limited");
    // The noisy one goes on, against what it is told.
    for id in 10..20 {
        noisy.ask(id, "screen").await;
    }
    assert_eq!(noisy.rest().await.1, Some(1008));
    let mut other = Ws::of(&rig.gateway, "bolt").await;
    other.ask(1, "screen").await;
    assert_eq!(other.frame().await["status"], 200, "another tenant");
    patient.say(&of(3, "droppable", "")).await;
    assert_eq!(patient.frame().await["dropped"], "low", "it is still there");
    let labels = [("scope", "tenant"), ("step", "closed")];
    assert_eq!(rig.count("holdfast_stream_ladder_total", &labels).await, 1.0);
    patient.leave().await;
    other.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn twenty_messages_of_a_megabyte_are_no_twenty_small_ones() {
    let rig =
        Rig::start("message: 2MiB, ladder: { violations: 1000 }", "user: { requests: 1000/h, bytes: 5MiB/h }").await;
    let mut large = Ws::user(&rig.gateway, "acme", "large").await;
    let whole =
        |id: u64| json!({ "id": id, "model": "screen", "input": { "inputs": [], "pad": "x".repeat(1_000_000) } });
    let (mut served, mut refused) = (0, 0);
    for id in 0..20 {
        large.say(&whole(id)).await;
    }
    while served + refused < 20 {
        let frame = large.frame().await;
        match (frame["status"].as_u64(), frame["error"]["kind"].as_str()) {
            (Some(200), _) => served += 1,
            (_, Some("rate_limited")) => refused += 1,
            _ => assert_eq!(frame["limit"], "user-bytes", "{frame}"),
        }
    }
    assert_eq!((served, refused), (5, 15));
    let mut small = Ws::user(&rig.gateway, "acme", "small").await;
    for id in 0..20 {
        small.ask(id, "screen").await;
        assert_eq!(small.frame().await["status"], 200);
    }
    large.leave().await;
    small.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn limits_in_shadow_mode_are_counted_and_do_nothing() {
    let rig = Rig::start("", "mode: shadow, user: { requests: 2/h }").await;
    let mut socket = Ws::user(&rig.gateway, "acme", "u").await;
    for id in 0..30 {
        socket.say(&of(id, "droppable", "")).await;
        assert_eq!(socket.frame().await["status"], 200);
    }
    let labels = [("scope", "user"), ("limit", "requests"), ("mode", "shadow")];
    assert_eq!(rig.count("holdfast_limited_total", &labels).await, 28.0);
    socket.leave().await;
    rig.settled().await;
}
