//! The section of WebSockets: what it says, what is always there, and every fault at its place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use holdfast_config::{MessagePriority, Source, Stream, load};
use support::GOOD;

fn loaded(section: &str) -> Result<Option<Stream>, String> {
    let text = format!("{GOOD}\n{section}\n");
    load(&Source::text("t.yaml", &text)).map(|loaded| loaded.config.stream).map_err(|faults| faults.to_string())
}

#[test]
fn there_are_none_unless_it_is_said() {
    assert_eq!(loaded("").unwrap(), None);
    let stream = loaded("stream: {}").unwrap().unwrap();
    assert_eq!((stream.message.0, stream.concurrency, stream.ping), (1 << 20, 32, Duration::from_secs(30)));
    assert_eq!((stream.ladder.below, stream.ladder.coalesce), (25, Duration::from_millis(200)));
    let names: Vec<&str> = stream.types.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["critical", "droppable", "normal"], "always there, sorted");
}

#[test]
fn types_are_what_they_say() {
    let stream =
        loaded("stream: { types: { typing: { priority: droppable }, price: { coalesce: true } } }").unwrap().unwrap();
    let of = |name: &str| {
        stream.types.iter().find(|(known, _)| &**known == name).map(|(_, kind)| (kind.priority, kind.coalesce))
    };
    assert_eq!(of("typing"), Some((MessagePriority::Droppable, false)));
    assert_eq!(of("price"), Some((MessagePriority::Normal, true)));
    assert_eq!(of("critical"), Some((MessagePriority::Critical, false)));
}

#[test]
fn each_fault_is_told() {
    for (section, words) in [
        ("stream: { types: { normal: {} } }", "stream.types.normal: is there already"),
        ("stream: { types: { \"a b\": {} } }", "is no name of a type"),
        ("stream: { types: { x: { priority: critical, coalesce: true } } }", "a critical message is never held back"),
        ("stream: { types: { x: { priority: loud } } }", "loud"),
        ("stream: { message: 10 }", "stream.message"),
        ("stream: { ladder: { below: 101 } }", "stream.ladder.below"),
        ("stream: { concurency: 5 }", "concurrency"),
    ] {
        let faults = loaded(section).expect_err(section);
        assert!(faults.contains(words), "{section}: {faults}");
    }
}
