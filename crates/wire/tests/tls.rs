//! Certificates on both sides.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

use holdfast_testkit::eventually;
use holdfast_types::Revision;
use holdfast_wire::auth::{ClientTls, Own, Pem, ServerTls};
use holdfast_wire::follower::{FollowerSettings, Freshness};
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
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Own { certificates: Pem::new(certificate.pem().as_bytes()), key: Pem::new(key.serialize_pem().as_bytes()) }
    }
}

fn follower(url: &str, tls: ClientTls) -> FollowerSettings {
    FollowerSettings { secret: None, tls: Some(tls), ..follower_settings(vec![url.to_owned()]) }
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
        tls: Some(ServerTls { own, clients: Some(clients.pem()) }),
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
