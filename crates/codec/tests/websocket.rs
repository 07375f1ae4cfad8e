//! WebSocket messages: what is read however the bytes are cut, and what each rule and bound refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use holdfast_codec::ws::{Bounds, Broken, Event, Kind, Opcode, Reader, Role, close_payload, code, write_frame};
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { message: 1_000, fragments: 8 };
const KEY: Option<[u8; 4]> = Some([7, 77, 177, 201]);

fn read(bytes: &[u8], cut: usize, bounds: Bounds) -> Result<Vec<Event>, Broken> {
    let mut reader = Reader::new(Role::Server);
    let mut events = Vec::new();
    for chunk in bytes.chunks(cut.max(1)) {
        let mut chunk = chunk;
        while let Some(event) = reader.take(&mut chunk, bounds)? {
            events.push(event);
        }
        assert!(chunk.is_empty(), "all of the input is used up");
    }
    Ok(events)
}

fn frame(opcode: Opcode, last: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, opcode, last, payload, KEY);
    out
}

fn refused(bytes: &[u8]) -> u16 {
    (1..8)
        .map(|cut| read(bytes, cut, BOUNDS).expect_err("refused").code)
        .reduce(|a, b| if a == b { a } else { 0 })
        .unwrap()
}

#[derive(Clone, Debug)]
enum Sent {
    Message(Kind, Vec<Vec<u8>>),
    Ping(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let piece = || prop::collection::vec(any::<u8>(), 0..200);
    let text = prop::collection::vec("[a-zé€𝄞]{0,60}", 1..4)
        .prop_map(|parts| Sent::Message(Kind::Text, parts.into_iter().map(String::into_bytes).collect()));
    let binary = prop::collection::vec(piece(), 1..4).prop_map(|parts| Sent::Message(Kind::Binary, parts));
    prop_oneof![text, binary, prop::collection::vec(any::<u8>(), 0..=125).prop_map(Sent::Ping)]
}

proptest! {
    /// Any history of messages, fragmented anywhere, with pings between fragments and cut anywhere, is read as it was meant.
    #[test]
    fn messages_come_through_however_they_are_cut(sent in prop::collection::vec(sent(), 0..8), cut in 1usize..40, pings in any::<bool>()) {
        let (mut bytes, mut meant) = (Vec::new(), Vec::new());
        for one in sent {
            match one {
                Sent::Ping(payload) => {
                    bytes.extend(frame(Opcode::Ping, true, &payload));
                    meant.push(("ping", payload));
                }
                Sent::Message(kind, parts) => {
                    let last = parts.len() - 1;
                    for (at, part) in parts.iter().enumerate() {
                        let first = if kind == Kind::Text { Opcode::Text } else { Opcode::Binary };
                        bytes.extend(frame(if at == 0 { first } else { Opcode::Continuation }, at == last, part));
                        if pings && at < last {
                            bytes.extend(frame(Opcode::Ping, true, b"between"));
                            meant.push(("ping", b"between".to_vec()));
                        }
                    }
                    meant.push((if kind == Kind::Text { "text" } else { "binary" }, parts.concat()));
                }
            }
        }
        let events = read(&bytes, cut, BOUNDS).expect("good");
        let seen: Vec<(&str, Vec<u8>)> = events.into_iter().map(|event| match event {
            Event::Message(Kind::Text, data) => ("text", data),
            Event::Message(Kind::Binary, data) => ("binary", data),
            Event::Ping(control) => ("ping", control.bytes().to_vec()),
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(seen, meant);
    }

    /// Garbage is refused or read; it never panics, and the memory stays within the bound.
    #[test]
    fn garbage_ends_in_a_code_or_in_messages(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 1usize..40) {
        match read(&bytes, cut, BOUNDS) {
            Ok(events) => for event in events {
                if let Event::Message(_, data) = event { prop_assert!(data.len() <= BOUNDS.message); }
            },
            Err(broken) => prop_assert!([1002, 1007, 1009].contains(&broken.code)),
        }
    }

    #[test]
    fn what_is_written_is_read_back_at_every_length(length in prop_oneof![0usize..200, 65_500usize..65_600], masked in any::<bool>()) {
        let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let mut out = Vec::new();
        write_frame(&mut out, Opcode::Binary, true, &payload, KEY.filter(|_| masked));
        let mut reader = Reader::new(if masked { Role::Server } else { Role::Client });
        let bounds = Bounds { message: 100_000, fragments: 1 };
        let event = reader.take(&mut &out[..], bounds).unwrap();
        prop_assert_eq!(event, Some(Event::Message(Kind::Binary, payload)));
    }
}

#[test]
fn each_rule_has_its_code() {
    let mut reserved = frame(Opcode::Text, true, b"x");
    reserved[0] |= 0x40;
    let unmasked = {
        let mut out = Vec::new();
        write_frame(&mut out, Opcode::Text, true, b"x", None);
        out
    };
    let text = |bytes: &[u8]| frame(Opcode::Text, true, bytes);
    let close = |bytes: &[u8]| frame(Opcode::Close, true, bytes);
    let within = [frame(Opcode::Text, false, b"a"), frame(Opcode::Text, true, b"b")].concat();
    for (what, bytes, code) in [
        ("a reserved bit", reserved, code::PROTOCOL),
        ("no mask", unmasked, code::PROTOCOL),
        ("an unknown opcode", vec![0x83, 0x80, 0, 0, 0, 0], code::PROTOCOL),
        ("an unknown control opcode", vec![0x8b, 0x80, 0, 0, 0, 0], code::PROTOCOL),
        ("a fragmented ping", frame(Opcode::Ping, false, b""), code::PROTOCOL),
        ("a long ping", frame(Opcode::Ping, true, &[0; 126]), code::PROTOCOL),
        ("a continuation of nothing", frame(Opcode::Continuation, true, b""), code::PROTOCOL),
        ("a message within another", within, code::PROTOCOL),
        ("a length written too long", vec![0x81, 0xfe, 0, 5, 0, 0, 0, 0], code::PROTOCOL),
        ("a length written much too long", vec![0x81, 0xff, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0], code::PROTOCOL),
        ("a length beyond all", vec![0x81, 0xff, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], code::PROTOCOL),
        ("no UTF-8", text(&[0xff]), code::INVALID),
        ("a cut character", text(&[0xe2, 0x82]), code::INVALID),
        ("a surrogate", text(&[0xed, 0xa0, 0x80]), code::INVALID),
        ("half a close code", close(&[3]), code::PROTOCOL),
        ("a code that is never sent", close(&close_payload(1005, "")), code::PROTOCOL),
        ("a code of nobody", close(&close_payload(2999, "")), code::PROTOCOL),
        ("a reason that is no text", close(&[3, 0xe8, 0xff]), code::INVALID),
        ("too large", text(&[b'x'; 1_001]), code::TOO_BIG),
    ] {
        assert_eq!(refused(&bytes), code, "{what}");
    }
}

#[test]
fn a_message_without_an_end_is_refused_once_it_is_over_its_bound_and_not_before_it_is_asked_for_memory() {
    let mut bytes = frame(Opcode::Binary, false, &[0; 300]);
    for _ in 0..3 {
        bytes.extend(frame(Opcode::Continuation, false, &[0; 300]));
    }
    assert_eq!(refused(&bytes), code::TOO_BIG, "the fragments together are over the bound");
    let empty = [frame(Opcode::Text, false, b""), frame(Opcode::Continuation, false, b"").repeat(8)].concat();
    assert_eq!(refused(&empty), code::TOO_BIG, "nothing at all, in too many frames");
    // Announced and never sent.
    let announced = [0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 2, 3, 4];
    assert_eq!(read(&announced, 1, Bounds { message: 1 << 30, fragments: 1 }), Ok(vec![]));
}

#[test]
fn nothing_is_read_after_a_close() {
    let mut bytes = frame(Opcode::Close, true, &close_payload(1000, "bye"));
    bytes.extend(frame(Opcode::Text, true, b"more"));
    assert_eq!(read(&bytes, 3, BOUNDS), Ok(vec![Event::Close(Some(1000))]));
    assert_eq!(read(&frame(Opcode::Close, true, b""), 1, BOUNDS), Ok(vec![Event::Close(None)]));
    assert_eq!(close_payload(1001, &"é".repeat(100)).len(), 124, "cut between characters");
}
