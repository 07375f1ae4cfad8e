//! TLS to a real PostgreSQL: who is believed, and that nothing is said to anybody else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use holdfast_store::{Commit, Error, Postgres, PostgresOptions, PostgresTls, Space, Store};
use holdfast_testkit::{Authority, PostgresServer, Signed, eventually};

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

/// Whether a change can be made.
async fn changes(store: &Postgres, name: &str) -> Result<(), Error> {
    let head = store.head().await?.desired.0;
    let put = vec![put(desired(name), "1")];
    store.commit(Commit { change: Some(change(head, put)), ..Commit::default() }).await.map(|_| ())
}

/// Connections are made again within this time, with the pauses between tries.
const AGAIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_and_a_certificate_are_replaced_while_the_store_is_in_use() {
    let (old, next) = (Authority::new(), Authority::new());
    let server = PostgresServer::start_with_tls(&old.server(&[NAME]), None).await;
    let tls = believing(&old, None).unwrap();
    let store = Postgres::open(options(&server, NAME, Some(tls.clone()))).await.unwrap();
    assert!(changes(&store, "a/m").await.is_ok());

    // The server shows a certificate of another authority. Connections that are there stay; a new one is refused, for it is not believed yet.
    server.certify(&next.server(&[NAME])).await;
    assert!(changes(&store, "b/m").await.is_ok(), "an open connection stays as it was made");
    server.end_connections();
    eventually("the new authority to be refused", AGAIN, async || {
        let told = changes(&store, "c/m").await.err()?.to_string();
        told.contains("UnknownIssuer").then_some(())
    })
    .await;

    // What replaces it holds for the store that is open, since all clones are one.
    let both = format!("{}{}", old.pem(), next.pem());
    tls.replace(&PostgresTls::new(both.as_bytes(), None).unwrap());
    eventually("the store to be reached again", AGAIN, async || changes(&store, "c/m").await.ok()).await;
    let leader = store.lead().await.unwrap().expect("nobody else leads");
    assert!(leader.check().await.is_ok());

    // The old authority is taken out, and believed no more.
    tls.replace(&believing(&next, None).unwrap());
    server.certify(&old.server(&[NAME])).await;
    server.end_connections();
    eventually("the old authority to be refused", AGAIN, async || {
        let told = changes(&store, "d/m").await.err()?.to_string();
        told.contains("UnknownIssuer").then_some(())
    })
    .await;
    server.certify(&next.server(&[NAME])).await;
    eventually("the store to be reached again", AGAIN, async || changes(&store, "d/m").await.ok()).await;
    assert_eq!(all(&store, Space::Desired, None, 10).await.len(), 4, "nothing was written twice or by half");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_own_certificate_is_replaced_while_the_store_is_in_use() {
    let (ours, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let server = PostgresServer::start_with_tls(&ours.server(&[NAME]), Some(&clients)).await;
    let good = clients.client("holdfast", &[]);
    let tls = believing(&ours, Some(&good)).unwrap();
    let store = Postgres::open(options(&server, NAME, Some(tls.clone()))).await.unwrap();
    assert!(changes(&store, "a/m").await.is_ok());
    tls.replace(&believing(&ours, Some(&strangers.client("holdfast", &[]))).unwrap());
    assert!(changes(&store, "b/m").await.is_ok(), "an open connection stays as it was made");

    // Whoever comes by another way cannot end connections here: the server is started anew.
    drop(store);
    let told = refused(options(&server, NAME, Some(tls.clone()))).await;
    assert!(!told.is_empty() && !told.contains("PRIVATE KEY"), "{told}");
    tls.replace(&believing(&ours, Some(&clients.client("holdfast", &[]))).unwrap());
    let store = Postgres::open(options(&server, NAME, Some(tls))).await.unwrap();
    assert_eq!(all(&store, Space::Desired, None, 10).await.len(), 2);
}
