//! The way to a real Redis with TLS, certificates of clients, and users with passwords.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_bank::access::{Access, Files, Secret};
use holdfast_bank::{Limits, Options, Stores};
use holdfast_quota::lease::{Ask, Rules};
use holdfast_quota::limit::Limit;
use holdfast_testkit::{Authority, RedisServer, eventually};

const PATIENCE: Duration = Duration::from_secs(30);
const PASSWORD: &str = "correct-horse-battery";

struct Rig {
    redis: RedisServer,
    authority: Authority,
}

impl Rig {
    /// A Redis in which the user `gate` may use the keys of gateways, and nothing else.
    async fn start() -> Self {
        let authority = Authority::new();
        let redis = RedisServer::start_with_tls(&authority.server(&["localhost"]), &authority).await;
        let password = format!(">{PASSWORD}");
        let made =
            redis.command(&["ACL", "SETUSER", "gate", "on", &password, "~holdfast:test:*", "+@all", "-@dangerous"]);
        assert_eq!(made, "+OK");
        Self { redis, authority }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.redis.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn access(&self, believes: &Authority, password: PathBuf) -> Access {
        let own = self.authority.client("gate", &["gate.example"]).files(self.redis.folder(), "own");
        let which = if believes.pem() == self.authority.pem() { "ours" } else { "others" };
        let authorities = believes.file(self.redis.folder().join(format!("{which}.pem")));
        Access {
            user: Some("gate".into()),
            password: Some(Secret::File(password)),
            tls: Some(Files { authorities, own: Some(own) }),
        }
    }

    fn store(&self, access: Access) -> Arc<Stores> {
        let options = Options {
            url: self.redis.secure_url(),
            access,
            namespace: "test".into(),
            within: Duration::from_secs(1),
            gateways: 1,
            seed: 7,
            keeps: "limits",
        };
        assert!(!format!("{options:?}").contains(PASSWORD), "it may be logged");
        let store = Stores::new(options, &[]).unwrap();
        tokio::spawn(store.clone().run());
        store
    }
}

/// Waits until connecting fails for this reason.
async fn refused(store: &Stores, reason: &str) {
    let mut why = None;
    let found = holdfast_testkit::wait::try_eventually(PATIENCE, async || {
        why = store.why();
        why.as_ref().is_some_and(|why| why.contains(reason)).then_some(())
    });
    assert!(found.await.is_some(), "{reason:?}: {why:?}, {:?}", store.state());
    assert!(!store.state().up && store.state().connects == 0);
    assert!(!why.unwrap().contains(PASSWORD));
}

#[tokio::test]
async fn limits_are_leased_over_tls_by_a_user_with_a_password() {
    let rig = Rig::start().await;
    let store = rig.store(rig.access(&rig.authority, rig.file("password", &format!("{PASSWORD}\n"))));
    eventually("a connection", PATIENCE, async || store.state().up.then_some(())).await;
    let limits = Limits::new(Rules::default());
    let ask = |order| Ask {
        gateway: 7,
        order,
        want: 5,
        whole: false,
        held: 0,
        offered: 5,
        gateways: 1,
        returned: 0,
        alone: None,
    };
    let limit = Limit::per_second(1_000, 1_000);
    let mut order = 0;
    let answer = eventually("tokens", PATIENCE, async || {
        order += 1;
        let told = limits.ask(&store, ("tenant:a:requests", 3), limit, ask(order), None).await;
        let told = told.expect("the user may do all that is needed").expect("a newer order");
        (told.tokens > 0).then_some(told)
    })
    .await;
    assert!(answer.tokens <= 5 && answer.there < 1_000, "{answer:?}");
    let clients = rig.redis.command(&["CLIENT", "LIST"]);
    assert!(clients.contains("user=gate"), "{clients}");
    eventually("to be counted", PATIENCE, async || (store.state().gateways == 1).then_some(())).await;
    assert_eq!(store.state().failures, 0);
}

#[tokio::test]
async fn strangers_and_wrong_passwords_are_refused_and_what_is_mended_is_read_anew() {
    let rig = Rig::start().await;
    let (others, password) = (Authority::new(), rig.file("wrong", "guessed"));
    let strange = rig.store(rig.access(&others, rig.file("right", PASSWORD)));
    refused(&strange, "TLS").await;
    let mut bare = rig.access(&rig.authority, rig.file("right", PASSWORD));
    if let Some(tls) = &mut bare.tls {
        tls.own = None;
    }
    let bare = rig.store(bare);
    eventually("a client without a certificate to be refused", PATIENCE, async || bare.why()).await;
    let store = rig.store(rig.access(&rig.authority, password.clone()));
    refused(&store, "authentication failed").await;
    let nowhere = rig.store(Access {
        password: Some(Secret::Environment("HOLDFAST_TEST_NOWHERE".into())),
        ..rig.access(&rig.authority, password.clone())
    });
    refused(&nowhere, "HOLDFAST_TEST_NOWHERE").await;
    // No restart is needed.
    std::fs::write(&password, PASSWORD).unwrap();
    eventually("a connection", PATIENCE, async || store.state().up.then_some(())).await;
    assert_eq!(store.why(), None);
    assert!(!bare.state().up && !strange.state().up);
}
