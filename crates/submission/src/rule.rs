//! What follows from what a client brought and what is kept of its submission.
//!
//! A token says by itself what its submission was resolved to. A key has to be looked for in the ledger, and the first resolution that is there wins. Where it
//! cannot be known whether there was one, nothing is guessed, unless the operator has said so.

use crate::key::Key;
use crate::record::Record;
use crate::token::Claim;

/// What a request asks for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The model.
    pub model: &'a str,
    /// The version, if it names one.
    pub version: Option<&'a str>,
}

/// What to do with a submission that has a key and no token while the ledger does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// It is refused, and may come again.
    #[default]
    Refuse,
    /// It is resolved as if it were new, and its answer says so: PIN-2 is not promised then.
    Decide,
}

/// What is known of the ledger's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ledger<'a> {
    /// The submission has no key, or there is no ledger.
    Off,
    /// It was not asked yet.
    Unasked(Key),
    /// It holds this.
    Held(Key, &'a Record),
    /// It did not answer.
    Down(Key),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The submission was about another model.
    OtherModel,
    /// The request names another version than its submission was resolved to.
    OtherVersion,
    /// The token belongs to a submission with another key.
    OtherKey,
    /// Token and ledger say different versions.
    Contradiction,
    /// The ledger does not answer, so it cannot be known.
    Unknown,
}

impl Refused {
    /// In words for a client.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OtherModel => "this submission was about another model; another submission needs a key of its own",
            Self::OtherVersion => "the request names another version than its submission was resolved to",
            Self::OtherKey => "x-holdfast-route belongs to a submission with another key",
            Self::Contradiction => {
                "x-holdfast-route and the submission's key lead to different versions; send one of the two"
            }
            Self::Unknown => {
                "whether this submission was resolved before cannot be known at present: the ledger does not answer"
            }
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// It is resolved by the table, and nothing is kept.
    Decide,
    /// The ledger is asked, with this proposal; without one, with what the table says.
    Ask(Key, Option<&'a Record>),
    /// It goes where it went.
    Replay(&'a Record),
    /// It is resolved by the table, and the answer says that nothing is kept.
    Unledgered,
    /// It is refused.
    Refuse(Refused),
}

/// What is to be done with a request.
#[must_use]
pub fn next<'a>(asked: Asked<'_>, token: Option<&'a Claim>, ledger: Ledger<'a>, on_failure: OnFailure) -> Next<'a> {
    let replay = |record: &'a Record| match fits(asked, record) {
        Ok(()) => Next::Replay(record),
        Err(why) => Next::Refuse(why),
    };
    match (token, ledger) {
        (None, Ledger::Off) => Next::Decide,
        (None, Ledger::Unasked(key)) => Next::Ask(key, None),
        (None, Ledger::Held(_, record)) => replay(record),
        (None, Ledger::Down(_)) => match on_failure {
            OnFailure::Refuse => Next::Refuse(Refused::Unknown),
            OnFailure::Decide => Next::Unledgered,
        },
        (Some(claim), Ledger::Off) => replay(&claim.record),
        (Some(claim), Ledger::Unasked(key) | Ledger::Held(key, _) | Ledger::Down(key)) => {
            match (claim.key == Some(key), claim.key, ledger) {
                // It was resolved under this key: the ledger has nothing to add.
                (true, ..) | (_, None, Ledger::Down(_)) => replay(&claim.record),
                (false, Some(_), _) => Next::Refuse(Refused::OtherKey),
                // A key that comes with the retry only: whatever comes later without the token is to find it.
                (false, None, Ledger::Held(_, record)) if record.version == claim.record.version => replay(record),
                (false, None, Ledger::Held(..)) => Next::Refuse(Refused::Contradiction),
                (false, None, _) => match fits(asked, &claim.record) {
                    Ok(()) => Next::Ask(key, Some(&claim.record)),
                    Err(why) => Next::Refuse(why),
                },
            }
        }
    }
}

fn fits(asked: Asked<'_>, record: &Record) -> Result<(), Refused> {
    if record.model.as_str() != asked.model {
        return Err(Refused::OtherModel);
    }
    match asked.version {
        Some(named) if named != record.version.as_str() => Err(Refused::OtherVersion),
        _ => Ok(()),
    }
}
