//! Messages as releases wrote them: this release reads all of them, and writes what it reads from the latest.
//!
//! A line of a golden file is a message's name and its bytes in hexadecimal digits. The file of a release never changes. When a field is
//! added, a new file is: what this test prints on failure is its content.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use prost::Message;
use serde_json::json;

use holdfast_config::ResourceKind::{Pin, Tenant};
use holdfast_decide::rollout::{Artifact, Proposal, Report, RolloutId};
use holdfast_plane::*;
use holdfast_types::{ModelName, PoolName, ReplicaName, Revision, TenantId, Version};
use holdfast_wire::held::{Assembly, Held, Stamp, Taken};
use holdfast_wire::proto::{self, from_control, from_gateway};
use holdfast_wire::words;
use support::{name, table};

const V1: &str = include_str!("golden/0.1.0.txt");

fn id<T, E: std::fmt::Debug>(parse: impl Fn(&str) -> Result<T, E>, text: &str) -> T {
    parse(text).unwrap()
}

fn artifact(version: &str) -> Artifact {
    Artifact {
        pool: id(PoolName::parse, "cpu"),
        model: id(ModelName::parse, "screen"),
        version: id(Version::parse, version),
    }
}

const PROPOSAL: Proposal = Proposal { step: 3, base: Revision(41) };

fn orders() -> Orders {
    let (tenant, model) = (id(TenantId::parse, "acme"), id(ModelName::parse, "screen"));
    let flip = Flip { tenant: tenant.clone(), model: model.clone(), new: id(Version::parse, "2"), share: 25 };
    Orders {
        wants: Arc::new([Want { replica: id(ReplicaName::parse, "r1"), artifact: artifact("2"), place: 0 }]),
        prepare: Arc::new([Prepare { rollout: RolloutId(9), proposal: PROPOSAL, flips: Arc::new([flip]) }]),
        shadow: Arc::new([Shadowing {
            rollout: RolloutId(9),
            pin: 1,
            tenant: tenant.clone(),
            model: model.clone(),
            version: id(Version::parse, "2"),
            share: 50,
        }]),
        measure: Arc::new([]),
        observe: Arc::new([artifact("1"), artifact("2")]),
        live: Arc::new([name("g1"), name("g2")]),
        pending: Arc::new([Pending { tenant, model, to: id(Version::parse, "2"), words: None }]),
    }
}

fn status() -> Status {
    let failed = |permanent| Report::Failed { words: "no space".to_owned(), permanent };
    let reports = [
        Report::Absent,
        Report::Loaded,
        Report::Proven,
        Report::Lost,
        failed(true),
        failed(false),
        Report::Wrong { words: "another digest".to_owned() },
    ];
    let versions = reports.into_iter().enumerate().map(|(n, report)| {
        let artifact = artifact(&format!("v{n}"));
        Observed { artifact, report, failures: 0 }
    });
    let replica = ReplicaStatus {
        pool: id(PoolName::parse, "cpu"),
        replica: id(ReplicaName::parse, "r1"),
        in_service: true,
        in_flight: 4,
        versions: versions.collect(),
    };
    let retired = (
        (id(PoolName::parse, "cpu"), "screen_1".to_owned()),
        (id(ModelName::parse, "screen"), id(Version::parse, "1")),
    );
    Status {
        in_force: Revision(42),
        oldest: Revision(40),
        refused: Some(Refused { revision: Revision(43), words: "no such pool".to_owned() }),
        prepared: vec![(RolloutId(9), PROPOSAL)],
        unprepared: vec![(RolloutId(8), PROPOSAL, "no room".to_owned())],
        replicas: vec![replica],
        shadowed: vec![Shadowed { rollout: RolloutId(9), pin: 1, compared: 100, differed: 2 }],
        retired: BTreeMap::from([retired]),
        ..Status::of(name("g1"))
    }
}

fn tables() -> (Arc<Table>, Arc<Table>) {
    let first = table(41, support::pins(&[("acme/screen", "1"), ("beta/screen", "1")]));
    let edits = [
        support::edit(Pin, "beta/screen", None),
        support::edit(Tenant, "acme", Some(json!({"pool": "cpu", "subset": 2}))),
    ];
    let second = support::edited(&first, edits);
    (first, second)
}

fn part(base: Option<&Table>, to: &Table, orders: Option<&Orders>) -> from_control::What {
    let nothing = Entries::default();
    let edits = base.map_or(&nothing, |base| &base.entries).changes(&to.entries);
    let edits = edits.into_iter().map(|edit| proto::Edit {
        kind: edit.kind.as_str().to_owned(),
        name: edit.name.to_string(),
        value: edit.value.map(|value| value.to_string().into()),
    });
    let edits: Vec<_> = edits.collect();
    let stamp = |table| Stamp::of(table).map(Stamp::wire);
    let tail = proto::Tail { edits: edits.len() as u64, orders: orders.map(words::orders_out) };
    let head = proto::Head { makes: stamp(to), base: base.and_then(stamp) };
    from_control::What::Table(proto::TablePart { head: Some(head), edits, tail: Some(tail) })
}

