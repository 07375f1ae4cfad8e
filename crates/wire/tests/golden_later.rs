//! Messages that came after the first release, as they are written: `golden/later.txt`, in the form of the first release's file. A line never changes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use holdfast_decide::rollout::RolloutId;
use holdfast_plane::{Figures, Measured, Measuring, Orders, Status};
use holdfast_types::{GatewayName, ModelName, TenantId, Version};
use holdfast_wire::proto::{self, from_control};
use holdfast_wire::words;

const LATER: &str = include_str!("golden/later.txt");

fn orders() -> Orders {
    let measuring = Measuring {
        rollout: RolloutId(9),
        pin: 1,
        step: 2,
        tenant: TenantId::parse("acme").unwrap(),
        model: ModelName::parse("screen").unwrap(),
        old: Version::parse("1").unwrap(),
        new: Version::parse("2").unwrap(),
    };
    Orders { measure: Arc::new([measuring]), ..Orders::default() }
}

fn status() -> Status {
    let figures = |requests| Figures {
        requests,
        errors: 3,
        latency: BTreeMap::from([(5, 1), (170, requests - 4)]),
        micros: 1 << 40,
    };
    let measured = Measured { rollout: RolloutId(9), pin: 1, step: 2, canary: figures(100), baseline: figures(1_900) };
    Status { measured: vec![measured], ..Status::of(GatewayName::parse("g1").unwrap()) }
}

fn tokens() -> proto::Tokens {
    proto::Tokens { stamp: 7, content: vec![1, 2, 250].into() }
}

fn messages() -> [(&'static str, Vec<u8>); 3] {
    let tokens = proto::FromControl { what: Some(from_control::What::Tokens(tokens())) };
    [
        ("orders_measure", words::orders_out(&orders()).encode_to_vec()),
        ("status_measured", words::status_out(&status()).encode_to_vec()),
        ("tokens", tokens.encode_to_vec()),
    ]
}

#[test]
fn they_are_written_as_they_were() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let written: String = messages().iter().map(|(name, bytes)| format!("{name} {}\n", hex(bytes))).collect();
    assert_eq!(written, LATER);
}

#[test]
fn they_are_read_and_half_a_measurement_is_none() {
    let line = |name: &str| {
        let found = LATER.lines().find_map(|line| line.split_once(' ').filter(|(one, _)| *one == name)).unwrap().1;
        (0..found.len() / 2).map(|n| u8::from_str_radix(&found[2 * n..2 * n + 2], 16).unwrap()).collect::<Vec<u8>>()
    };
    let sent = proto::Orders::decode(&*line("orders_measure")).unwrap();
    assert_eq!(words::orders_in(&sent), orders());
    let sent = proto::Status::decode(&*line("status_measured")).unwrap();
    let name = GatewayName::parse("g1").unwrap();
    assert_eq!(words::status_in(name.clone(), &sent), status());
    let read = proto::FromControl::decode(&*line("tokens")).unwrap().what.unwrap();
    let from_control::What::Tokens(read) = read else { panic!("{read:?}") };
    assert_eq!(read, tokens());
    let mut half = sent.clone();
    half.measured[0].baseline = None;
    assert_eq!(words::status_in(name.clone(), &half).measured, []);
    let mut torn = sent;
    torn.measured[0].canary.as_mut().unwrap().counts.pop();
    assert_eq!(words::status_in(name, &torn).measured, []);
}
