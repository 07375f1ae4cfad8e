//! What becomes of tokens when their issuer rotates, is slow, hangs or fails.

use std::time::{Duration, Instant};

use holdfast_testkit::jwks::Mode;
use holdfast_testkit::{Jwks, Signer, eventually};
use serde_json::json;

use super::fixture::{PATIENCE, Rig, assert_refused, claims, claims_of, simple};

#[tokio::test]
async fn a_new_key_is_known_with_its_first_token_and_a_gone_one_is_gone() {
    let (old, jwks, rig) = simple("cooldown: 1s").await;
    let old_token = old.token("k1", &claims());
    rig.good(&old_token).await;
    let new = Signer::rsa();
    jwks.rotate(&[old.jwk("k1"), new.jwk("k2")]);
    let before = jwks.fetches();
    rig.good(&new.token("k2", &claims())).await;
    assert_eq!(jwks.fetches(), before + 1, "it waited for one fetch");
    rig.good(&old_token).await;
    // The old key goes; a token that was verified with it is verified no more. Another unknown key has the keys fetched.
    jwks.rotate(&[new.jwk("k2")]);
    eventually("the old key to be gone", PATIENCE, async || {
        let _ = rig.infer(&Signer::ed().token(&format!("k{}", jwks.fetches() + 10), &claims())).await;
        let answer = rig.infer(&old_token).await;
        (answer.status == 401).then_some(())
    })
    .await;
    rig.good(&new.token("k2", &claims())).await;
}

#[tokio::test]
async fn another_key_under_the_same_name() {
    let (old, jwks, rig) = simple("cooldown: 1s").await;
    let new = Signer::ed();
    let old_token = old.token("k1", &claims());
    rig.good(&old_token).await;
    jwks.rotate(&[new.jwk("k1")]);
    rig.good(&new.token("k1", &claims())).await;
    assert_refused(&rig.infer(&old_token).await, 401, "unauthenticated");
    // Forgeries under that name cause no more than one fetch in each pause.
    let (before, begun) = (jwks.fetches(), Instant::now());
    for number in 0..200 {
        assert_refused(
            &rig.infer(&Signer::ed().token("k1", &claims_of(&format!("f{number}")))).await,
            401,
            "unauthenticated",
        );
    }
    // One in each pause, and one that was under way already.
    let most = begun.elapsed().as_secs() as usize + 2;
    assert!(jwks.fetches() - before <= most, "{} fetches in {:?}", jwks.fetches() - before, begun.elapsed());
}

#[tokio::test]
async fn a_flood_of_unknown_keys_costs_the_issuer_one_fetch_in_each_pause() {
    let (signer, jwks, rig) = simple("cooldown: 30s").await;
    let good = signer.token("k1", &claims());
    let before = jwks.fetches();
    let forger = Signer::ed();
    let sends = (0..2_000).map(|number| forger.token(&format!("unknown-{number}"), &claims_of("forged")));
    for (number, token) in sends.enumerate() {
        assert_refused(&rig.infer(&token).await, 401, "unauthenticated");
        if number % 100 == 0 {
            rig.good(&good).await;
        }
    }
    assert!(jwks.fetches() - before <= 2, "{}", jwks.fetches() - before);
    assert!(rig.tokens("unknown_key").await >= 2_000.0);
}

