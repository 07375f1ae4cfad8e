//! Pages: each shows the revision of the first, whatever is written meanwhile.

use serde_json::Value as Json;

use crate::support::{Bench, STATE};

fn names(page: &Json) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap().to_owned()).collect()
}

/// The path of the next page, from the header.
fn next(link: &str) -> Option<String> {
    let path = link.strip_prefix('<')?.strip_suffix(">; rel=\"next\"")?;
    Some(path.to_owned())
}

#[tokio::test]
async fn a_listing_is_of_one_revision_while_others_write() {
    let bench = Bench::new().await;
    // Names around the owner's in the order of the store, so that a listing of one owner has neighbours.
    let more =
        (0..230).map(|n| format!("  - {{ name: t{n:03}, subset: 1, pins: {{ screen: \"1\", rank: \"1\" }} }}\n"));
    let near = ["acme-b", "acme.z", "acme0", "acm"]
        .map(|n| format!("  - {{ name: {n}, subset: 1, pins: {{ screen: \"1\" }} }}\n"));
    let text = format!("{STATE}{}{}", more.collect::<String>(), near.concat());
    let done = bench.ask("POST /v1/apply", &[("content-type", "application/yaml")], &text).await;
    assert_eq!(done.status, 200, "{}", done.text);

    let (mut path, mut all, mut pages) = ("/v1/tenants?limit=50".to_owned(), Vec::new(), 0);
    loop {
        let page = bench.ask(&format!("GET {path}"), &[], "").await;
        assert_eq!((page.status.as_u16(), &page.json["revision"]), (200, &2.into()), "{}", page.text);
        all.extend(names(&page.json));
        pages += 1;
        let made = bench.ask(&format!("PUT /v1/tenants/t{}5x", pages % 3), &[], r#"{"spec":{"subset":1}}"#).await;
        assert!(made.status.is_success(), "{}", made.text);
        let gone = bench.ask(&format!("DELETE /v1/tenants/t2{pages:02}"), &[], "").await;
        assert!(gone.status.is_success(), "{}", gone.text);
        let Some(link) = next(page.header("link")) else { break };
        assert!(link.contains("limit=50") && link.contains("at=2"), "{link}");
        path = link;
    }
    let mut expected: Vec<String> = (0..230).map(|n| format!("t{n:03}")).collect();
    expected.extend(["acme", "globex", "acme-b", "acme.z", "acme0", "acm"].map(str::to_owned));
    expected.sort_unstable();
    assert_eq!((all, pages), (expected, 5));

    for (owner, pins) in [("acme", vec!["acme/rank", "acme/screen"]), ("acm", vec!["acm/screen"]), ("zzz", vec![])] {
        assert_eq!(names(&bench.get(&format!("/v1/pins?tenant={owner}")).await), pins, "{owner}");
    }
    let second = bench.get("/v1/pins?tenant=acme&limit=1").await;
    assert_eq!((names(&second), &second["next"]), (vec!["acme/rank".to_owned()], &"acme/rank".into()));
    assert_eq!(names(&bench.get("/v1/pins?tenant=acme&limit=1&after=acme/rank").await), ["acme/screen"]);
    assert_eq!(names(&bench.get("/v1/replicas/main").await), ["main/r1", "main/r2"]);
    assert_eq!(names(&bench.get("/v1/pools").await), ["main"]);
    assert_eq!(names(&bench.get("/v1/models").await), ["rank", "screen"]);
    assert_eq!(names(&bench.get("/v1/tenants?limit=1000&at=1").await), ["acme", "globex"]);
}

#[tokio::test]
async fn roll_outs_are_listed_from_the_newest() {
    use holdfast_decide::rollout::{Phase, Stage};
    let bench = Bench::new().await;
    for id in 1..=250 {
        let (phase, stage) = if id % 50 == 0 { (Phase::Canary, Stage::Canary) } else { (Phase::Done, Stage::Done) };
        bench.fleet.put(id, phase, stage);
    }
    let ids = |page: &Json| -> Vec<u64> {
        page["items"].as_array().unwrap().iter().map(|r| r["rollout"].as_u64().unwrap()).collect()
    };
    let first = bench.ask("GET /v1/rollouts?limit=120", &[], "").await;
    assert_eq!((ids(&first.json).len(), ids(&first.json)[0], &first.json["next"]), (120, 250, &"131".into()));
    assert_eq!(next(first.header("link")).as_deref(), Some("/v1/rollouts?after=131&limit=120"));
    let second = bench.get("/v1/rollouts?after=131&limit=130").await;
    assert_eq!((ids(&second)[0], ids(&second).len(), &second["next"]), (130, 130, &Json::Null));
    assert_eq!(ids(&bench.get("/v1/rollouts?running=true").await), [250, 200, 150, 100, 50]);
    assert_eq!(ids(&bench.get("/v1/rollouts?running=true&limit=5").await).len(), 5);
    assert_eq!(ids(&bench.get("/v1/rollouts?pin=acme/screen&limit=1").await), [250]);
    assert!(ids(&bench.get("/v1/rollouts?pin=acme/rank").await).is_empty());
    assert!(first.json["items"][0]["pins"].is_null() && bench.get("/v1/rollouts/9").await["pins"][0]["to"] == "2");
}
