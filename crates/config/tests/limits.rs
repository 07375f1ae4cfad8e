//! Plans and limits: what they mean, every fault at its place, and that they are resources like others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use holdfast_config::{Allowed, LimitMode, LimitedEndpoint, RateLimit, ResourceKind, Source, assemble, load, split};
use support::{GOOD, good_but};

const PLANS: &str = r#"plans:
  - name: standard
    connection: { requests: 20/s, burst: 40 }
    user: { requests: 60/m }
    tenant: { requests: 1000/s, burst: 2000, bytes: 10MiB/s, bytes_burst: 20MiB, concurrency: 200 }
    models: { screen: { tenant: { requests: unlimited }, user: { concurrency: 0 } } }
    endpoints: { metadata: { tenant: { requests: 0 } } }
  - { name: trial, mode: shadow }
tenants:
"#;

fn with_plans(from: &str, to: &str) -> String {
    let text = GOOD.replace("tenants:\n", PLANS).replace("{ name: acme,", "{ name: acme, plan: standard,");
    assert_eq!(text.matches(from).count(), 1, "{from:?}");
    text.replacen(from, to, 1)
}

fn per(amount: u64, secs: u64) -> Option<Allowed<RateLimit>> {
    Some(Allowed::Of(RateLimit { amount, per: Duration::from_secs(secs) }))
}

#[test]
fn plans_say_what_they_say() {
    let text = with_plans(
        "pins: { rank: a },",
        "pins: { rank: a }, limits: { mode: shadow, tenant: { concurrency: unlimited } },",
    );
    let config = load(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}")).config;
    let [standard, trial] = config.plans.as_slice() else { panic!("two plans") };
    let limits = &standard.limits;
    assert_eq!((limits.connection.requests, limits.connection.burst), (per(20, 1), Some(40)));
    assert_eq!((limits.user.requests, limits.user.burst, limits.user.bytes), (per(60, 60), None, None));
    assert_eq!(limits.tenant.bytes, per(10 << 20, 1));
    assert_eq!(limits.tenant.concurrency, Some(Allowed::Of(200)));
    let (model, exception) = &limits.models[0];
    assert_eq!((model.as_str(), exception.tenant.requests), ("screen", Some(Allowed::Unlimited)));
    assert_eq!(exception.user.concurrency, Some(Allowed::Of(0)), "nothing at all");
    assert_eq!(limits.endpoints[0].0, LimitedEndpoint::Metadata);
    assert_eq!(limits.endpoints[0].1.tenant.requests, per(0, 1), "nothing at all");
    assert_eq!((limits.mode, trial.limits.mode), (None, Some(LimitMode::Shadow)));
    let [acme, globex] = config.tenants.as_slice() else { panic!("two tenants") };
    assert_eq!(acme.plan.as_ref().map(|plan| plan.as_str()), Some("standard"));
    assert!(acme.limits.is_none() && globex.plan.is_none());
    let own = globex.limits.as_ref().unwrap();
    assert_eq!((own.mode, own.tenant.concurrency), (Some(LimitMode::Shadow), Some(Allowed::Unlimited)));
}

#[test]
fn faults_have_their_places() {
    for (from, to, at, path, reason, nearest) in [
        ("plan: standard", "plan: standrad", "standrad", "tenants[0].plan", "there is no plan", "standard"),
        ("name: trial", "name: Standard", "Standard", "plans[1].name", "differs only in case", ""),
        ("models: { screen", "models: { scren", "scren", "plans[0].models.scren", "there is no model", "screen"),
        ("{ metadata", "{ metdata", "metdata", "plans[0].endpoints.metdata", "there is no endpoint", "metadata"),
        ("requests: 60/m", "burst: 9", "9 }", "plans[0].user.burst", "has no requests beside it", ""),
        ("requests: 60/m", "requests: 60", "60 }", "plans[0].user.requests", "expected a rate", ""),
        ("mode: shadow", "mode: shadw", "shadw", "plans[1].mode", "is not known here", "shadow"),
        ("concurrency: 200", "concurrency: \"200\"", "\"200\"", "plans[0].tenant.concurrency", "without quotes", ""),
    ] {
        let text = with_plans(from, to);
        let faults = load(&Source::text("t.yaml", &text)).expect_err(to).listed;
        let [fault] = faults.as_slice() else { panic!("{to}: {faults:?}") };
        let before = &text[..text.find(at).unwrap()];
        let (line, column) = (before.matches('\n').count() + 1, before.len() - before.rfind('\n').unwrap());
        let shown = (fault.line as usize, fault.column as usize, fault.path.as_str());
        assert_eq!(shown, (line, column, path), "{to}: {fault}");
        assert_eq!(fault.nearest.as_deref().unwrap_or(""), nearest, "{to}: {fault}");
        assert!(fault.reason.contains(reason), "{to}: {fault}");
    }
}

