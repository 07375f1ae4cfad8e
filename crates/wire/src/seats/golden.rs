//! Messages of seats as releases wrote them: this one reads all of them, and writes what it reads from the latest.
//!
//! A line of a golden file is a message's name and its bytes in hexadecimal digits. A file never changes: when a field or a message is added, a new
//! one is. What the first test prints on failure is its content.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use prost::Message;

use holdfast_decide::rollout::Artifact;
use holdfast_placement::seats::{Seat, Seating, Sit, Told};
use holdfast_plane::Wish;
use holdfast_types::{GatewayName, ModelName, PoolName, Version};

use super::{Answered, Asked, Leave, Loaded, words};
use crate::proto;

const V1: &str = include_str!("../../tests/golden/seats-1.txt");
/// Yields are numbered and say whether the copy is wrong; loads are told of.
const V2: &str = include_str!("../../tests/golden/seats-2.txt");

fn gateway(name: &str) -> GatewayName {
    GatewayName::parse(name).unwrap()
}

fn seats() -> [Seat; 2] {
    let peer = Some("10.0.0.1:7403".into());
    [
        Seat { name: gateway("g1"), home: 42, life: 3, peer },
        Seat { name: gateway("g2"), home: u64::MAX, life: 1, peer: None },
    ]
}

fn wish() -> Wish {
    let artifact = Artifact {
        pool: PoolName::parse("cpu").unwrap(),
        model: ModelName::parse("screen").unwrap(),
        version: Version::parse("2").unwrap(),
    };
    Wish { artifact, servers: vec!["10.0.1.1:80".into(), "10.0.1.2:80".into()] }
}

fn asked() -> Asked {
    let [seat, _] = seats();
    let sit = Sit { seat, promised: 6, drained: true, clean: true, leaving: true };
    Asked { sit, wishes: vec![wish()], telling: vec![wish().artifact.pool] }
}

fn answered() -> Answered {
    let seating = Seating {
        epoch: 7,
        lease: Duration::from_secs(10),
        alone: Duration::from_secs(3_600),
        bound: 8,
        seats: seats().to_vec(),
        unsure: true,
    };
    let told = Told { seating: Some(seating), next: Some(8), granted: true };
    Answered { told, wishes: vec![wish()], telling: vec![wish().artifact.pool] }
}

fn leave(word: u64, renews: bool) -> Leave {
    let (artifact, server, within) = (wish().artifact, "10.0.1.2:80".into(), Duration::from_secs(30));
    Leave { artifact, server, within, taken_back: true, word, renews }
}

fn loads() -> [(&'static str, Loaded); 4] {
    [
        ("ready", Loaded::Ready("10.0.1.2:80".into())),
        ("shed", Loaded::Shed { retry: Duration::from_millis(1_500), why: "budget".to_owned() }),
        ("failed", Loaded::Failed("no such file".to_owned())),
        ("not_owner", Loaded::NotOwner),
    ]
}

/// Every message of this release.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let (me, within_ms) = ("g1".to_owned(), 2_500);
    let load = proto::LoadRequest { gateway: me.clone(), wish: Some(words::wish_out(&wish())), within_ms };
    let ballot = proto::VoteAnswer { gateway: "g2".to_owned(), home: u64::MAX, yes: true };
    let mut all = vec![
        ("sit", words::asked_out(&asked()).encode_to_vec()),
        ("told", words::answered_out(&answered()).encode_to_vec()),
        ("vote", proto::VoteRequest { gateway: me, epoch: 7 }.encode_to_vec()),
        ("ballot", ballot.encode_to_vec()),
        ("load", load.encode_to_vec()),
    ];
    all.extend(loads().map(|(name, loaded)| (name, words::loaded_out(loaded).encode_to_vec())));
    all.push(("yield", words::leave_out(&gateway("g1"), &leave(99, true)).encode_to_vec()));
    all.push(("let_go", proto::YieldAnswer { yes: true }.encode_to_vec()));
    let (artifact, server) = (wish().artifact, "10.0.1.2:80");
    all.push(("reload", words::reload_out(&gateway("g1"), &artifact, server).encode_to_vec()));
    all
}

fn golden(file: &str) -> BTreeMap<&str, Vec<u8>> {
    let bytes =
        |hex: &str| (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
    file.lines().filter_map(|line| line.split_once(' ')).map(|(name, hex)| (name, bytes(hex))).collect()
}

#[test]
fn this_release_writes_what_the_latest_file_has() {
    let written = messages().iter().fold(String::new(), |mut text, (name, bytes)| {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        writeln!(text, "{name} {hex}").unwrap();
        text
    });
    assert_eq!(written, V2, "a change of the wire format: this is the content of a new file\n{written}");
}

#[test]
fn every_message_of_each_release_is_understood() {
    for (file, word, renews) in [(V1, 0, false), (V2, 99, true)] {
        let golden = golden(file);
        let asked_of = proto::SitRequest::decode(&*golden["sit"]).unwrap();
        assert_eq!(words::asked_in(asked_of), Some(asked()));
        let told = words::answered_in(proto::SitAnswer::decode(&*golden["told"]).unwrap()).unwrap();
        let Answered { told: expected, wishes, telling } = answered();
        assert_eq!((told.told, told.wishes, told.telling), (expected, wishes, telling));
        let vote = proto::VoteRequest::decode(&*golden["vote"]).unwrap();
        assert_eq!((vote.gateway.as_str(), vote.epoch), ("g1", 7));
        let ballot = proto::VoteAnswer::decode(&*golden["ballot"]).unwrap();
        assert_eq!((ballot.gateway.as_str(), ballot.home, ballot.yes), ("g2", u64::MAX, true));
        let load = proto::LoadRequest::decode(&*golden["load"]).unwrap();
        assert_eq!((load.wish.and_then(words::wish_in), load.within_ms), (Some(wish()), 2_500));
        for (name, loaded) in loads() {
            assert_eq!(words::loaded_in(proto::LoadAnswer::decode(&*golden[name]).unwrap()), loaded);
        }
        let parting = words::leave_in(proto::YieldRequest::decode(&*golden["yield"]).unwrap());
        assert_eq!(parting, Some(leave(word, renews)));
        assert!(proto::YieldAnswer::decode(&*golden["let_go"]).unwrap().yes);
    }
    let reload = proto::ReloadRequest::decode(&*golden(V2)["reload"]).unwrap();
    assert_eq!(words::reload_in(reload), Some((wish().artifact, "10.0.1.2:80".into())));
}

/// Field 1000, with a text.
const UNKNOWN: &[u8] = &[0xc2, 0x3e, 0x03, b'n', b'e', b'w'];

#[test]
fn what_a_later_release_adds_is_passed_over() {
    let later = [words::asked_out(&asked()).encode_to_vec(), UNKNOWN.to_vec()].concat();
    assert_eq!(words::asked_in(proto::SitRequest::decode(&*later).unwrap()), Some(asked()));
    // What became of a load that there is not yet is no load.
    assert_eq!(words::loaded_in(proto::LoadAnswer::decode(UNKNOWN).unwrap()), Loaded::NotOwner);
    // A seating of which one seat cannot be read is none: its owners would be others than everybody else's.
    let mut told = words::answered_out(&answered());
    if let Some(seating) = &mut told.seating {
        seating.seats[1].name = "not a name".to_owned();
    }
    assert!(words::answered_in(told).is_none());
}
