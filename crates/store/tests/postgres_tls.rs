//! TLS to a real PostgreSQL: who is believed, and that nothing is said to anybody else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use holdfast_store::{Commit, Error, Postgres, PostgresOptions, PostgresTls, Space, Store};
use holdfast_testkit::{Authority, PostgresServer, Signed};

mod support;

use support::{all, change, desired, put};

/// Long enough to be refused on a busy machine, and short enough that a refusal is not waited for.
const DEADLINE: Duration = Duration::from_secs(3);
/// A name that only the certificate and the connection have: no name service is asked.
const NAME: &str = "db.example";

/// Connects to the server under a name that its certificate should have.
fn options(server: &PostgresServer, host: &str, tls: Option<PostgresTls>) -> PostgresOptions {
    let url = format!("host={host} hostaddr=127.0.0.1 port={} user=holdfast dbname=postgres", server.port());
    let password = Some(PostgresServer::PASSWORD.to_owned());
    PostgresOptions { deadline: DEADLINE, password, tls, ..PostgresOptions::new(url) }
}

fn believing(authority: &Authority, own: Option<&Signed>) -> Option<PostgresTls> {
    let own = own.map(|own| (own.certificate.as_bytes(), own.key.as_bytes()));
    Some(PostgresTls::new(authority.pem().as_bytes(), own).unwrap())
}

/// Why no store could be opened.
async fn refused(options: PostgresOptions) -> String {
    match Postgres::open(options).await {
        Ok(_) => panic!("the store was opened"),
        Err(error @ (Error::Unavailable { .. } | Error::Timeout { .. } | Error::Backend { .. })) => error.to_string(),
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_server_that_is_believed_under_its_name_gets_the_password() {
    let (ours, others) = (Authority::new(), Authority::new());
    let server = PostgresServer::start_with_tls(&ours.server(&[NAME, "127.0.0.1"]), None).await;
    for (tls, host, why) in [
        (believing(&others, None), NAME, "UnknownIssuer"),
        (believing(&ours, None), "elsewhere.example", "not valid for name"),
        (believing(&ours, None), "127.0.0.2", "not valid for name"),
    ] {
        let told = refused(options(&server, host, tls)).await;
        assert!(told.contains("TLS handshake") && told.contains(why), "{host}: {told}");
    }
    for host in [NAME, "127.0.0.1"] {
        let store = Postgres::open(options(&server, host, believing(&ours, None))).await.unwrap();
        let kinds = "select count(*) > 0, bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'holdfast'";
        assert_eq!(server.sql(kinds), "t|t", "a connection in the clear");
        store.close().await.unwrap();
    }
    let store = Postgres::open(options(&server, NAME, believing(&ours, None))).await.unwrap();
    let done = store.commit(Commit { change: Some(change(0, vec![put(desired("a/m"), "1")])), ..Commit::default() });
    assert!(done.await.is_ok());
    assert_eq!(all(&store, Space::Desired, None, 10).await.len(), 1);
    let leader = store.lead().await.unwrap().expect("nobody else leads");
    assert!(leader.check().await.is_ok(), "the leader's own connection is secure too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_an_expired_one_and_one_that_asks_who_we_are() {
    let ours = Authority::new();
    let plain = PostgresServer::start().await;
    let told = refused(options(&plain, NAME, believing(&ours, None))).await;
    assert!(told.contains("does not support TLS"), "{told}");
    drop(plain);

    let expired = PostgresServer::start_with_tls(&ours.expired_server(&[NAME]), None).await;
    let told = refused(options(&expired, NAME, believing(&ours, None))).await;
    assert!(told.contains("xpired"), "{told}");
    drop(expired);

    let (clients, strangers) = (Authority::new(), Authority::new());
    let server = PostgresServer::start_with_tls(&ours.server(&[NAME]), Some(&clients)).await;
    let (good, bad) = (clients.client("holdfast", &[]), strangers.client("holdfast", &[]));
    for own in [None, Some(&bad)] {
        let told = refused(options(&server, NAME, believing(&ours, own))).await;
        assert!(!told.is_empty() && !told.contains("PRIVATE KEY"), "{told}");
    }
    assert!(Postgres::open(options(&server, NAME, believing(&ours, Some(&good)))).await.is_ok());
}