#[tokio::test]
async fn keys_outlive_their_issuer_for_a_stated_time() {
    let (signer, jwks, rig) = simple("refresh: 1s, keep: 15s, cooldown: 1s").await;
    let remembered = signer.token("k1", &claims());
    rig.good(&remembered).await;
    jwks.set_mode(Mode::Status(500));
    let failed = async || rig.gateway.metrics().await.sum("holdfast_jwks_fetches_total", &[("outcome", "failed")]);
    eventually("a fetch to fail", PATIENCE, async || (failed().await >= 1.0).then_some(())).await;
    // A token that was not seen before is verified all the same, with the keys that are here.
    rig.good(&signer.token("k1", &claims_of("new"))).await;
    let age = rig.gateway.metrics().await.sum("holdfast_jwks_age_seconds", &[]);
    assert!(age > 0.0, "{age}");
    let stale = eventually("the keys to be too old", PATIENCE * 3, async || {
        let answer = rig.infer(&remembered).await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_refused(&stale, 503, "identity_stale");
    assert_refused(&rig.infer(&signer.token("k1", &claims_of("newer"))).await, 503, "identity_stale");
    // Who proves nobody is told so at any time.
    assert_refused(&rig.infer("nonsense").await, 401, "unauthenticated");
    jwks.set_mode(Mode::Serve);
    rig.serves(&remembered).await;
}

#[tokio::test]
async fn an_issuer_that_answers_nonsense_changes_nothing() {
    let (signer, jwks, rig) = simple("refresh: 1s, keep: 1h, cooldown: 1s").await;
    let failed = async || rig.gateway.metrics().await.sum("holdfast_jwks_fetches_total", &[("outcome", "failed")]);
    for mode in [
        Mode::Bytes(b"{\"keys\":[]}".to_vec()),
        Mode::Bytes(b"<html>".to_vec()),
        Mode::Bytes(vec![b' '; 2 << 20]),
        Mode::Bytes(b"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\",\"kid\":\"k1\"}]}".to_vec()),
        Mode::Status(302),
    ] {
        let before = failed().await;
        jwks.set_mode(mode.clone());
        eventually("a fetch to fail", PATIENCE, async || (failed().await > before).then_some(())).await;
        let token = signer.token("k1", &claims_of(&format!("{}", before)));
        assert_eq!(rig.infer(&token).await.status, 200);
    }
}

#[tokio::test]
async fn the_first_keys_are_waited_for_within_bounds() {
    let signer = Signer::ed();
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    jwks.set_mode(Mode::Hang);
    let rig = Rig::of(&jwks.url(), "timeout: 1s, cooldown: 1s, refresh: 1s").await;
    // The fetch has a second; the request by itself would have nearly a minute.
    let begun = Instant::now();
    let bearer = format!("Bearer {}", signer.token("k1", &claims()));
    let answer = rig.infer_with(&[("authorization", &bearer), ("x-request-timeout-ms", "55000")]).await;
    assert_refused(&answer, 503, "identity_stale");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    jwks.set_mode(Mode::Slow(Duration::from_millis(300)));
    rig.serves(&signer.token("k1", &claims())).await;
    // A request's own budget bounds its wait, too.
    jwks.set_mode(Mode::Hang);
    let bearer = format!("Bearer {}", Signer::ed().token("k9", &claims()));
    let answer = rig.infer_with(&[("authorization", &bearer), ("x-request-timeout-ms", "50")]).await;
    assert_eq!(answer.status, 401, "{}", answer.text());
}

#[tokio::test]
async fn keys_in_a_file() {
    let signer = Signer::ec();
    let dir = holdfast_testkit::TempDir::new();
    let file = dir.join("keys.json");
    let write = |jwk: serde_json::Value| {
        std::fs::write(dir.join("new"), json!({ "keys": [jwk] }).to_string()).unwrap();
        std::fs::rename(dir.join("new"), &file).unwrap();
    };
    write(signer.jwk("a"));
    let auth = format!(
        "bad_tokens: {{ rate: 0 }}, jwt: [{{ issuer: local, jwks_file: \"{}\", algorithms: [ES256], audiences: [], tenant: acme, \
         cooldown: 1s, refresh: 1s }}]",
        file.display()
    );
    let rig = Rig::start(&auth).await;
    let mut claims = claims();
    claims["iss"] = json!("local");
    rig.serves(&signer.token("a", &claims)).await;
    let next = Signer::ec();
    write(next.jwk("b"));
    rig.serves(&next.token("b", &claims)).await;
    eventually("the key to be gone", PATIENCE, async || {
        let answer = rig.infer(&signer.token("a", &claims)).await;
        (answer.status == 401).then_some(())
    })
    .await;
    std::fs::remove_file(&file).unwrap();
    rig.good(&next.token("b", &claims)).await;
}

/// A key set in a file is read again with each reload, and not only when its time has come.
#[tokio::test]
async fn a_reload_reads_key_sets_again_and_a_bad_one_changes_nothing() {
    let (signer, next) = (Signer::ec(), Signer::ec());
    let dir = holdfast_testkit::TempDir::new();
    let file = dir.join("keys.json");
    let write = |content: &str| holdfast_testkit::temp::write_atomically(&file, content);
    let set = |jwk: serde_json::Value| json!({ "keys": [jwk] }).to_string();
    write(&set(signer.jwk("a")));
    let auth = format!(
        "bad_tokens: {{ rate: 0 }}, jwt: [{{ issuer: local, jwks_file: \"{}\", algorithms: [ES256], audiences: [], tenant: acme, \
         cooldown: 1h, refresh: 1h }}]",
        file.display()
    );
    let mut rig = Rig::start(&auth).await;
    let mut claims = claims();
    claims["iss"] = json!("local");
    let (old, new) = (signer.token("a", &claims), next.token("b", &claims));
    rig.serves(&old).await;
    // The one fetch that tokens may ask for in an hour, so that nothing but a reload is left.
    assert_refused(&rig.infer(&new).await, 401, "unauthenticated");
    for (content, failures) in [("nonsense", 1.0), ("{}", 2.0), ("", 3.0)] {
        write(content);
        rig.gateway.proc.sighup();
        eventually("the file to be read", PATIENCE, async || {
            let failed = rig.gateway.metrics().await.sum("holdfast_jwks_fetches_total", &[("outcome", "failed")]);
            (failed >= failures).then_some(())
        })
        .await;
        rig.good(&old).await;
    }
    let told = rig.gateway.proc.output().matches("the issuer's keys cannot be fetched").count();
    assert_eq!(told, 3, "whoever asks is told each time");
    write(&set(next.jwk("b")));
    // A change of the file itself is a reload as well.
    rig.gateway.edit_config(|text| format!("{text}# another\n"));
    rig.serves(&new).await;
    assert_refused(&rig.infer(&old).await, 401, "unauthenticated");
}
