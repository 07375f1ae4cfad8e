//! Certificates on both sides.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

use holdfast_decide::rollout::Artifact;
use holdfast_plane::Wish;
use holdfast_testkit::eventually;
use holdfast_types::Revision;
use holdfast_wire::auth::{ClientTls, Own, Pem, Renewed, ServerTls};
use holdfast_wire::follower::{FollowerSettings, Freshness};
use holdfast_wire::seats::{Ballot, Leave, Loaded, Peer, Phone, listen};
use holdfast_wire::server::ServerSettings;
use support::*;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> Pem {
        Pem::new(self.0.pem().as_bytes())
    }

    fn own(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Own {
        self.of(name, vec![usage])
    }

    fn of(&self, name: &str, usages: Vec<ExtendedKeyUsagePurpose>) -> Own {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = usages;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Own { certificates: Pem::new(certificate.pem().as_bytes()), key: Pem::new(key.serialize_pem().as_bytes()) }
    }
}

fn follower(url: &str, tls: ClientTls) -> FollowerSettings {
    FollowerSettings { secret: None, tls: Some(tls.into()), ..follower_settings(vec![url.to_owned()]) }
}

#[tokio::test]
async fn only_a_gateway_with_a_certificate_is_served_and_only_by_who_it_believes() {
    let (servers, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let first = table(1, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let own = servers.own("control.example", ExtendedKeyUsagePurpose::ServerAuth);
    // Certificates of gateways alone are enough: no secret, and it is not an error.
    let settings = ServerSettings {
        secrets: Vec::new(),
        tls: Some(ServerTls { own, clients: Some(clients.pem()) }.into()),
        ..server_settings()
    };
    let server = Server::with(&truth, settings, "127.0.0.1:0".parse().unwrap());
    let url = format!("https://{}", server.addr);
    let client = |of: &Authority| of.own("g1", ExtendedKeyUsagePurpose::ClientAuth);
    let named = Some("control.example".to_owned());
    let good = ClientTls { servers: servers.pem(), own: Some(client(&clients)), server_name: named.clone() };
    let bad = [
        ("no certificate", ClientTls { own: None, ..good.clone() }),
        ("a stranger's certificate", ClientTls { own: Some(client(&others)), ..good.clone() }),
        ("a server that is not believed", ClientTls { servers: others.pem(), ..good.clone() }),
        ("a server of another name", ClientTls { server_name: Some("elsewhere.example".to_owned()), ..good.clone() }),
    ];
    for (what, tls) in bad {
        let gateway = Gateway::start(follower(&url, tls));
        let fresh = gateway.follower.freshness();
        eventually(what, SOON, async || {
            matches!(&*fresh.borrow(), Freshness::Stale { why, .. } if !why.contains("has answered")).then_some(())
        })
        .await;
        assert_eq!((gateway.view().table.revision, truth.status("g1").is_none()), (Revision(0), true), "{what}");
    }
    let gateway = Gateway::start(follower(&url, good));
    gateway.has(&first).await;
    assert_eq!(*gateway.follower.freshness().borrow(), Freshness::Current { control: url.into() });
}

/// Certificates of both sides are replaced while both run: the link that there is stays, new ones are made by the new ones, and nobody gets in by the old.
#[tokio::test]
async fn certificates_are_replaced_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let first = table(1, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let of = |authority: &Authority| {
        let own = authority.own("control.example", ExtendedKeyUsagePurpose::ServerAuth);
        ServerTls { own, clients: Some(authority.pem()) }
    };
    let client = |authority: &Authority| ClientTls {
        servers: authority.pem(),
        own: Some(authority.own("g1", ExtendedKeyUsagePurpose::ClientAuth)),
        server_name: Some("control.example".to_owned()),
    };
    let tls = Renewed::from(of(&old));
    let settings = ServerSettings { secrets: Vec::new(), tls: Some(tls.clone()), ..server_settings() };
    let server = Server::with(&truth, settings, "127.0.0.1:0".parse().unwrap());
    let url = format!("https://{}", server.addr);
    let own = Renewed::from(client(&old));
    let settings = FollowerSettings { tls: Some(own.clone()), ..follower(&url, client(&old)) };
    let gateway = Gateway::start(settings);
    gateway.has(&first).await;

    tls.replace(of(&new));
    let second = table(2, pins(&[("a/m", "2")]));
    truth.tell(second.clone());
    gateway.has(&second).await;

    let stranger = Gateway::start(FollowerSettings { gateway: name("g2"), ..follower(&url, client(&old)) });
    let fresh = stranger.follower.freshness();
    eventually("the old certificates to be refused", SOON, async || {
        matches!(&*fresh.borrow(), Freshness::Stale { why, .. } if !why.contains("has answered")).then_some(())
    })
    .await;
    assert_eq!(stranger.view().table.revision, Revision(0));
    // The same process comes in once its own are replaced.
    let settings = follower(&url, client(&old));
    let late = settings.tls.clone().unwrap();
    let third = Gateway::start(FollowerSettings { gateway: name("g3"), ..settings });
    late.replace(client(&new));
    third.has(&second).await;
}

/// What gateways say to one another, over certificates alone.
#[tokio::test]
async fn gateways_know_one_another_by_certificates() {
    let (fleet, others) = (Authority::new(), Authority::new());
    let both = || vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let tls = Renewed::from(ServerTls { own: fleet.of("127.0.0.1", both()), clients: Some(fleet.pem()) });
    tokio::spawn(listen(listener, Vec::new(), Some(tls.clone()), std::sync::Arc::new(Voter)));
    let good = ClientTls { servers: fleet.pem(), own: Some(fleet.of("127.0.0.1", both())), server_name: None };
    let phone = |tls: ClientTls| Phone::new(name("g1"), None, Some(tls.into()));
    assert!(phone(good.clone()).vote(&address, 7, SOON).await.unwrap().yes);
    for (what, tls) in [
        ("no certificate", ClientTls { own: None, ..good.clone() }),
        ("a stranger's", ClientTls { own: Some(others.of("127.0.0.1", both())), ..good.clone() }),
        ("a peer that is not believed", ClientTls { servers: others.pem(), ..good.clone() }),
        ("a peer of another name", ClientTls { server_name: Some("g2.example".to_owned()), ..good.clone() }),
    ] {
        assert!(phone(tls).vote(&address, 7, SOON).await.is_err(), "{what}");
    }
    assert!(Phone::new(name("g1"), None, None).vote(&address, 7, SOON).await.is_err(), "in the clear");
    // Both are replaced: the same phone calls by the new ones.
    let mine = Renewed::from(good);
    let calls = Phone::new(name("g1"), None, Some(mine.clone()));
    assert!(calls.vote(&address, 7, SOON).await.is_ok());
    tls.replace(ServerTls { own: others.of("127.0.0.1", both()), clients: Some(others.pem()) });
    mine.replace(ClientTls { servers: others.pem(), own: Some(others.of("127.0.0.1", both())), server_name: None });
    assert!(calls.vote(&address, 7, SOON).await.is_ok());
}

struct Voter;

#[holdfast_wire::async_trait]
impl Peer for Voter {
    fn vote(&self, epoch: u64) -> Ballot {
        Ballot { name: name("g2"), home: 1, yes: epoch == 7 }
    }

    async fn load(&self, _: Wish, _: std::time::Duration) -> Loaded {
        Loaded::NotOwner
    }

    async fn leaves(&self, _: Leave) -> bool {
        false
    }

    fn reloads(&self, _: Artifact, _: Box<str>) {}
}
