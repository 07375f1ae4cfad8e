//! The files of a fleet's processes: which role each is for, and what contradicts it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use holdfast_config::{Config, Faults, Role, Source, load};

const CONTROL: &str = "\
store: { postgres: \"postgresql://holdfast@127.0.0.1:5432/holdfast\", password_file: pw }
control: { secret_file: secret }
";
const GATEWAY: &str = "\
auth: { trusted_header: x-tenant }
gateway:
  name: g1
  control: [\"http://127.0.0.1:7402\", \"https://control-1.fleet:7402/\"]
  secret_file: secret
  tls: { authorities: ca.pem }
";

fn good(text: &str) -> (Config, String) {
    let loaded = load(&Source::text("t.yaml", text)).unwrap_or_else(|faults| panic!("{faults}"));
    (loaded.config, loaded.warnings.to_string())
}

fn faults(text: &str) -> Faults {
    load(&Source::text("t.yaml", text)).err().unwrap_or_else(|| panic!("no fault in:\n{text}"))
}

/// Exactly these faults, by path and a part of the reason.
fn refused(text: &str, expected: &[(&str, &str)]) {
    let faults = faults(text);
    assert_eq!(faults.listed.len(), expected.len(), "{text}\n{faults}");
    for (fault, (path, reason)) in faults.listed.iter().zip(expected) {
        assert!(fault.path == *path && fault.reason.contains(reason), "{path}: {reason:?} is not in: {fault}");
        assert!(fault.line > 0);
    }
}

#[test]
fn a_file_is_for_one_role() {
    assert_eq!(good("{}").0.role(), Role::Serve);
    let (control, warnings) = good(CONTROL);
    assert_eq!((control.role(), warnings.as_str()), (Role::Control, ""));
    let section = control.control.unwrap();
    assert_eq!(
        (section.listen.to_string().as_str(), section.lease, section.open),
        ("127.0.0.1:7402", Duration::from_secs(10), false)
    );
    assert_eq!(&*control.store.unwrap().schema, "holdfast");
    let (gateway, warnings) = good(GATEWAY);
    assert_eq!((gateway.role(), warnings.as_str()), (Role::Gateway, ""));
    let section = gateway.gateway.unwrap();
    let urls: Vec<_> = section.control.iter().flatten().map(|url| url.as_str().to_owned()).collect();
    assert_eq!(urls, ["http://127.0.0.1:7402", "https://control-1.fleet:7402"]);
    assert_eq!((section.poll, section.start_within), (Duration::from_secs(5), Duration::from_secs(3)));
    refused(
        &format!("{CONTROL}gateway: {{ control: [\"http://127.0.0.1:1\"] }}\n"),
        &[("gateway", "a file is for one process")],
    );
    refused("control: { open: true }\n", &[("store", "is missing")]);
    refused("store: { postgres: \"postgresql://u@127.0.0.1/d\" }\n", &[("store", "whose section control is missing")]);
}

#[test]
fn a_password_is_in_a_file_and_in_no_message() {
    for url in ["postgresql://u:hunter2@127.0.0.1/d", "postgresql://127.0.0.1/d?password=hunter2", "hunter2"] {
        let text = CONTROL.replace("postgresql://holdfast@127.0.0.1:5432/holdfast", url);
        let told = faults(&text).to_string();
        assert!(told.contains("store.postgres") && !told.contains("hunter2"), "{told}");
    }
    assert!(!format!("{:?}", good(CONTROL).0).contains("holdfast@127.0.0.1"));
}

#[test]
fn a_store_elsewhere_names_whom_to_believe() {
    let with = |more: &str| CONTROL.replace("password_file: pw", more);
    let config = good(&with("tls: { authorities: ca.pem, certificates: own.pem, key: own.key }")).0;
    let tls = config.store.unwrap().tls.unwrap();
    assert_eq!(tls.authorities.unwrap().to_str(), Some("ca.pem"));
    refused(&with("tls: {}"), &[("store.tls.authorities", "missing")]);
    for one in ["certificates: own.pem", "key: own.key"] {
        refused(&with(&format!("tls: {{ authorities: ca.pem, {one} }}")), &[("store.tls", "without the other")]);
    }
}

#[test]
fn who_may_be_a_gateway_is_said() {
    let with = |section: &str| CONTROL.replace("{ secret_file: secret }", section);
    assert_eq!(good(&with("{ open: true }")).0.role(), Role::Control);
    refused(&with("{}"), &[("control", "asks gateways for no proof")]);
    refused(&with("{ secret_file: s, open: true }"), &[("control.open", "are asked for a proof")]);
    refused(&with("{ listen: \"0.0.0.0:7402\", open: true }"), &[("control.open", "anybody who reaches")]);
    refused(
        &with("{ listen: \"127.0.0.1:7401\", secret_file: s }"),
        &[("control.listen", "cannot both have this port")],
    );
    refused(&format!("{CONTROL}truth: file\n"), &[("truth", "cannot be the file of one")]);
    let (_, warnings) = good(&with("{ listen: \"0.0.0.0:7402\", secret_file: s }"));
    assert!(warnings.contains("control.listen: is not loopback"), "{warnings}");
}

#[test]
fn what_a_gateway_does_not_look_at_is_told() {
    let pools = "pools:\n- { name: p, protocol: open-inference, residency: repository, replicas: [{ name: r, url: \"http://a:1\" }] }\n";
    let (_, warnings) = good(&format!("{GATEWAY}{pools}"));
    assert!(warnings.contains("pools: is not looked at"), "{warnings}");
    refused(&format!("{GATEWAY}truth: file\n"), &[("truth", "the control planes'")]);
    refused("gateway: {}\n", &[("gateway.control", "is missing")]);
    refused("gateway: { control: [] }\n", &[("gateway.control", "at least 1")]);
    refused("gateway: { control: [\"https://a:1\"] }\n", &[("gateway.control[0]", "tls.authorities")]);
    refused(
        "gateway: { control: [\"http://127.0.0.1:1\", \"http://127.0.0.1:1/\"] }\n",
        &[("gateway.control[1]", "twice")],
    );
    refused(&GATEWAY.replace("ca.pem }", "ca.pem, key: k }"), &[("gateway.tls", "without the other")]);
    let (_, warnings) = good("gateway: { control: [\"http://control:1\"] }\n");
    assert!(warnings.contains("gateway.control[0]: is not loopback"), "{warnings}");
}

#[test]
fn what_gateways_say_to_one_another_is_secured_or_warned_of() {
    let gateway = |listen: &str, more: &str| {
        format!(
            "listen: {{ data: \"127.0.0.1:7400\", peer: \"{listen}:7403\" }}\nauth: {{ trusted_header: x-tenant }}\n\
             gateway:\n  control: [\"https://10.0.0.1:7402\"]\n  tls: {{ authorities: ca.pem{more} }}\n"
        )
    };
    let own = ", certificates: own.pem, key: own.key";
    let secured = format!("{own}, peers: gateways.pem, peer_name: gateway.fleet");
    let (config, warnings) = good(&gateway("10.0.0.2", &secured));
    assert_eq!(warnings, "");
    let tls = config.gateway.and_then(|gateway| gateway.tls).unwrap();
    assert_eq!(
        (tls.peers.as_deref(), tls.peer_name.as_deref()),
        (Some("gateways.pem".as_ref()), Some("gateway.fleet"))
    );
    // Certificates prove who asks, as a secret does; without either anybody could.
    refused(&gateway("10.0.0.2", own), &[("listen.peer", "name gateway.secret_file, or gateway.tls.peers")]);
    let (_, warnings) = good(&gateway("10.0.0.2", own).replace("  tls:", "  secret_file: secret\n  tls:"));
    assert!(warnings.contains("listen.peer") && warnings.contains("without gateway.tls.peers"), "{warnings}");
    assert_eq!(good(&gateway("127.0.0.1", own)).1, "");
    refused(&gateway("127.0.0.1", ", peers: gateways.pem"), &[("gateway.tls.peers", "their own certificate")]);
}
