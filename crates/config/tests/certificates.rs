//! The section `auth.certificates` and `listen.data_tls`: whose client certificates are, and what contradicts itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use holdfast_config::{Source, load};

const GOOD: &str = "\
listen:
  data_tls: { certificates: own.pem, key: own.key, clients: ca.pem, required: true }
auth:
  certificates:
    - { name: \"uri=spiffe://prod/acme\", tenant: acme }
    - { name: \"uri=spiffe://prod/tenant/{tenant}/client\" }
    - { name: \"dns=GW.example.org\", tenant: globex }
";

/// The faults of the good text with one part replaced: line, column, path, and a part of the reason.
fn refused(from: &str, to: &str, expected: &[(u32, u32, &str, &str)]) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let faults = load(&Source::text("t.yaml", &text)).err().unwrap_or_else(|| panic!("no fault in:\n{text}"));
    assert_eq!(faults.listed.len(), expected.len(), "{text}\n{faults}");
    for (fault, (line, column, path, reason)) in faults.listed.iter().zip(expected) {
        assert_eq!((fault.line, fault.column, fault.path.as_str()), (*line, *column, *path), "{fault}");
        assert!(fault.reason.contains(reason), "{reason:?} is not in: {fault}");
    }
}

#[test]
fn names_and_files() {
    let loaded = load(&Source::text("t.yaml", GOOD)).unwrap_or_else(|faults| panic!("{faults}"));
    let tls = loaded.config.listen.data_tls.unwrap();
    assert!(tls.required && tls.clients.is_some());
    let names = loaded.config.auth.unwrap().certificates;
    let [own, part, dns] = names.as_slice() else { panic!("{names:?}") };
    assert_eq!(
        (&*own.kind, &*own.before, own.tenant.as_ref().unwrap().as_str()),
        ("uri", "spiffe://prod/acme", "acme")
    );
    assert_eq!(
        (&*part.before, part.behind.as_deref(), &part.tenant),
        ("spiffe://prod/tenant/", Some("/client"), &None)
    );
    assert_eq!((&*dns.kind, &*dns.before), ("dns", "gw.example.org"), "DNS names mean the same in any case");
}

#[test]
fn what_is_no_name_or_nobodys() {
    let name = "name: \"uri=spiffe://prod/acme\", tenant: acme";
    let at = "auth.certificates[0]";
    for (bad, why) in [
        ("name: acme, tenant: acme", "uri=, dns= or email="),
        ("name: \"cn=acme\", tenant: acme", "uri=, dns= or email="),
        ("name: \"uri=\", tenant: acme", "uri=, dns= or email="),
        ("name: \"uri=spiffe://prod/acme\"", "does not say whose it is"),
        ("name: \"uri=spiffe://{tenant}/x\", tenant: acme", "twice"),
        ("name: \"uri=spiffe://{tenant}/{tenant}\"", "more than once"),
    ] {
        refused(name, bad, &[(5, 7, at, why)]);
    }
    refused("\"dns=GW.example.org\"", "\"uri=spiffe://prod/acme\"", &[(7, 15, "auth.certificates[2].name", "")]);
}

#[test]
fn what_contradicts_itself() {
    refused(", clients: ca.pem, required: true", "", &[(5, 5, "auth.certificates", "needs listen.data_tls.clients")]);
    refused(
        ", clients: ca.pem",
        "",
        &[
            (2, 62, "listen.data_tls.required", "needs clients"),
            (5, 5, "auth.certificates", "needs listen.data_tls.clients"),
        ],
    );
    refused(
        "auth:\n",
        "auth:\n  trusted_header: x-tenant\n",
        &[(4, 19, "auth.trusted_header", "believed without a proof")],
    );
}
