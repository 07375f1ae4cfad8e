//! The decision at its boundaries, as a table of data: facts in, version, reason and cause out, in `golden/decisions.tsv`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_assign::{Allocation, Condition, Edit, Experiment, Layer, Range, Split, Target};
use holdfast_decide::{
    Ask, Caller, Decision, ExperimentInput, Facts, Field, KeyFrom, ModelInput, PinChange, PoolInput, Refusal,
    RuleInput, Snapshot, TableInput, TenantInput, Unavailable, decide_for, explain_for,
};
use holdfast_types::{
    ArmName, ExperimentName, ModelName, PoolName, ReplicaName, Revision, RuleName, TenantId, Version, Weight,
};

fn version(name: &str) -> Version {
    Version::parse(name).unwrap()
}

fn model(name: &str) -> ModelName {
    ModelName::parse(name).unwrap()
}

fn one_of(values: &[&str]) -> Condition {
    Condition::In(values.iter().map(|one| (*one).to_owned()).collect())
}

fn of_tenants(names: &[&str]) -> Target {
    Target(vec![(Field::Tenant, one_of(names))])
}

/// Everybody of some tenants, in arms of equal weight.
fn experiment(name: &str, tenants: &[&str], arms: &[(&str, &str)]) -> ExperimentInput {
    let split = Split::of(&vec![1; arms.len()]).unwrap();
    ExperimentInput {
        name: ExperimentName::parse(name).unwrap(),
        model: model("screen"),
        experiment: Experiment {
            salt: name.to_owned(),
            running: true,
            start: None,
            end: None,
            keys: vec![KeyFrom::User],
            target: of_tenants(tenants),
            layer: None,
            holdout: None,
            sticky_ms: None,
            allocation: Allocation::new(Edit { version: 1, coverage: 10_000, split }).unwrap(),
        },
        arms: arms.iter().map(|(arm, v)| (ArmName::parse(arm).unwrap(), version(v))).collect(),
    }
}

fn with(mut input: ExperimentInput, change: impl FnOnce(&mut Experiment)) -> ExperimentInput {
    change(&mut input.experiment);
    input
}

fn part(from: u16, to: u16) -> Option<Layer> {
    Some(Layer { name: "checkout".to_owned(), range: Range { from, to } })
}

fn edit(coverage: u16, weights: &[u32]) -> Edit {
    Edit { version: 1, coverage, split: Split::of(weights).unwrap() }
}

fn experiments() -> Vec<ExperimentInput> {
    let halves = [("control", "1"), ("new", "3")];
    let only = |version| [("only", version)];
    let mut window =
        with(experiment("window", &["acme"], &only("2")), |e| (e.start, e.end) = (Some(1_000), Some(2_000)));
    window.model = model("fraud");
    vec![
        with(experiment("ab", &["acme"], &halves), |e| {
            e.keys.push(KeyFrom::Device);
            e.allocation = Allocation::new(edit(5_000, &[1, 1])).unwrap();
        }),
        window,
        experiment("both", &["both"], &[("new", "3")]),
        with(experiment("paused", &["paused"], &only("3")), |e| e.running = false),
        with(experiment("left", &["layers"], &only("3")), |e| e.layer = part(0, 5_000)),
        with(experiment("right", &["layers"], &only("4")), |e| e.layer = part(5_000, 10_000)),
        with(experiment("held", &["held"], &only("3")), |e| e.holdout = Some(("global".to_owned(), 2_000))),
        with(experiment("org", &["corp", "unit"], &[("a", "1"), ("b", "3")]), |e| e.keys = vec![KeyFrom::Tenant]),
        with(experiment("ramp", &["ramp"], &halves), |e| {
            let first = Allocation::new(edit(2_000, &[1, 1])).unwrap();
            e.allocation = first.edited(edit(6_000, &[20, 80])).unwrap();
        }),
        with(experiment("aimed", &["aimed"], &only("3")), |e| {
            e.target.0.push((Field::Header("x-country".to_owned()), one_of(&["CH"])));
            e.target.0.push((Field::Header("x-bot".to_owned()), Condition::Absent));
        }),
    ]
}

