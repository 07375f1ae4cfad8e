//! What a token says beyond who its holder is, and everything that a refused token says, comes out nowhere.

use std::path::{Path, PathBuf};

use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Jwks, Signer, Stub, eventually};
use serde_json::{Value, json};

use super::fixture::{INFER, PATIENCE, assert_refused, claims, config, one};

/// A word that must not come out anywhere.
const CANARY: &str = "canary-5e1d0";

/// A gateway at its most talkative.
async fn talkative(jwks: &Jwks) -> (Stub, Holdfast) {
    let correct = V2::loaded(&[("screen", "1")]);
    let stub = Stub::start(move |request| correct.answer(request)).await;
    let more = "log: { level: trace, access: all }\nreceipts: { disk: {} }\n";
    let config = format!("{}{more}", config(&one(&jwks.url(), "cooldown: 1s", "bad_tokens: { rate: 0 }"), &stub.url()));
    let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &config).await;
    (stub, gateway)
}

/// Good claims, and the canary wherever nobody has asked for anything.
fn beyond() -> Value {
    let mut claims = claims();
    for name in ["jti", "email", "nonce", "azp", "sid"] {
        claims[name] = json!(format!("{CANARY}-{name}"));
    }
    claims["address"] = json!({ "street": format!("{CANARY}-street"), CANARY: [CANARY] });
    claims
}

/// The files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.flat_map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { vec![entry.path()] }).collect()
}

#[tokio::test]
async fn claims_that_nobody_asked_for_and_refused_tokens_come_out_nowhere() {
    let signer = Signer::ed();
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let (stub, gateway) = talkative(&jwks).await;
    let send = async |token: &str| {
        gateway.data.post(INFER, &[("authorization", &format!("Bearer {token}"))], &json!({ "inputs": [] })).await
    };
    let good = signer.token("k1", &beyond());
    eventually("a good token to be served", PATIENCE, async || (send(&good).await.status == 200).then_some(())).await;
    // Every claim of who it is, of somebody who proves nothing.
    let mut wrong = beyond();
    for name in ["tenant", "sub", "plan", "aud", "iss"] {
        wrong[name] = json!(format!("{CANARY}-{name}"));
    }
    let mut ended = wrong.clone();
    ended["exp"] = json!(1);
    let mut claimed = wrong.clone();
    (claimed["iss"], claimed["aud"]) = (claims()["iss"].clone(), claims()["aud"].clone());
    let forger = Signer::ed();
    let mut refused: Vec<String> = vec![
        forger.token("k1", &claimed),
        forger.token(&format!("{CANARY}-kid"), &claimed),
        signer.token("k1", &wrong),
        signer.token("k1", &ended),
        format!("{CANARY}.{CANARY}.{CANARY}"),
        CANARY.to_owned(),
        format!("{good}{CANARY}"),
    ];
    for token in &refused {
        assert_refused(&send(token).await, 401, "unauthenticated");
    }
    // A tenant that the issuer vouches for and that is not there: its name is told to the operator, nothing else of it.
    let mut stranger = beyond();
    stranger["tenant"] = json!("stranger");
    let stranger = signer.token("k1", &stranger);
    let forbidden = send(&stranger).await.expect(403);
    assert_eq!(forbidden.header("x-holdfast-error"), "forbidden");
    refused.extend([stranger, good.clone()]);

    let last = send(&good).await.expect(200);
    let receipt = format!("/v1/receipts/{}", last.header("x-holdfast-request-id"));
    eventually("the last receipt", PATIENCE, async || {
        (gateway.admin.get(&receipt, &[]).await.status == 200).then_some(())
    })
    .await;
    let kept = |folder: &str| files(&gateway.state_path().join(folder));
    eventually("all to be on disk", PATIENCE, async || {
        let text = |folder| kept(folder).iter().filter_map(|f| std::fs::read_to_string(f).ok()).collect::<String>();
        let id = last.header("x-holdfast-request-id");
        (text("receipts").contains(id) && text("audit").contains(id)).then_some(())
    })
    .await;
    let mut places = vec![("output".to_owned(), gateway.proc.output())];
    for path in ["/metrics", "/v1/table", "/v1/replicas", "/v1/alarms", "/v1/receipts?limit=1000", &receipt] {
        places.push((path.to_owned(), gateway.admin.get(path, &[]).await.expect(200).text()));
    }
    places.push(("explain".to_owned(), gateway.admin_get("/v1/explain?tenant=acme&model=screen").await.to_string()));
    places.push(("requests to the replica".to_owned(), format!("{:?}", stub.requests())));
    for file in files(&gateway.state_path()) {
        places.push((file.display().to_string(), String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned()));
    }
    for (place, text) in places {
        assert!(!text.contains(CANARY), "in {place}: {}", around(&text, CANARY));
        for token in &refused {
            // What signs a token is its secret part.
            let secret = token.rsplit('.').next().unwrap();
            assert!(!text.contains(secret), "a token in {place}: {}", around(&text, secret));
        }
    }
}

fn around(text: &str, what: &str) -> String {
    let at = text.find(what).unwrap_or_default();
    text.chars().skip(text[..at].chars().count().saturating_sub(200)).take(400).collect()
}
