//! The golden table: what a client brought, what the ledger says, what follows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use holdfast_submission::{Asked, Claim, Key, Ledger, Next, OnFailure, Record, Refused, next};
use holdfast_types::{ModelName, Revision, TenantId, Version};

fn record(model: &str, version: &str, revision: u64) -> Record {
    Record {
        model: ModelName::parse(model).unwrap(),
        version: Version::parse(version).unwrap(),
        revision: Revision(revision),
        arms: None,
        until: 1,
    }
}

fn claim(model: &str, version: &str, key: Option<Key>) -> Claim {
    Claim { tenant: TenantId::parse("acme").unwrap(), record: record(model, version, 3), key }
}

const K: Key = Key([1; 16]);
const OTHER: Key = Key([2; 16]);

#[test]
fn what_follows() {
    use Refused::*;
    let (one, two, foreign) = (record("screen", "1", 5), record("screen", "2", 6), record("fraud", "1", 5));
    let (bare, bound, stranger) =
        (claim("screen", "1", None), claim("screen", "1", Some(K)), claim("screen", "1", Some(OTHER)));
    let misplaced = claim("fraud", "1", None);
    let asked = |version| Asked { model: "screen", version };
    let refuse = |why| Next::Refuse(why);
    type Row<'a> = (&'a str, Option<&'a str>, Option<&'a Claim>, Ledger<'a>, OnFailure, Next<'a>);
    let rows: Vec<Row<'_>> = vec![
        ("nothing", None, None, Ledger::Off, OnFailure::Refuse, Next::Decide),
        ("a version alone", Some("2"), None, Ledger::Off, OnFailure::Refuse, Next::Decide),
        ("a new key", None, None, Ledger::Unasked(K), OnFailure::Refuse, Next::Ask(K, None)),
        ("a key again", None, None, Ledger::Held(K, &one), OnFailure::Refuse, Next::Replay(&one)),
        ("and its version", Some("1"), None, Ledger::Held(K, &one), OnFailure::Refuse, Next::Replay(&one)),
        ("another version", Some("2"), None, Ledger::Held(K, &one), OnFailure::Refuse, refuse(OtherVersion)),
        ("another model", None, None, Ledger::Held(K, &foreign), OnFailure::Refuse, refuse(OtherModel)),
        ("no ledger", None, None, Ledger::Down(K), OnFailure::Refuse, refuse(Unknown)),
        ("no ledger, and so be it", None, None, Ledger::Down(K), OnFailure::Decide, Next::Unledgered),
        ("a token", None, Some(&bare), Ledger::Off, OnFailure::Refuse, Next::Replay(&bare.record)),
        ("of another model", None, Some(&misplaced), Ledger::Off, OnFailure::Refuse, refuse(OtherModel)),
        ("beside a version", Some("2"), Some(&bare), Ledger::Off, OnFailure::Refuse, refuse(OtherVersion)),
        ("with its key", None, Some(&bound), Ledger::Unasked(K), OnFailure::Refuse, Next::Replay(&bound.record)),
        ("the ledger is away", None, Some(&bound), Ledger::Down(K), OnFailure::Refuse, Next::Replay(&bound.record)),
        ("with another's key", None, Some(&stranger), Ledger::Unasked(K), OnFailure::Refuse, refuse(OtherKey)),
        ("also then", None, Some(&stranger), Ledger::Down(K), OnFailure::Decide, refuse(OtherKey)),
        ("of a keyed one, without", None, Some(&bound), Ledger::Off, OnFailure::Refuse, Next::Replay(&bound.record)),
        (
            "a key that comes later",
            None,
            Some(&bare),
            Ledger::Unasked(K),
            OnFailure::Refuse,
            Next::Ask(K, Some(&bare.record)),
        ),
        ("but of another model", None, Some(&misplaced), Ledger::Unasked(K), OnFailure::Refuse, refuse(OtherModel)),
        ("and is known alike", None, Some(&bare), Ledger::Held(K, &one), OnFailure::Refuse, Next::Replay(&one)),
        ("and is known otherwise", None, Some(&bare), Ledger::Held(K, &two), OnFailure::Refuse, refuse(Contradiction)),
        ("and cannot be kept", None, Some(&bare), Ledger::Down(K), OnFailure::Refuse, Next::Replay(&bare.record)),
    ];
    for (what, version, token, ledger, on_failure, wanted) in rows {
        assert_eq!(next(asked(version), token, ledger, on_failure), wanted, "{what}");
    }
}

/// Whatever is brought and known: nothing is ever replayed to another version than what was said first, and nothing is decided anew that has a record.
#[test]
fn a_record_is_never_passed_over() {
    let one = record("screen", "1", 5);
    let claims =
        [None, Some(claim("screen", "1", None)), Some(claim("screen", "2", None)), Some(claim("screen", "1", Some(K)))];
    for token in &claims {
        for version in [None, Some("1"), Some("2")] {
            for on_failure in [OnFailure::Refuse, OnFailure::Decide] {
                let asked = Asked { model: "screen", version };
                match next(asked, token.as_ref(), Ledger::Held(K, &one), on_failure) {
                    Next::Replay(record) => assert_eq!(record.version.as_str(), "1", "{token:?} {version:?}"),
                    Next::Refuse(_) => {}
                    other => panic!("{token:?} {version:?}: {other:?}"),
                }
            }
        }
    }
}
