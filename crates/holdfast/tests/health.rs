//! What happens when replicas fail: retries and their bounds, back-pressure, ejection, death under load, return.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fleet::{Fleet, INFER, PATIENCE, binary, config, executions, is_shed, judgements, probe, text};
use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Load, Target, open_loop};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Script, Step, Stub, eventually};
use http::Method;
use serde_json::{Value, json};

fn acme(subset: usize) -> Value {
    json!([{"name": "acme", "subset": subset, "pins": {"screen": "1"}}])
}

/// Two replicas that hold version 1, both in the tenant's subset.
async fn pair(shape: impl FnOnce(&mut Value)) -> Fleet {
    let fleet = Fleet::start((2, &[]), 1, acme(2), shape).await;
    fleet.wait_held("1", 2).await;
    fleet
}

fn client(fleet: &Fleet) -> Client {
    Client::new(fleet.gateway.data.addr())
}

fn target() -> Vec<Target> {
    vec![Target::new("acme", INFER, &probe())]
}

async fn wait_up(fleet: &Fleet, name: &str, up: bool) {
    eventually(&format!("{name} to be up: {up}"), PATIENCE, async || {
        (fleet.replica(name).await["up"] == json!(up)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_is_not_there_costs_nobody_an_error() {
    let mut fleet = pair(|_| {}).await;
    fleet.servers[0].proc.kill9();
    for n in 0..30 {
        let answer = fleet.infer("acme").await;
        assert_eq!(answer.expect(200).header("x-holdfast-replica"), "r2", "request {n}");
    }
    wait_up(&fleet, "r1", false).await;
    assert!(fleet.replica("r1").await["last_error"].is_string());
}

/// A stub and a real holder. The stub answers inferences by `script`.
async fn stub_and_gateway(
    idempotent: bool,
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> (Stub, Stub, Holdfast) {
    let (bad, good) = (V2::loaded(&[("screen-1", "1")]), V2::loaded(&[("screen-1", "1")]));
    let bad = Stub::start(move |request| match request.path.ends_with("/infer") {
        true => script(),
        false => bad.answer(request),
    })
    .await;
    let good = Stub::start(move |request| good.answer(request)).await;
    let mut config = config(&[bad.url(), good.url()], 1, acme(2));
    config["models"][0]["idempotent"] = json!(idempotent);
    // Ejection is not what is looked at.
    config["pools"][0]["health"] = json!({"interval": "500ms", "timeout": "500ms", "fall": 1000, "ease_in": "0s"});
    let gateway = Holdfast::start(binary(), &text(&config)).await;
    fleet::wait_held(&gateway, "1", 2).await;
    (bad, good, gateway)
}

/// What goes wrong, in words and as a script.
type Fault = (&'static str, fn() -> Script);

#[tokio::test]
async fn a_request_that_may_have_been_executed_is_not_sent_again() {
    let scripts: [Fault; 4] = [
        ("closed without an answer", Script::close),
        ("reset without an answer", || Script::default().then(Step::Reset)),
        ("cut in the body", || {
            Script::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"model_name\":").then(Step::Close)
        }),
        ("an error", || Script::json(500, &json!({"error": "out of luck"}))),
    ];
    for (name, script) in scripts {
        let (bad, good, gateway) = stub_and_gateway(false, script).await;
        let (mut failed, mut served) = (0, 0);
        for _ in 0..20 {
            let answer = gateway.infer("acme", INFER, &probe()).await;
            match answer.status.as_u16() {
                200 => served += 1,
                _ => {
                    assert_eq!(answer.header("x-holdfast-error"), "upstream_error", "{name}: {answer:?}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 0, "{name}");
        assert_eq!((bad.executions(), good.executions()), (failed, served), "{name}: one execution for each request");
    }
}

#[tokio::test]
async fn a_model_that_may_be_asked_twice_is_asked_twice() {
    let (bad, good, gateway) = stub_and_gateway(true, Script::close).await;
    for _ in 0..20 {
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    assert!(bad.executions() > 0);
    assert_eq!(good.executions(), 20);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_retries_total", &[("reason", "broken")]), bad.executions() as f64);
}

#[tokio::test]
async fn an_answer_that_has_begun_is_cut_and_not_begun_anew() {
    // Long enough to be passed on before its end; the connection then ends early.
    let long = || {
        let names = "{\"model_name\":\"screen-1\",\"model_version\":\"1\",\"outputs\":[";
        let body = format!("{names}{}", " ".repeat(300_000));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 400000\r\n\r\n";
        Script::raw(format!("{head}{body}")).then(Step::Close)
    };
    let (bad, good, gateway) = stub_and_gateway(true, long).await;
    let (mut cut, mut served) = (0, 0);
    for _ in 0..10 {
        let body = Bytes::from(probe().to_string());
        match gateway.data.send(Method::POST, INFER, &[("x-tenant", "acme")], body).await {
            Ok(answer) => served += usize::from(answer.status == 200),
            Err(why) => {
                assert!(why.starts_with("body:"), "{why}");
                cut += 1;
            }
        }
    }
    assert!(cut > 0);
    assert_eq!((bad.executions(), good.executions()), (cut, served), "idempotent or not");
}

#[tokio::test]
async fn a_busy_replica_is_left_alone_and_the_other_one_serves() {
    for status in [429, 503] {
        let fleet = pair(|_| {}).await;
        fleet.servers[0].faults(&json!({"error_rate": 1, "error_status": status})).await;
        for n in 0..50 {
            let answer = fleet.infer("acme").await;
            assert_eq!(answer.expect(200).header("x-holdfast-replica"), "r2", "{status}, request {n}");
        }
        assert_eq!(fleet.replica("r1").await["up"], true, "back-pressure ejects nobody");
        let received = fleet.servers[0].stats().await["requests"]["received"].as_u64().unwrap();
        assert!((1..=10).contains(&received), "{received} requests while it asked for pauses of a second");
        fleet.servers[0].faults(&json!({})).await;
        eventually("the replica to serve again", PATIENCE, async || {
            let answer = fleet.infer("acme").await.expect(200);
            (answer.header("x-holdfast-replica") == "r1").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn faults_of_clients_say_nothing_about_a_replica() {
    let fleet = pair(|_| {}).await;
    for n in 0..50 {
        let wrong = json!({"inputs": [{"name": "nonsense", "datatype": "FP32", "shape": [n], "data": []}]});
        let answer = fleet.gateway.infer("acme", INFER, &wrong).await.expect(400);
        assert_eq!(answer.header("x-holdfast-error"), "", "the model server's own answer: {}", answer.text());
        assert_eq!(answer.header("x-holdfast-version"), "1");
    }
    for name in ["r1", "r2"] {
        assert_eq!(fleet.replica(name).await["up"], true);
    }
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_retries_total", &[]), 0.0);
    let _ = fleet.infer("acme").await.expect(200);
}

#[tokio::test]
async fn server_errors_in_a_row_eject_and_probes_bring_back() {
    let fleet = pair(|_| {}).await;
    fleet.servers[0].faults(&json!({"error_rate": 1, "error_status": 502})).await;
    let mut failed = 0;
    for _ in 0..40 {
        let answer = fleet.infer("acme").await;
        if answer.status != 200 {
            assert_eq!(answer.header("x-holdfast-error"), "upstream_error", "{answer:?}");
            failed += 1;
        }
        if fleet.replica("r1").await["up"] == false {
            break;
        }
    }
    assert_eq!(failed, 3, "three in a row eject");
    assert_eq!(fleet.replica("r1").await["up"], false);
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-replica"), "r2");
    fleet.servers[0].faults(&json!({})).await;
    eventually("r1 to serve again", PATIENCE, async || {
        (fleet.infer("acme").await.expect(200).header("x-holdfast-replica") == "r1").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_models_own_failures_eject_only_once_two_tenants_meet_them() {
    let fleet = pair(|config| {
        config["tenants"] = ["acme", "evil"]
            .map(|name| json!({"name": name, "subset": 2, "pins": {"screen": "1"}}))
            .into_iter()
            .collect();
    })
    .await;
    fleet.servers[0].faults(&json!({"error_rate": 1})).await;
    let mut failed = 0;
    for _ in 0..60 {
        failed += usize::from(fleet.infer("evil").await.status == 502);
    }
    assert!(failed > 3, "{failed}: more than eject");
    assert_eq!(fleet.replica("r1").await["up"], true, "{failed} failures of one tenant");
    let mut met = 0;
    for _ in 0..60 {
        met += usize::from(fleet.infer("acme").await.status == 502);
        if fleet.replica("r1").await["up"] == false {
            break;
        }
    }
    assert_eq!(met, 3, "the row is met by a second tenant");
    wait_up(&fleet, "r1", false).await;
    let metrics = fleet.gateway.metrics().await;
    let counted = metrics.sum("holdfast_upstream_attempts_total", &[("outcome", "server_error")]);
    assert_eq!(counted, (failed + met) as f64, "each is counted");
}

/// One replica that answers whoever asks with `x-wants: wrong` by this, and everybody else correctly. One failure ejects.
async fn picky(wrong: impl Fn() -> Script + Send + Sync + 'static) -> (Stub, Holdfast) {
    let v2 = V2::loaded(&[("screen-1", "1")]);
    let stub = Stub::start(move |request| match request.header("x-wants") {
        "wrong" => wrong(),
        _ => v2.answer(request),
    })
    .await;
    let mut config = config(&[stub.url()], 1, acme(1));
    // Seldom polled, so that nothing is mended by chance.
    config["pools"][0]["health"] = json!({"interval": "60s", "timeout": "1s", "fall": 1, "ease_in": "0s"});
    let gateway = Holdfast::start(binary(), &text(&config)).await;
    fleet::wait_held(&gateway, "1", 1).await;
    (stub, gateway)
}

async fn ask_wrongly(gateway: &Holdfast, method: Method, path: &str) -> holdfast_testkit::http::Answer {
    let body = if method == Method::GET { Bytes::new() } else { Bytes::from(probe().to_string()) };
    gateway.data.send(method, path, &[("x-tenant", "acme"), ("x-wants", "wrong")], body).await.unwrap()
}

#[tokio::test]
async fn a_long_refusal_says_nothing_about_a_replica() {
    let long = || Script::json(422, &json!({"detail": format!("screen-1 wants no {}", "y".repeat(200_000))}));
    let (stub, gateway) = picky(long).await;
    for _ in 0..5 {
        let answer = ask_wrongly(&gateway, Method::POST, INFER).await.expect(422);
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains("screen wants no yyy") && said.len() < 1024, "{said}");
        assert_eq!((answer.header("content-type"), answer.header("x-holdfast-error")), ("application/json", ""));
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    assert_eq!(stub.executions(), 10, "each was asked once");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_upstream_attempts_total", &[("outcome", "client_error")]), 5.0);
}

#[tokio::test]
async fn when_no_replica_is_well_clients_are_told_at_once_and_replicas_are_not_stormed() {
    let fleet = pair(|config| config["pools"][0]["health"]["out_of_service_after"] = json!("1h")).await;
    for server in &fleet.servers {
        server.faults(&json!({"error_rate": 1, "error_status": 503})).await;
    }
    let begun = Instant::now();
    let report = open_loop(client(&fleet), 300, Duration::from_secs(3), target()).await;
    // A pause is a second, so each second more brings its own attempts.
    let most = 20 * begun.elapsed().as_secs();
    let mut received = 0;
    for server in &fleet.servers {
        received += server.stats().await["requests"]["received"].as_u64().unwrap();
    }
    assert!(report.0.len() >= 300, "{}", report.0.len());
    assert_eq!(report.count(|r| r.status == 503 && r.error == "overloaded"), report.0.len(), "{:?}", report.outcomes());
    assert!(received <= most, "{received} attempts for {} requests, {most} at most", report.0.len());
    let answer = fleet.infer("acme").await;
    assert!(is_shed(&answer, "overloaded"), "{answer:?}");
    fleet::assert_not_kept_waiting(&fleet.gateway, &answer).await;
}

#[tokio::test]
async fn retries_cannot_multiply_an_outage() {
    let fleet = pair(|config| {
        config["models"][0]["idempotent"] = json!(true);
        config["pools"][0]["health"]["fall"] = json!(1000);
    })
    .await;
    for server in &fleet.servers {
        server.faults(&json!({"error_rate": 1})).await;
    }
    let report = open_loop(client(&fleet), 200, Duration::from_secs(4), target()).await;
    let sent = report.0.len() as u64;
    assert_eq!(report.count(|r| r.status == 502), report.0.len(), "{:?}", report.outcomes());
    let attempts = fleet.executions().await;
    assert!(attempts > sent, "some were sent twice");
    // A fifth of the requests, and a floor of thirty in ten seconds.
    assert!(attempts <= sent + sent / 5 + 30, "{attempts} attempts for {sent} requests");
    let metrics = fleet.gateway.metrics().await;
    assert!(metrics.sum("holdfast_retry_budget_exhausted_total", &[]) > 0.0);
}

#[tokio::test]
async fn an_idempotent_request_is_sent_again_as_often_as_the_pool_says_and_no_more() {
    for (attempts, executions) in [(None, 3), (Some(0), 1), (Some(4), 5), (Some(10), 6)] {
        let fleet = Fleet::start((6, &[]), 1, acme(6), |config| {
            config["models"][0]["idempotent"] = json!(true);
            config["pools"][0]["health"]["fall"] = json!(1000);
            if let Some(attempts) = attempts {
                config["pools"][0]["retries"] = json!({"attempts": attempts});
            }
        })
        .await;
        fleet.wait_held("1", 6).await;
        for server in &fleet.servers {
            server.faults(&json!({"error_rate": 1})).await;
        }
        let before = fleet.executions().await;
        let _ = fleet.infer("acme").await.expect(502);
        // No replica is asked twice, so six is the most.
        assert_eq!(fleet.executions().await - before, executions, "attempts: {attempts:?}");
    }
}

#[tokio::test]
async fn death_of_a_replica_under_load_is_felt_by_what_it_was_executing_and_nobody_else() {
    let mut fleet = pair(|_| {}).await;
    let judgements = judgements(1).await;
    for server in &fleet.servers {
        server.faults(&json!({"infer_delay": "20ms"})).await;
    }
    let load = Load::start(client(&fleet), 150, target());
    eventually("the load to run", PATIENCE, async || (fleet.executions().await > 60).then_some(())).await;
    let before = executions(&fleet.servers[1].stats().await);
    fleet.servers[0].proc.kill9();
    eventually("the other to carry on", PATIENCE, async || {
        (executions(&fleet.servers[1].stats().await) > before + 200).then_some(())
    })
    .await;
    let report = load.stop().await;
    let wrong = |r: &holdfast_testkit::load::Record| {
        let body: Value = serde_json::from_slice(&r.body).unwrap_or_default();
        r.status == 200 && (r.version != "1" || body["outputs"] != judgements["1"])
    };
    assert_eq!(report.count(wrong), 0);
    let broken = report.count(|r| r.status == 502 && r.error == "upstream_error");
    let good = report.count(|r| r.status == 200);
    assert_eq!(good + broken, report.0.len(), "{:?}", report.outcomes());
    assert!(broken <= 30, "{broken} of {} were in flight at the replica", report.0.len());
}

#[tokio::test]
async fn a_replica_that_stays_away_is_replaced_by_the_next_in_order_and_returns_to_its_keys() {
    let mut fleet = Fleet::start((3, &[]), 1, acme(1), |config| {
        config["pools"][0]["health"] =
            json!({"interval": "200ms", "timeout": "200ms", "out_of_service_after": "1s", "ease_in": "0s"});
    })
    .await;
    let home = fleet.infer("acme").await.expect(200).header("x-holdfast-replica").to_owned();
    let at: usize = home[1..].parse::<usize>().unwrap() - 1;
    fleet.servers[at].proc.kill9();
    let mut told = BTreeMap::<String, usize>::new();
    let stand_in = eventually("another replica to step in", PATIENCE, async || {
        let answer = fleet.infer("acme").await;
        if answer.status == 200 {
            return Some(answer.header("x-holdfast-replica").to_owned());
        }
        *told.entry(format!("{} {}", answer.status, answer.header("x-holdfast-error"))).or_default() += 1;
        None
    })
    .await;
    assert_ne!(stand_in, home);
    let allowed = ["502 Bad Gateway upstream_error", "503 Service Unavailable no_holder"];
    assert!(told.keys().all(|k| allowed.contains(&k.as_str())), "{told:?}");
    assert_eq!(fleet.replica(&home).await["in_service"], false);
    fleet.servers[at].restart().await;
    eventually("the replica to have its key again", PATIENCE, async || {
        let answer = fleet.infer("acme").await.expect(200);
        (answer.header("x-holdfast-replica") == home).then_some(())
    })
    .await;
}

#[tokio::test]
async fn clients_that_leave_are_counted_out_and_a_returned_replica_attracts_no_herd() {
    let mut fleet = Fleet::start((3, &[]), 1, acme(3), |config| {
        config["pools"][0]["health"] = json!({"interval": "300ms", "timeout": "300ms"});
    })
    .await;
    fleet.wait_held("1", 3).await;
    for server in &fleet.servers {
        server.faults(&json!({"infer_delay": "300ms"})).await;
    }
    let mut leavers = tokio::task::JoinSet::new();
    for n in 0..300_u64 {
        let client = client(&fleet);
        leavers.spawn(async move {
            let body = Bytes::from(probe().to_string());
            let ask = client.send(Method::POST, INFER, &[("x-tenant", "acme")], body);
            let _ = tokio::time::timeout(Duration::from_millis(5 + n % 200), ask).await;
        });
    }
    leavers.join_all().await;
    eventually("all counts to be back at zero", PATIENCE, async || {
        let metrics = fleet.gateway.metrics().await;
        let names = ["holdfast_in_flight", "holdfast_replica_in_flight", "holdfast_waiting_requests"];
        names.iter().all(|name| metrics.sum(name, &[]) == 0.0).then_some(())
    })
    .await;
    for server in &fleet.servers {
        eventually("the servers to be idle", PATIENCE, async || {
            (server.stats().await["requests"]["in_flight"] == 0).then_some(())
        })
        .await;
    }
    fleet.servers[0].restart().await;
    fleet.wait_held("1", 3).await;
    for server in &fleet.servers {
        server.faults(&json!({"infer_delay": "20ms"})).await;
    }
    let mut before = Vec::new();
    for server in &fleet.servers {
        before.push(executions(&server.stats().await));
    }
    let report = open_loop(client(&fleet), 150, Duration::from_secs(2), target()).await;
    assert_eq!(report.count(|r| r.status == 200), report.0.len(), "{:?}", report.outcomes());
    let returned = executions(&fleet.servers[0].stats().await) - before[0];
    let share = returned as f64 / report.0.len() as f64;
    assert!(share < 0.45, "{returned} of {} went to the replica that had just returned", report.0.len());
}

#[tokio::test]
async fn when_every_replica_is_dead_the_refusal_is_quick_and_says_when_to_come_back() {
    let mut fleet = pair(|_| {}).await;
    for server in &mut fleet.servers {
        server.proc.kill9();
    }
    let told = eventually("a refusal for want of a holder", PATIENCE, async || {
        let begun = Instant::now();
        let answer = fleet::ask_within(&fleet.gateway, "1", "55000").await;
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}: {answer:?}", begun.elapsed());
        match answer.header("x-holdfast-error") {
            "upstream_error" => None,
            _ => Some(answer),
        }
    })
    .await;
    assert!(is_shed(&told, "no_holder"), "{told:?}");
    assert_eq!(told.header("x-holdfast-version"), "1");
    for server in &mut fleet.servers {
        server.restart().await;
    }
    eventually("service again", PATIENCE, async || (fleet.infer("acme").await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn a_replica_that_is_frozen_is_ejected_by_its_probes_and_keeps_only_what_it_had() {
    let fleet = pair(|config| {
        config["timeouts"] = json!({"request": "3s"});
        config["pools"][0]["health"] = json!({"interval": "300ms", "timeout": "300ms", "ease_in": "0s"});
    })
    .await;
    let running = Load::start(client(&fleet), 60, target());
    eventually("the load to run", PATIENCE, async || (fleet.executions().await > 20).then_some(())).await;
    fleet.servers[0].proc.freeze();
    wait_up(&fleet, "r1", false).await;
    for _ in 0..20 {
        assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-replica"), "r2");
    }
    let report = running.stop().await;
    let late = report.count(|r| r.status == 504 && r.error == "upstream_timeout");
    assert_eq!(report.count(|r| r.status == 200) + late, report.0.len(), "{:?}", report.outcomes());
    // Without an answer its count of requests in flight stays up, so the least loaded is soon the other one.
    assert!(late <= 40, "{late} of {} were sent to a frozen replica", report.0.len());
    fleet.servers[0].proc.thaw();
    wait_up(&fleet, "r1", true).await;
    eventually("r1 to serve again", PATIENCE, async || {
        (fleet.infer("acme").await.expect(200).header("x-holdfast-replica") == "r1").then_some(())
    })
    .await;
}
