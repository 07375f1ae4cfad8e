//! The section `auth.tokens`: its defaults, its bounds, and what contradicts itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use holdfast_config::{Source, load};

fn config(tokens: &str, beside: &str) -> String {
    format!("auth:\n  keys: true\n{beside}  tokens: {{ issuer: \"https://gw.example\"{tokens} }}\n")
}

#[test]
fn defaults() {
    let text = config("", "");
    let loaded = load(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}"));
    let tokens = loaded.config.auth.unwrap().tokens.unwrap();
    assert_eq!((tokens.issuer.as_deref(), &*tokens.audience), (Some("https://gw.example"), "holdfast"));
    let spans = [tokens.access, tokens.refresh, tokens.rotate, tokens.publish].map(|span| span.as_secs());
    assert_eq!(spans, [300, 12 * 3_600, 7 * 86_400, 600]);
    assert!(tokens.publish < Duration::from_secs(3_600));
}

#[test]
fn what_cannot_be_meant() {
    let jwt = "  jwt: [{ issuer: \"https://gw.example\", jwks_file: k.json, algorithms: [ES256], audiences: [a], tenant: acme }]\n";
    for (text, path, why) in [
        (
            config(", publish: 6s, rotate: 10s, access: 1m, refresh: 1m", ""),
            "auth.tokens.publish",
            "more than half of rotate",
        ),
        (config(", publish: 1s, rotate: 10s, refresh: 1h", ""), "auth.tokens.refresh", "more than 30 times rotate"),
        (config(", access: 9s", ""), "auth.tokens.access", ""),
        (config(", access: 2h", ""), "auth.tokens.access", ""),
        (config(", refresh: 31d", ""), "auth.tokens.refresh", ""),
        (config("", jwt), "auth.tokens.issuer", "an issuer of jwt"),
        (config("", "").replace("  keys: true\n", "  trusted_header: x-tenant\n"), "auth.tokens", "needs keys: true"),
        (config("", "").replace("issuer: \"https://gw.example\"", "access: 5m"), "auth.tokens.issuer", "is missing"),
    ] {
        let faults = load(&Source::text("t.yaml", &text)).err().unwrap_or_else(|| panic!("no fault in:\n{text}"));
        assert_eq!(faults.listed.len(), 1, "{text}\n{faults}");
        let fault = &faults.listed[0];
        assert!(
            fault.path == path && fault.reason.contains(why) && fault.line >= 2 && fault.column > 1,
            "{text}\n{fault}"
        );
    }
}

#[test]
fn secrets_over_a_network_in_clear_are_warned_of() {
    for (listen, warned) in [("127.0.0.1:7400", false), ("0.0.0.0:7400", true)] {
        let text = format!("listen: {{ data: \"{listen}\" }}\n{}", config("", ""));
        let loaded = load(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(loaded.warnings.listed.iter().any(|w| w.path == "auth.tokens"), warned, "{listen}");
    }
}
