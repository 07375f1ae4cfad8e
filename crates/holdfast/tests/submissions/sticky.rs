//! A device that was given an arm, and the user who logs in on it, through a whole process.

use holdfast_testkit::http::Answer;
use holdfast_testkit::jwks::now;
use holdfast_testkit::{Holdfast, Jwks, Signer, eventually};
use serde_json::{Value, json};

use super::fixture::{PATIENCE, config, server};
use super::fleet::{binary, text};

struct World {
    gateway: Holdfast,
    signer: Signer,
}

impl World {
    async fn ask(&self, [tenant, user, device]: [&str; 3], more: &[(&str, &str)]) -> Answer {
        let now = now();
        let mut claims =
            json!({"iss": "https://id.example", "aud": "holdfast", "tenant": tenant, "iat": now, "exp": now + 3_600});
        for (name, value) in [("user", user), ("device", device)] {
            if !value.is_empty() {
                claims[name] = json!(value);
            }
        }
        let bearer = format!("Bearer {}", self.signer.token("k1", &claims));
        let fields: Vec<(&str, &str)> =
            [("authorization", bearer.as_str())].into_iter().chain(more.iter().copied()).collect();
        self.gateway.data.post("/v2/models/screen/infer", &fields, &json!({"inputs": []})).await
    }

    async fn count(&self, outcome: &str) -> f64 {
        self.gateway.metrics().await.sum("holdfast_sticky_total", &[("outcome", outcome)])
    }
}

/// Version, reason and arm.
#[track_caller]
fn got(answer: &Answer) -> [&str; 3] {
    assert_eq!(answer.status, 200, "{}", answer.text());
    ["x-holdfast-version", "x-holdfast-reason", "x-holdfast-experiment"].map(|name| answer.header(name))
}

#[tokio::test]
async fn a_device_that_was_given_an_arm_keeps_it_when_its_user_logs_in() {
    let (signer, server) = (Signer::ed(), server().await);
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let arms = json!([{"name": "control", "version": "1"}, {"name": "new", "version": "3"}]);
    let more = json!({
        "route_token": {},
        "auth": {"jwt": [{"issuer": "https://id.example", "jwks_url": jwks.url(), "algorithms": ["EdDSA"], "audiences": ["holdfast"],
            "claims": {"tenant": "tenant", "user": "user", "device": "device"}}]},
        "experiments": [{"name": "ab", "model": "screen", "status": "running", "coverage": 50, "sticky": {"keep": "1h"}, "arms": arms}],
    });
    let gateway = Holdfast::start(binary(), &text(&config(&server, &more))).await;
    let world = World { gateway, signer };
    eventually("the model to be served", PATIENCE, async || {
        (world.ask(["acme", "u3", ""], &[]).await.status == 200).then_some(())
    })
    .await;

    // Whom the best key gave an arm needs nothing else; a device is given a token, as a header and as a cookie.
    let user = world.ask(["acme", "u0", "d0"], &[]).await;
    assert_eq!(got(&user), ["1", "experiment", "ab=control"]);
    assert_eq!((user.header("x-holdfast-sticky"), user.header("set-cookie")), ("", ""));
    let anonymous = world.ask(["acme", "", "d0"], &[]).await;
    assert_eq!(got(&anonymous), ["3", "experiment", "ab=new"]);
    let token = anonymous.header("x-holdfast-sticky").to_owned();
    let cookie = anonymous.header("set-cookie").to_owned();
    assert!(
        cookie.starts_with(&format!("holdfast-arm-ab={token}; Path=/; Max-Age=3600; HttpOnly; Secure")),
        "{cookie}"
    );

    // The user of another arm logs in, and keeps the device's, by either; from now on the token is this user's.
    let held = format!("theme=dark; {}", cookie.split(';').next().unwrap());
    let by_cookie = world.ask(["acme", "u0", "d0"], &[("cookie", &held)]).await;
    assert_eq!(got(&by_cookie), ["3", "sticky", "ab=new"]);
    let by_header = world.ask(["acme", "u0", ""], &[("x-holdfast-sticky", &token)]).await;
    assert_eq!(got(&by_header), ["3", "sticky", "ab=new"]);
    let owned = by_cookie.header("x-holdfast-sticky").to_owned();
    assert!(!owned.is_empty() && owned != token);
    let again = world.ask(["acme", "u0", "d0"], &[("x-holdfast-sticky", &owned)]).await;
    assert_eq!((got(&again), again.header("x-holdfast-sticky")), (["3", "sticky", "ab=new"], ""));
    // Somebody else at the same device (u5 has control by the hash), and who is out by the hash.
    let other = world.ask(["acme", "u5", "d0"], &[("x-holdfast-sticky", &owned)]).await;
    assert_eq!(got(&other), ["1", "experiment", "ab=control"]);
    let out = world.ask(["acme", "u3", "d0"], &[("x-holdfast-sticky", &owned)]).await;
    assert_eq!(got(&out), ["1", "pin", ""]);
    // What is named comes before it, and it gives nobody a version that may not be named.
    let named = world.ask(["acme", "u0", "d0"], &[("x-holdfast-sticky", &owned), ("x-holdfast-version", "2")]).await;
    assert_eq!(got(&named), ["2", "explicit", ""]);
    let denied = world.ask(["acme", "u0", "d0"], &[("x-holdfast-sticky", &owned), ("x-holdfast-version", "3")]).await;
    assert_eq!(denied.status, 403);

    // What is forged, another tenant's, or nothing at all is as if it were not there, and counted.
    let mut forged = token.clone().into_bytes();
    let last = forged.len() - 8;
    forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let route = anonymous.header("x-holdfast-route").to_owned();
    for (bad, outcome) in [(forged.as_str(), "forged"), ("nonsense", "malformed"), (&route, "malformed")] {
        let before = world.count(outcome).await;
        let answer = world.ask(["acme", "u0", "d0"], &[("x-holdfast-sticky", bad)]).await;
        assert_eq!(got(&answer), ["1", "experiment", "ab=control"], "{outcome}");
        assert!(world.count(outcome).await > before, "{outcome}");
    }
    let answer = world.ask(["globex", "u0", "d0"], &[("x-holdfast-sticky", &token)]).await;
    assert_eq!(got(&answer), ["1", "experiment", "ab=control"]);
    assert!(world.count("other_tenant").await > 0.0);

    // Device and user are one subject in the events, told once; the others are u0 by itself, u5, and the other tenant's u0.
    let folder = world.gateway.state_path().join("exposures");
    let lines: Vec<Value> = eventually("the exposures", PATIENCE, async || {
        let files = std::fs::read_dir(&folder).ok()?;
        let text: String = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok()).collect();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() >= 4).then_some(lines)
    })
    .await;
    let new: Vec<&Value> = lines.iter().filter(|line| line["arm"] == "new").collect();
    assert_eq!((lines.len(), new.len()), (4, 1), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line["tenant"] == "globex").count(), 1, "{lines:?}");
    assert_eq!((&new[0]["key"], &new[0]["reason"]), (&json!("device"), &json!("experiment")));
}
