//! Tokens and records: what is written is read, and nothing else is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use holdfast_submission::{BadToken, Key, Record, Secret, Secrets};
use holdfast_types::{ModelName, Revision, TenantId, Version};
use proptest::prelude::*;

fn record(model: &str, version: &str) -> Record {
    Record {
        model: ModelName::parse(model).unwrap(),
        version: Version::parse(version).unwrap(),
        revision: Revision(7),
        arms: Some("colour=blue".into()),
        until: 1_000,
    }
}

fn secrets(first: &str, others: &[&str]) -> Secrets {
    Secrets::new(Secret::new(first.as_bytes()), others.iter().map(|text| Secret::new(text.as_bytes())).collect())
}

fn tenant() -> TenantId {
    TenantId::parse("acme").unwrap()
}

#[test]
fn a_token_is_its_tenants_until_its_time() {
    let secrets = secrets("one", &[]);
    let key = Key::new("acme", b"ann", b"k").unwrap();
    for key in [None, Some(&key)] {
        let token = secrets.sign(&tenant(), &record("screen", "1"), key);
        let claim = secrets.open(&token, "acme", 999).unwrap();
        assert_eq!((claim.record, claim.key.as_ref()), (record("screen", "1"), key));
        assert_eq!(secrets.open(&token, "acme", 1_000), Err(BadToken::Expired));
        assert_eq!(secrets.open(&token, "globex", 999), Err(BadToken::OtherTenant));
    }
}

#[test]
fn two_secrets_are_good_while_one_takes_the_others_place() {
    let (old, both, turned, new) =
        (secrets("old", &[]), secrets("old", &["new"]), secrets("new", &["old"]), secrets("new", &[]));
    let by = |secrets: &Secrets| secrets.sign(&tenant(), &record("screen", "1"), None);
    let good = |secrets: &Secrets, token: &[u8]| secrets.open(token, "acme", 0).is_ok();
    assert!(good(&both, &by(&old)) && good(&turned, &by(&old)) && good(&turned, &by(&turned)));
    assert!(good(&both, &by(&turned)), "a gateway that is not so far yet");
    assert!(good(&new, &by(&turned)));
    assert_eq!(new.open(&by(&old), "acme", 0), Err(BadToken::Forged));
}

#[test]
fn whatever_is_changed_is_refused() {
    let secrets = secrets("one", &[]);
    let token = secrets.sign(&tenant(), &record("screen", "1"), Some(&Key([9; 16])));
    for at in 0..token.len() {
        for bit in 0..8 {
            let mut changed = token.clone();
            changed[at] ^= 1 << bit;
            assert!(secrets.open(&changed, "acme", 0).is_err(), "bit {bit} of byte {at}");
        }
    }
    for length in 0..token.len() {
        assert!(secrets.open(&token[..length], "acme", 0).is_err(), "cut at {length}");
    }
    assert!(secrets.open(&[token.as_slice(), &[0]].concat(), "acme", 0).is_err());
    assert_eq!(secrets.open(&vec![1; 5_000], "acme", 0), Err(BadToken::Malformed));
}

#[test]
fn a_record_of_another_form_is_none() {
    let mut bytes = record("screen", "1").encode();
    assert_eq!(Record::decode(&bytes), Some(record("screen", "1")));
    bytes[0] = 2;
    assert_eq!(Record::decode(&bytes), None);
    let hostile = Record { arms: Some("a\r\nx: y".into()), ..record("screen", "1") };
    assert_eq!(Record::decode(&hostile.encode()), None, "arms become a header's value");
}

/// Bytes that any release has to read.
#[test]
fn the_form_of_a_record_stays() {
    let text: String = record("screen", "1").encode().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, concat!("01e80707", "0673637265656e", "0131", "0b636f6c6f75723d626c7565"));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        model in "[a-z0-9][a-z0-9._-]{0,20}", version in "[0-9]{1,9}", revision: u64, until: u64,
        arms in proptest::option::of("[ -~]{1,60}"), key in proptest::option::of(any::<[u8; 16]>()),
    ) {
        let record = Record {
            model: ModelName::parse(&model).unwrap(),
            version: Version::parse(&version).unwrap(),
            revision: Revision(revision),
            arms: arms.map(Into::into),
            until,
        };
        prop_assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        let key = key.map(Key);
        let secrets = secrets("s", &[]);
        let token = secrets.sign(&tenant(), &record, key.as_ref());
        if until > 0 {
            let claim = secrets.open(&token, "acme", 0).unwrap();
            prop_assert_eq!((claim.record, claim.key), (record, key));
        }
    }

    #[test]
    fn no_bytes_are_taken_that_were_not_signed(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(secrets("s", &[]).open(&bytes, "acme", 0).is_err());
        let _ = Record::decode(&bytes);
    }

    #[test]
    fn one_text_for_each_record(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Some(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode(), bytes);
        }
    }
}