/// CF-06: nothing that is not a finite number in its range switches a limit off.
#[test]
fn numbers_that_are_none_are_refused() {
    for bad in [
        "NaN",
        "nan",
        ".nan",
        "inf",
        ".inf",
        "-inf",
        "-0",
        "1e308",
        "1e400",
        "-1",
        "1",
        "\"10\"",
        "-1.5/s",
        "-1/s",
        "1e3/s",
        "+1/s",
        "01/s",
        "1/0s",
        "1/s/s",
        "1/",
        "/s",
        "1/367d",
        "1/year",
        "1000000000001/s",
        "99999999999999999999/s",
        "~",
        "true",
        "[]",
        "{}",
        "Unlimited",
        "none",
    ] {
        for (from, field) in [("requests: 60/m", "requests"), ("bytes: 10MiB/s", "bytes")] {
            // A size may be written so, and be so large.
            if field == "bytes" && matches!(bad, "01/s" | "1000000000001/s") {
                continue;
            }
            let text = with_plans(from, &format!("{field}: {bad}"));
            assert!(load(&Source::text("t.yaml", &text)).is_err(), "{field}: {bad}");
        }
        let text = good_but("limits: { body", &format!("limits: {{ global: {{ requests: {bad} }}, body"));
        assert!(load(&Source::text("t.yaml", &text)).is_err(), "global: {bad}");
    }
    for bad in ["NaN", "inf", "-1", "-0", "1e3", "1.5", "1000001", "\"10\"", "~"] {
        let text = with_plans("concurrency: 200", &format!("concurrency: {bad}"));
        assert!(load(&Source::text("t.yaml", &text)).is_err(), "concurrency: {bad}");
    }
}

#[test]
fn limits_of_users_without_users_are_doubtful() {
    let text = with_plans("mode: shadow", "mode: enforce");
    let warnings = load(&Source::text("t.yaml", &text)).unwrap().warnings;
    assert!(warnings.listed.iter().any(|w| w.reason.contains("trusted_user_header")), "{warnings}");
    let named = text.replace("trusted_header: x-tenant", "trusted_header: x-tenant, trusted_user_header: x-user");
    assert!(load(&Source::text("t.yaml", &named)).unwrap().warnings.is_empty());
    let same = text.replace("trusted_header: x-tenant", "trusted_header: x-tenant, trusted_user_header: x-tenant");
    assert!(load(&Source::text("t.yaml", &same)).is_err());
}

#[test]
fn plans_are_resources() {
    let text = with_plans("pins: { rank: a },", "pins: { rank: a }, limits: { user: { requests: 5/10s } },");
    let taken = split(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}"));
    let plan = &taken.resources[&(ResourceKind::Plan, "standard".to_owned())];
    assert_eq!(plan["user"]["requests"], "60/m");
    assert_eq!(plan["endpoints"]["metadata"]["tenant"]["requests"], 0);
    assert_eq!(taken.resources[&(ResourceKind::Tenant, "acme".to_owned())]["plan"], "standard");
    let again =
        load(&Source::text("t.yaml", &assemble(&taken.rest, &taken.resources))).unwrap_or_else(|f| panic!("{f}"));
    let sorted = |mut config: holdfast_config::Config| {
        config.pools.sort_by(|a, b| a.name.cmp(&b.name));
        config.models.sort_by(|a, b| a.name.cmp(&b.name));
        config
    };
    assert_eq!(sorted(again.config), sorted(taken.loaded.config));
}