fn rules() -> Vec<RuleInput> {
    let rule = |tenant: &str, name: &str, to: &str, target: Vec<(Field, Condition)>| RuleInput {
        tenant: TenantId::parse(tenant).unwrap(),
        name: RuleName::parse(name).unwrap(),
        model: model("screen"),
        target: Target(target),
        version: version(to),
    };
    let beta = || vec![(Field::Header("x-client".to_owned()), Condition::Begins("beta/".to_owned()))];
    let not_bob = Condition::NotIn(BTreeSet::from(["bob".to_owned()]));
    vec![
        rule("ruled", "beta", "3", beta()),
        rule("ruled", "staff", "4", vec![(Field::Scope("staff".to_owned()), Condition::Present)]),
        rule("ruled", "gold", "5", vec![(Field::Plan, one_of(&["gold"])), (Field::User, not_bob)]),
        rule("unpinned", "known", "2", vec![(Field::Device, Condition::Present)]),
        rule("both", "beta", "4", beta()),
    ]
}

fn table() -> Snapshot {
    let members = ["r1", "r2", "r3"].map(|r| (ReplicaName::parse(r).unwrap(), Weight(1))).to_vec();
    let a_model = |name: &str, versions: &[&str]| ModelInput {
        name: model(name),
        pool: 0,
        idempotent: false,
        versions: versions.iter().map(|v| (version(v), Arc::from(format!("{name}-{v}")), Arc::from(""))).collect(),
    };
    let tenant = |name: &str, pins: &[(&str, &str)]| TenantInput {
        name: TenantId::parse(name).unwrap(),
        subset: 2,
        unavailable: Unavailable::Wait,
        pins: pins.iter().map(|(m, v)| (model(m), version(v))).collect(),
        allow: if name == "acme" { vec![(model("screen"), version("2"))] } else { Vec::new() },
    };
    let mut tenants = vec![
        tenant("acme", &[("screen", "1"), ("fraud", "1")]),
        tenant("globex", &[("screen", "2")]),
        tenant("unpinned", &[]),
    ];
    let others = ["ruled", "both", "paused", "layers", "held", "corp", "unit", "ramp", "aimed"];
    tenants.extend(others.map(|name| tenant(name, &[("screen", "1")])));
    let input = TableInput {
        pools: vec![PoolInput { name: PoolName::parse("p").unwrap(), members }],
        models: vec![a_model("screen", &["1", "2", "3", "4", "5"]), a_model("fraud", &["1", "2"])],
        tenants,
        experiments: experiments(),
        rules: rules(),
    };
    Snapshot::build(Revision(7), input).unwrap()
}

/// A row of the table.
struct Row<'r>(Vec<&'r str>);

impl<'r> Row<'r> {
    /// None: there is none.
    fn get(&self, column: usize) -> Option<&'r str> {
        Some(self.0[column]).filter(|text| *text != "-")
    }

    fn list(&self, column: usize, by: char) -> impl Iterator<Item = &'r str> {
        self.get(column).into_iter().flat_map(move |text| text.split(by))
    }
}

impl Facts for Row<'_> {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        match from {
            KeyFrom::User => self.get(4),
            KeyFrom::Device => self.get(5),
            KeyFrom::Tenant => panic!("the tenant is the ask's"),
        }
    }

    fn field(&self, field: &Field) -> Option<&str> {
        match field {
            Field::Plan => self.get(6),
            Field::Scope(name) => self.list(7, ',').find(|scope| scope == name).map(|_| ""),
            Field::Header(name) => {
                self.list(8, ';').filter_map(|header| header.split_once('=')).find(|(n, _)| n == name).map(|(_, v)| v)
            }
            other => panic!("{other:?} is not asked here"),
        }
    }

    fn now_ms(&self) -> u64 {
        self.0[9].parse().unwrap()
    }
}

fn word(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::UnknownTenant => "unknown_tenant",
        Refusal::BadModel(_) => "bad_model",
        Refusal::BadVersion(_) => "bad_version",
        Refusal::UnknownModel => "unknown_model",
        Refusal::NotPinned => "not_pinned",
        Refusal::VersionNotAllowed => "version_not_allowed",
        Refusal::OverrideNotAllowed => "override_not_allowed",
        Refusal::VersionGone => "version_gone",
    }
}

fn told(decided: &Result<Decision<'_>, Refusal>) -> (String, &'static str, String) {
    match decided {
        Ok(decision) => {
            let cause = decision.cause.map_or("-", |cause| &*cause.id);
            (decision.route.version.to_string(), decision.reason.as_str(), cause.to_owned())
        }
        Err(why) => (word(*why).to_owned(), "-", "-".to_owned()),
    }
}

