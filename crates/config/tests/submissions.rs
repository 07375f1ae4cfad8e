//! The sections `route_token` and `ledger`, and what they need in a fleet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use holdfast_config::{LedgerFailure, Source, load};

fn faults(text: &str) -> Vec<(String, String)> {
    match load(&Source::text("t.yaml", text)) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.listed.into_iter().map(|fault| (fault.path, fault.reason)).collect(),
    }
}

#[test]
fn they_are_off_and_have_defaults() {
    let config = |text: &str| load(&Source::text("t.yaml", text)).unwrap().config;
    let none = config("");
    assert_eq!((none.route_token, none.ledger), (None, None));
    let both = config("route_token: {}\nledger: {}\n");
    let (token, ledger) = (both.route_token.unwrap(), both.ledger.unwrap());
    assert_eq!((token.lifetime, ledger.keep), (Duration::from_secs(86_400), Duration::from_secs(86_400)));
    assert_eq!((&*ledger.header, ledger.on_failure), ("idempotency-key", LedgerFailure::Refuse));
    let told = config("ledger: { header: X-Submission, on_failure: decide }\n").ledger.unwrap();
    assert_eq!((&*told.header, told.on_failure), ("x-submission", LedgerFailure::Decide));
}

#[test]
fn gateways_of_a_fleet_share_what_a_retry_needs() {
    let fleet = "gateway: { control: [\"http://127.0.0.1:7402\"], secret_file: secret }\n";
    let of = |text: &str| faults(&format!("{fleet}{text}"));
    assert!(of("route_token: { key_file: k }\nledger: { store: \"redis://127.0.0.1:6379\" }\n").is_empty());
    let [(path, reason)] = &of("route_token: {}\n")[..] else { panic!("one fault") };
    assert!(path == "route_token" && reason.contains("key_file"), "{path}: {reason}");
    let [(path, reason)] = &of("ledger: {}\n")[..] else { panic!("one fault") };
    assert!(path == "ledger" && reason.contains("store"), "{path}: {reason}");
}

#[test]
fn a_key_is_in_a_header_of_its_own() {
    let auth = "auth: { trusted_header: x-tenant, trusted_user_header: x-user }\n";
    for header in ["x-tenant", "X-User", "authorization", "x-holdfast-route", "cookie"] {
        let found = faults(&format!("{auth}ledger: {{ header: {header} }}\n"));
        assert_eq!(found.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["ledger.header"], "{header}");
    }
}
