//! Long answers that name their version at once, late or never, rightly or wrongly, under both policies that look.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use bytes::Bytes;
use fleet::{PATIENCE, binary, config, is_shed, probe, text};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Script, Stub, eventually};
use http::Method;
use serde_json::{Value, json};

/// Far more than what is held of an answer that has not named its version (`limits.answer_head`), and than what is read at once.
const FILLING: usize = 2 << 20;

/// What a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gets {
    /// All of it, in the client's own names.
    Whole,
    /// 502 in its place.
    Refused,
    /// Its beginning, and no clean end.
    Cut,
}
use Gets::{Cut, Refused, Whole};

/// Of each kind of answer: what stands before the filling, what after it, and what comes of it if the pool requires a name, and if not.
/// `{m}` is the model's name at the replica.
const ANSWERS: [(&str, &str, &str, Gets, Gets); 7] = [
    ("early", r#""model_name":"{m}","model_version":"1","#, "", Whole, Whole),
    ("early-wrong", r#""model_name":"{m}","model_version":"2","#, "", Refused, Refused),
    ("late", "", r#","model_name":"{m}","model_version":"1""#, Refused, Whole),
    ("late-wrong", "", r#","model_name":"{m}","model_version":"2""#, Refused, Cut),
    ("half-late", r#""model_name":"{m}","#, r#","model_version":"1""#, Refused, Whole),
    ("half-late-wrong", r#""model_name":"{m}","#, r#","model_version":"2""#, Refused, Cut),
    ("absent", "", "", Refused, Whole),
];

/// A body of this kind, as the replica says it or, with another name for the model, as the client gets it.
fn body(kind: &str, model: &str) -> String {
    let (_, before, after, ..) = ANSWERS.iter().find(|answer| answer.0 == kind).unwrap();
    let filling = "7,".repeat(FILLING / 2);
    let whole = format!("{{{before}\"outputs\":[{{\"name\":\"x\",\"data\":[{filling}7]}}]{after}}}");
    whole.replace("{m}", model)
}

fn script(framing: &str, body: &str) -> Script {
    let json = [("content-type", "application/json")];
    if framing == "sized" {
        return Script::with_headers(200, &json, body.as_bytes());
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks = body.as_bytes().chunks(50_000);
    let chunks = chunks.map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)));
    Script::raw(format!("{head}{}0\r\n\r\n", chunks.collect::<String>()))
}

/// Every kind of answer in both framings: each is the answer of a model of its own, so that a quarantine concerns no other.
fn models() -> Vec<String> {
    let framings = ["sized", "chunked"];
    framings.iter().flat_map(|framing| ANSWERS.iter().map(move |answer| format!("{framing}_{}", answer.0))).collect()
}

async fn rig(policy: &str) -> (Stub, Holdfast) {
    let names: Vec<String> = models().iter().map(|model| format!("up-{model}")).collect();
    let loaded: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let v2 = V2::loaded(&loaded);
    let stub = Stub::start(move |request| {
        let Some(name) = request.path.strip_suffix("/versions/1/infer") else { return v2.answer(request) };
        let name = name.strip_prefix("/v2/models/").unwrap();
        let (framing, kind) = name.strip_prefix("up-").unwrap().split_once('_').unwrap();
        script(framing, &body(kind, name))
    })
    .await;
    let pins: serde_json::Map<String, Value> = models().into_iter().map(|model| (model, json!("1"))).collect();
    let holds: Vec<Value> = models().into_iter().map(|model| json!({"model": model, "version": "1"})).collect();
    let mut config = config(&[], 1, json!([{"name": "acme", "subset": 1, "pins": pins}]));
    config["pools"] = json!([{
        "name": "main", "protocol": "open-inference", "residency": "static",
        "upstream": {"model": "up-{model}", "version": "{version}", "answer": policy},
        "replicas": [{"name": "r1", "url": stub.url(), "holds": holds}],
    }]);
    let all = models().into_iter().map(|model| json!({"name": model, "pool": "main", "versions": [{"version": "1"}]}));
    config["models"] = all.collect();
    let gateway = Holdfast::start(binary(), &text(&config)).await;
    (stub, gateway)
}

/// One inference of a model, once its replica is known to hold it.
async fn ask(gateway: &Holdfast, model: &str) -> (Gets, Option<String>) {
    let ready = format!("/v2/models/{model}/ready");
    eventually("the replica to be known", PATIENCE, async || {
        (gateway.data.get(&ready, &[("x-tenant", "acme")]).await.status == 200).then_some(())
    })
    .await;
    let (path, body) = (format!("/v2/models/{model}/infer"), Bytes::from(probe().to_string()));
    match gateway.data.send(Method::POST, &path, &[("x-tenant", "acme")], body).await {
        Ok(answer) if answer.status == 200 => {
            assert_eq!(answer.header("x-holdfast-version"), "1");
            (Whole, Some(answer.text()))
        }
        Ok(answer) => {
            assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-error")), (502, "wrong_version_served"));
            (Refused, None)
        }
        Err(cut) => {
            assert!(cut.starts_with("body:"), "{model}: {cut}");
            (Cut, None)
        }
    }
}

async fn each_is_judged_by(policy: &str) {
    let (stub, gateway) = rig(policy).await;
    let (mut violations, mut asked) = (0.0, 0);
    for model in models() {
        let kind = model.split_once('_').unwrap().1;
        let (.., required, if_present) = ANSWERS.iter().find(|answer| answer.0 == kind).unwrap();
        let expected = if policy == "required" { *required } else { *if_present };
        let (gets, told) = ask(&gateway, &model).await;
        assert_eq!(gets, expected, "{model}, {policy}");
        asked += 1;
        if let Some(told) = told {
            assert!(told == body(kind, &model), "{model}: only the model's name differs from what the replica said");
        }
        violations += f64::from(u8::from(expected != Whole));
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.sum("holdfast_invariant_violations_total", &[("id", "PIN-1")]), violations, "{model}");
        // Whoever was found out serves nobody else.
        let again = gateway.infer("acme", &format!("/v2/models/{model}/infer"), &probe()).await;
        assert!(if gets == Whole { again.status == 200 } else { is_shed(&again, "no_holder") }, "{model}: {again:?}");
        asked += usize::from(gets == Whole);
    }
    assert_eq!(stub.executions(), asked, "none is asked again elsewhere or after its quarantine");
}

#[tokio::test]
async fn where_a_name_is_required_it_has_to_come_within_what_is_held() {
    each_is_judged_by("required").await;
}

#[tokio::test]
async fn where_a_name_may_be_absent_a_late_one_is_checked_and_a_wrong_one_cuts_the_answer() {
    each_is_judged_by("if_present").await;
}
