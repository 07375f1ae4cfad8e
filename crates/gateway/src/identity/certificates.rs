//! Client certificates: whose a verified one is, by the names in it.
//!
//! Which authorities sign them was checked when the connection was made. That its time is not over is looked at for each request, since a connection may
//! outlive it; so is whose it is, since a reload may change that.

use std::sync::Arc;

use holdfast_config::{CertificateName, Config};
use holdfast_identity::Subject;
use holdfast_net::tls::Peer;
use holdfast_types::{Failure, FailureKind, TenantId};

/// See the module.
#[derive(Debug)]
pub struct Certificates {
    names: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    name: CertificateName,
    /// Whom it names, where the name says no tenant.
    subject: Option<Arc<Subject>>,
}

const SPIFFE: &str = "spiffe://";
/// The issuer that a subject by certificate has.
const ISSUER: &str = "certificate";

impl Certificates {
    /// Those of a configuration, if it knows any.
    pub fn of(config: &Config) -> Option<Arc<Self>> {
        let names = config.auth.as_ref().map(|auth| &auth.certificates).filter(|names| !names.is_empty())?;
        let known = |name: &CertificateName| {
            let subject = name.tenant.clone().map(|tenant| Arc::new(subject(tenant, String::new())));
            Known { subject, name: name.clone() }
        };
        Some(Arc::new(Self { names: names.iter().map(known).collect() }))
    }

    /// Whom a client's certificate names, at this time in seconds since 1970.
    ///
    /// # Errors
    /// `unauthenticated`: nobody, or more than one tenant; or its time is over.
    pub fn subject(&self, peer: &Peer, now: u64) -> Result<Arc<Subject>, Failure> {
        let refuse = |why| Err(Failure::new(FailureKind::Unauthenticated, why));
        if now > peer.ends {
            return refuse("the time of the client certificate is over");
        }
        // A workload has one SPIFFE id (X.509-SVID, section 2): of two, which is meant would be luck.
        let is_spiffe = |text: &str| text.get(..SPIFFE.len()).is_some_and(|head| head.eq_ignore_ascii_case(SPIFFE));
        if peer.names.iter().filter(|(kind, text)| *kind == "uri" && is_spiffe(text)).count() > 1 {
            return refuse("the client certificate has more than one SPIFFE id");
        }
        let mut found: Option<Arc<Subject>> = None;
        for (kind, text) in &peer.names {
            for subject in self.names.iter().filter_map(|known| known.subject(kind, text)) {
                match &found {
                    Some(other) if other.tenant != subject.tenant => {
                        return refuse("the client certificate names more than one tenant");
                    }
                    Some(_) => {}
                    None => found = Some(subject),
                }
            }
        }
        match found {
            Some(subject) => Ok(subject),
            None => refuse("the client certificate names no tenant"),
        }
    }
}

impl Known {
    fn subject(&self, kind: &str, text: &str) -> Option<Arc<Subject>> {
        let name = &self.name;
        if *name.kind != *kind {
            return None;
        }
        match &name.behind {
            None => (*name.before == *text).then(|| self.subject.clone()).flatten(),
            Some(behind) => {
                let tenant = text.strip_prefix(&*name.before)?.strip_suffix(&**behind)?;
                Some(Arc::new(subject(TenantId::parse(tenant).ok()?, text.to_owned())))
            }
        }
    }
}

fn subject(tenant: TenantId, user: String) -> Subject {
    let user = Some(user).filter(|user| !user.is_empty());
    Subject {
        issuer: ISSUER.into(),
        tenant,
        user: user.map(Into::into),
        plan: None,
        chooses: false,
        device: None,
        shown: Box::default(),
        scopes: Box::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: &str, before: &str, behind: Option<&str>, tenant: Option<&str>) -> Known {
        let tenant = tenant.map(|tenant| TenantId::parse(tenant).unwrap());
        let subject = tenant.clone().map(|tenant| Arc::new(subject(tenant, String::new())));
        let (kind, before, behind) = (kind.into(), before.into(), behind.map(Into::into));
        Known { name: CertificateName { kind, before, behind, tenant }, subject }
    }

    #[test]
    fn names_to_tenants() {
        let known = Certificates {
            names: vec![
                name("uri", "spiffe://prod/acme", None, Some("acme")),
                name("uri", "spiffe://prod/tenant/", Some("/client"), None),
                name("dns", "globex.example.org", None, Some("globex")),
            ],
        };
        let whose = |names: &[(&'static str, &str)]| {
            let names = names.iter().map(|(kind, name)| (*kind, Box::from(*name))).collect();
            known.subject(&Peer { names, ends: 100 }, 100).map(|subject| subject.tenant.to_string()).ok()
        };
        assert_eq!(whose(&[("uri", "spiffe://prod/acme")]).as_deref(), Some("acme"));
        assert_eq!(whose(&[("email", "x@y"), ("dns", "globex.example.org")]).as_deref(), Some("globex"));
        assert_eq!(whose(&[("uri", "spiffe://prod/tenant/initech/client")]).as_deref(), Some("initech"));
        for nobody in [
            &[("dns", "spiffe://prod/acme")][..],
            &[("uri", "spiffe://prod/acme/x")],
            &[("uri", "spiffe://other/acme")],
            &[("uri", "spiffe://prod/acme"), ("uri", "spiffe://prod/tenant/acme/client")],
            &[("uri", "spiffe://prod/acme"), ("uri", "SPIFFE://prod/tenant/acme/client")],
            &[("uri", "spiffe://prod/tenant//client")],
            &[("uri", "spiffe://prod/tenant/a/b/client")],
            &[("uri", "spiffe://prod/tenant/../client")],
            &[("uri", "spiffe://prod/acme"), ("dns", "globex.example.org")],
            &[],
        ] {
            assert_eq!(whose(nobody), None, "{nobody:?}");
        }
        let peer = Peer { names: vec![("uri", "spiffe://prod/acme".into())], ends: 100 };
        assert!(known.subject(&peer, 101).is_err(), "its time is over");
    }
}
