//! The ledger in a store that several gateways share: a real Redis, stopped, paused, flushed and started anew.

use holdfast_testkit::{Holdfast, RedisServer, Stub, TempDir, eventually};
use serde_json::{Value, json};

use super::fixture::{PATIENCE, ask, config, refused, resolved, server, start, version_of};
use super::moves::{pin, same_again};

const KEY: &str = "idempotency-key";
const ROUTE: &str = "x-holdfast-route";

struct Two {
    gateways: Vec<Holdfast>,
    configs: Vec<Value>,
    redis: RedisServer,
    _server: Stub,
    _dir: TempDir,
}

impl Two {
    async fn start(on_failure: &str) -> Self {
        let (server, redis, dir) = (server().await, RedisServer::start().await, TempDir::new());
        let secrets = dir.join("secrets");
        std::fs::write(&secrets, "a secret of this very fleet, of two gateways").unwrap();
        // The deadline is for a machine on which others build.
        let more = json!({
            "ledger": {"store": redis.url(), "within": "200ms", "on_failure": on_failure},
            "route_token": {"key_file": secrets},
        });
        let config = config(&server, &more);
        let gateways = vec![start(&config).await, start(&config).await];
        let two = Self { gateways, configs: vec![config.clone(), config], redis, _server: server, _dir: dir };
        if on_failure == "refuse" {
            two.settled().await;
        }
        two
    }

    /// A store that was empty a moment ago is not believed.
    async fn settled(&self) {
        for (at, gateway) in self.gateways.iter().enumerate() {
            let mut n = 0;
            eventually("the ledger to be believed", PATIENCE, async || {
                n += 1;
                let answer = ask(gateway, &[(KEY, &format!("settle-{at}-{n}"))]).await;
                (answer.status == 200).then_some(())
            })
            .await;
        }
    }

    async fn pin(&mut self, version: &str) {
        for (gateway, config) in self.gateways.iter_mut().zip(&mut self.configs) {
            pin(gateway, config, version).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_agree_over_a_flip_and_a_restart() {
    let mut two = Two::start("refuse").await;
    let first = ask(&two.gateways[0], &[(KEY, "a")]).await;
    assert_eq!(resolved(&first).0, "1");
    // One of them has flipped, the other has not.
    let (gateway, config) = (&mut two.gateways[1], &mut two.configs[1]);
    pin(gateway, config, "2").await;
    same_again(&first, &ask(&two.gateways[1], &[(KEY, "a")]).await);
    let other = ask(&two.gateways[1], &[(KEY, "b")]).await;
    assert_eq!(version_of(&other), "2");
    same_again(&other, &ask(&two.gateways[0], &[(KEY, "b")]).await);
    // A token of one is good at the other.
    same_again(&first, &ask(&two.gateways[1], &[(ROUTE, first.header(ROUTE))]).await);
    // At the same moment, at both.
    for n in 0..40 {
        let key = format!("race-{n}");
        let fields = [(KEY, key.as_str())];
        let (one, other) = tokio::join!(ask(&two.gateways[0], &fields), ask(&two.gateways[1], &fields));
        assert_eq!((one.status.as_u16(), other.status.as_u16()), (200, 200), "{} {}", one.text(), other.text());
        let told = |answer: &holdfast_testkit::http::Answer| {
            (version_of(answer).to_owned(), answer.header("x-holdfast-revision").to_owned())
        };
        assert_eq!(told(&one), told(&other), "{key}");
    }
    two.gateways[1].restart().await;
    super::fixture::serves(&two.gateways[1]).await;
    eventually("the ledger to be reached again", PATIENCE, async || {
        let answer = ask(&two.gateways[1], &[(KEY, "a")]).await;
        (answer.status == 200).then(|| same_again(&first, &answer))
    })
    .await;
}

/// Slow, hanging, gone: with a token a retry goes on, without a key nobody notices, and with a key alone it is refused, never guessed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_does_not_answer_is_waited_for_shortly_and_nothing_is_guessed() {
    let mut two = Two::start("refuse").await;
    let first = ask(&two.gateways[0], &[(KEY, "a")]).await;
    two.pin("2").await;
    two.redis.proc.freeze();
    for dead in [false, true] {
        if dead {
            two.redis.proc.kill9();
        }
        let unknown = ask(&two.gateways[1], &[(KEY, "a")]).await;
        refused(&unknown, 503, "overloaded", "the ledger does not answer");
        assert!(!unknown.header("retry-after").is_empty());
        assert_eq!(unknown.header("x-holdfast-version"), "");
        same_again(&first, &ask(&two.gateways[1], &[(KEY, "a"), (ROUTE, first.header(ROUTE))]).await);
        same_again(&first, &ask(&two.gateways[1], &[(ROUTE, first.header(ROUTE))]).await);
        // Remembered where it was first.
        same_again(&first, &ask(&two.gateways[0], &[(KEY, "a")]).await);
        assert_eq!(resolved(&ask(&two.gateways[1], &[]).await).0, "2", "who has no key does not notice");
    }
    // It comes back empty, and is told again what is remembered; nobody gets another version meanwhile.
    two.redis.restart().await;
    eventually("the ledger to know it again", PATIENCE, async || {
        let answer = ask(&two.gateways[1], &[(KEY, "a")]).await;
        assert!(answer.status == 503 || version_of(&answer) == "1", "{}", version_of(&answer));
        (answer.status == 200).then(|| same_again(&first, &answer))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_store_is_told_again_and_not_believed_before() {
    let mut two = Two::start("refuse").await;
    let first = ask(&two.gateways[0], &[(KEY, "a")]).await;
    two.pin("2").await;
    let _ = two.redis.command(&["FLUSHALL"]);
    eventually("the ledger to know it again", PATIENCE, async || {
        let answer = ask(&two.gateways[1], &[(KEY, "a")]).await;
        assert!(answer.status == 503 || version_of(&answer) == "1", "{}", version_of(&answer));
        (answer.status == 200).then(|| same_again(&first, &answer))
    })
    .await;
    two.settled().await;
    assert_eq!(version_of(&ask(&two.gateways[1], &[(KEY, "new")]).await), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_may_choose_to_go_on_and_the_answer_says_so() {
    let mut two = Two::start("decide").await;
    two.redis.proc.kill9();
    let answer = eventually("the store to be missed", PATIENCE, async || {
        let answer = ask(&two.gateways[0], &[(KEY, "a")]).await;
        (answer.header("x-holdfast-resolution") == "unledgered").then_some(answer)
    })
    .await;
    assert_eq!(resolved(&answer), ("1".to_owned(), answer.header("x-holdfast-revision").to_owned(), "pin".to_owned()));
    two.pin("2").await;
    same_again(&answer, &ask(&two.gateways[0], &[(KEY, "a"), (ROUTE, answer.header(ROUTE))]).await);
    assert_eq!(ask(&two.gateways[0], &[]).await.header("x-holdfast-resolution"), "", "one without a key is as ever");
    let receipt = ask(&two.gateways[0], &[(KEY, "b")]).await.header("x-holdfast-request-id").to_owned();
    let receipt = two.gateways[0].cli_json(&["receipt", &receipt]).await;
    assert_eq!(receipt["submission"], "unledgered", "{receipt}");
}