#[test]
fn facts_to_decisions() {
    let table = table();
    // Another table of the same content, in which a pin has moved and come back: what it was built from decides, not how.
    let moved = |to: &str, revision| {
        let change =
            PinChange { tenant: TenantId::parse("acme").unwrap(), model: model("screen"), version: version(to) };
        move |table: &Snapshot| table.with_pins(Revision(revision), &[change]).unwrap()
    };
    let again = moved("1", 9)(&moved("4", 8)(&table));
    let (mut rows, mut reasons) = (0, BTreeSet::new());
    for line in include_str!("golden/decisions.tsv").lines().filter(|line| !line.starts_with('#')) {
        let row = Row(line.split('\t').collect());
        assert_eq!(row.0.len(), 13, "{line:?}");
        let (tenant, model, version) = (row.0[0], row.0[1], row.get(2));
        let ask = Ask { tenant, model, version, submission: b"" };
        let may_override = row.list(7, ',').any(|scope| scope == "admin");
        let caller = Caller { facts: &row, wants: row.get(3), may_override };
        let want = (row.0[10].to_owned(), row.0[11], row.0[12].to_owned());
        for table in [&table, &again] {
            let decided = decide_for(table, &ask, &caller);
            assert_eq!(told(&decided), want, "{line:?}");
            let (steps, explained) = explain_for(table, &ask, &caller);
            assert_eq!(told(&explained), want, "{line:?}");
            if let Ok(decision) = decided {
                let route = decision.route;
                assert_eq!((route.tenant.as_str(), route.model.as_str()), (tenant, model), "{line:?}");
                assert!(steps.iter().any(|step| step.stage == "decision"), "{steps:?}");
                let twice = decide_for(table, &ask, &caller).unwrap();
                assert!(Arc::ptr_eq(route, twice.route), "a route is made once: {line:?}");
                reasons.insert(decision.reason.as_str());
            }
        }
        rows += 1;
    }
    assert!(rows >= 90, "{rows}");
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), ["experiment", "explicit", "override", "pin", "rule"]);
}

#[test]
fn a_pin_that_moves_moves_nobody_in_an_arm_and_no_rule() {
    let before = table();
    let tenants = ["acme", "both", "layers", "held", "corp", "ramp", "ruled"];
    let changes = tenants.map(|tenant| PinChange {
        tenant: TenantId::parse(tenant).unwrap(),
        model: model("screen"),
        version: version("5"),
    });
    let after = before.with_pins(Revision(8), &changes).unwrap();
    let mut seen = BTreeSet::new();
    for tenant in tenants {
        for user in (0..300).map(|n| format!("u{n}")) {
            let client = if user.ends_with('1') { "x-client=beta/1" } else { "-" };
            let row = Row(vec![tenant, "screen", "-", "-", &user, "-", "-", "-", client, "0"]);
            let ask = Ask { tenant, model: "screen", version: None, submission: user.as_bytes() };
            let caller = Caller { facts: &row, wants: None, may_override: false };
            let (was, is) = (decide_for(&before, &ask, &caller).unwrap(), decide_for(&after, &ask, &caller).unwrap());
            assert_eq!(was.reason, is.reason);
            if was.cause.is_some() {
                assert_eq!(was.cause.map(|cause| &cause.id), is.cause.map(|cause| &cause.id));
                assert_eq!(was.route.version, is.route.version);
                assert_eq!(was.route.key, is.route.key);
                seen.insert(was.reason.as_str());
            } else {
                assert_eq!((was.route.version.as_str(), is.route.version.as_str()), ("1", "5"));
            }
        }
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn what_arms_and_rules_name_is_among_a_tenants_keys_once() {
    let table = table();
    let keys = |tenant: &str| {
        let entry = table.tenant(tenant).unwrap();
        let mut keys: Vec<String> =
            table.keys(entry).map(|(model, v)| format!("{}/{}", model.name, v.version)).collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(keys("acme"), "fraud/1 fraud/2 screen/1 screen/3", "what is only allowed is no key");
    assert_eq!(keys("globex"), "screen/2");
    assert_eq!(keys("paused"), "screen/1 screen/3", "a paused experiment keeps its versions warm");
    assert_eq!(keys("both"), "screen/1 screen/3 screen/4");
    assert_eq!(keys("unpinned"), "screen/2");
    let pins = table.pins(table.tenant("acme").unwrap()).count();
    assert_eq!(pins, 2);
}