/// Every message of this release.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let (first, second) = tables();
    let has = Stamp::of(&first).map(Stamp::wire);
    let control = |what| proto::FromControl { what: Some(what) }.encode_to_vec();
    let gateway = |what| proto::FromGateway { what: Some(what) }.encode_to_vec();
    let hello = proto::Hello { gateway: "g1".to_owned(), release: "0.1.0".to_owned(), has: has.clone() };
    let welcome = proto::Welcome { release: "0.1.0".to_owned(), current: has.clone(), ..Default::default() };
    vec![
        ("fetch", proto::FetchRequest { gateway: "g1".to_owned(), has: has.clone() }.encode_to_vec()),
        ("hello", gateway(from_gateway::What::Hello(hello))),
        ("status", gateway(from_gateway::What::Status(words::status_out(&status())))),
        ("heartbeat", gateway(from_gateway::What::Heartbeat(proto::Heartbeat {}))),
        ("need_whole", gateway(from_gateway::What::NeedWhole(proto::NeedWhole { why: "doubt".to_owned() }))),
        ("welcome", control(from_control::What::Welcome(welcome))),
        ("keep_alive", control(from_control::What::KeepAlive(proto::KeepAlive { current: has, ..Default::default() }))),
        ("orders", control(from_control::What::Orders(words::orders_out(&orders())))),
        ("whole", control(part(None, &first, None))),
        ("delta", control(part(Some(&first), &second, Some(&orders())))),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn golden(file: &str) -> BTreeMap<&str, Vec<u8>> {
    let bytes =
        |hex: &str| (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
    file.lines().filter_map(|line| line.split_once(' ')).map(|(name, hex)| (name, bytes(hex))).collect()
}

#[test]
fn this_release_writes_what_the_latest_file_has() {
    let written: String =
        messages().iter().fold(String::new(), |text, (name, bytes)| text + name + " " + &hex(bytes) + "\n");
    assert_eq!(written, V1, "a change of the wire format: this is the content of a new file\n{written}");
}

#[test]
fn every_message_of_the_first_release_is_understood() {
    let golden = golden(V1);
    let (control, gateway) = (|name: &str| control(&golden[name]), |name: &str| gateway(&golden[name]));
    let from_gateway::What::Hello(hello) = gateway("hello") else { panic!("hello") };
    let (first, second) = tables();
    assert_eq!((hello.gateway.as_str(), Stamp::read(hello.has.as_ref())), ("g1", Stamp::of(&first)));
    let from_gateway::What::Status(said) = gateway("status") else { panic!("status") };
    assert_eq!(words::status_in(name("g1"), &said), status());
    let from_control::What::Orders(told) = control("orders") else { panic!("orders") };
    assert_eq!(words::orders_in(&told), orders());
    let (mut assembly, mut held) = (Assembly::default(), Held::default());
    for (name, table, with) in [("whole", &first, None), ("delta", &second, Some(orders()))] {
        let from_control::What::Table(part) = control(name) else { panic!("{name}") };
        let Ok(Taken::New(new, orders)) = assembly.take(&held, part) else { panic!("{name} is refused") };
        assert_eq!((new.table(), orders.as_ref().map(words::orders_in)), (table, with));
        held = *new;
    }
    assert!(matches!(gateway("need_whole"), from_gateway::What::NeedWhole(_)));
    assert!(matches!(gateway("heartbeat"), from_gateway::What::Heartbeat(_)));
    assert!(matches!(control("welcome"), from_control::What::Welcome(_)));
    assert!(matches!(control("keep_alive"), from_control::What::KeepAlive(_)));
}

fn control(bytes: &[u8]) -> from_control::What {
    proto::FromControl::decode(bytes).unwrap().what.unwrap()
}

fn gateway(bytes: &[u8]) -> from_gateway::What {
    proto::FromGateway::decode(bytes).unwrap().what.unwrap()
}

/// Field 1000, with a text.
const UNKNOWN: &[u8] = &[0xc2, 0x3e, 0x03, b'n', b'e', b'w'];

#[test]
fn what_a_later_release_adds_is_passed_over() {
    let later = [words::status_out(&status()).encode_to_vec(), UNKNOWN.to_vec()].concat();
    let said = proto::Status::decode(later.as_slice()).unwrap();
    assert_eq!(words::status_in(name("g1"), &said), status());
    // A message of a kind that there is not yet.
    assert_eq!(proto::FromControl::decode(UNKNOWN).unwrap().what, None);
    // A report that there is not yet proves nothing: it is as if nothing were said of the version.
    let mut said = words::status_out(&status());
    said.replicas[0].versions[2].report = 77;
    let read = words::status_in(name("g1"), &said);
    assert_eq!(read.replicas[0].versions.len(), status().replicas[0].versions.len() - 1);
    assert!(read.replicas[0].versions.iter().all(|seen| seen.report != Report::Proven));
    said.replicas[0].versions[4].failures = 3;
    assert_eq!(
        words::status_in(name("g1"), &said).replicas[0].versions[3].failures,
        3,
        "one was passed over before it"
    );
}

#[test]
fn a_flip_that_is_understood_by_half_is_not_prepared() {
    let mut told = words::orders_out(&orders());
    let unreadable = proto::Flip { new: "latest".to_owned(), ..told.prepare[0].flips[0].clone() };
    told.prepare[0].flips.push(unreadable);
    assert_eq!(words::orders_in(&told), Orders { prepare: Arc::new([]), ..orders() });
}
