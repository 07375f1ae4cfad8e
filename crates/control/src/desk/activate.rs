//! Pins into force: the driver's transaction.

use holdfast_store::{Change as StoreChange, Commit, Purpose, RecordWrite};
use holdfast_types::{ModelName, Revision, TenantId, Version};

use super::commit::{Refused, edits_between};
use super::error::ActivateError;
use super::{Desk, DeskError, plan};
use holdfast_store::Space;

/// A pin, a version, and how much of the pin's traffic that version has in force afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinMove {
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// Which version.
    pub version: Version,
    /// Percent. 100: the pin is at the version, and not split. 1 to 99: the pin stays where it is, and this share of it goes to the version. 0:
    /// the pin is at the version, and a split of it is over (the way back).
    pub share: u8,
}

/// Pins that are to be in force, and what is written down with it: all or nothing.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The revision of the table in force on which it builds.
    pub expected: Revision,
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When: milliseconds since 1970.
    pub at_ms: u64,
    /// The pins. None twice.
    pub pins: Vec<PinMove>,
    /// Records in the same transaction, each compared with the version that the driver saw.
    pub records: Vec<RecordWrite>,
    /// The leader's term.
    pub term: u64,
}

/// What an activation became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activated {
    /// Its revision: that of the table in force, if any pin has moved.
    pub revision: Revision,
    /// The new version of each record; empty if the answer to the commit was lost and what became of it was found out afterwards.
    pub versions: Vec<Option<u64>>,
}

/// How often an activation is worked out anew because what is desired has changed meanwhile.
const TRIES: usize = 8;

impl Desk {
    /// Puts pins, or shares of them, in force as one revision, if the table in force is still the expected one, the records are at the versions that the driver saw
    /// and no higher term is known. Versions that are not desired and that no pin and no split in force names any
    /// more go with it.
    ///
    /// A change of what is desired that comes in between does not stand in the way.
    ///
    /// # Errors
    /// [`ActivateError`]. After `Unavailable { maybe: true }` the driver has to read before it concludes anything.
    pub async fn activate(&self, activation: Activation) -> Result<Activated, ActivateError> {
        let turn = self.turn().await.map_err(unavailable)?;
        for _ in 0..TRIES {
            // Whoever led before may have written until this term began, and what it wrote need not have been heard of.
            self.catch_up(&turn).await.map_err(unavailable)?;
            let truth = self.truth();
            if truth.head.in_force != activation.expected {
                return Err(ActivateError::Conflict { in_force: truth.head.in_force });
            }
            let pins = activation.pins.iter();
            let moves = pins.map(|p| plan::Move {
                pin: format!("{}/{}", p.tenant, p.model).into(),
                version: p.version.as_str().into(),
                share: p.share,
            });
            let next = plan::activate(&truth.desired, &truth.in_force, moves).map_err(ActivateError::Invalid)?;
            let edits = edits_between(Space::InForce, &truth.in_force, &next).map_err(invalid)?;
            let change = StoreChange {
                purpose: Purpose::Activation,
                base: Some(truth.head.revision),
                author: activation.author.clone(),
                reason: activation.reason.clone(),
                at_ms: activation.at_ms,
                edits,
            };
            let commit = Commit {
                change: Some(change),
                records: activation.records.clone(),
                term: Some(activation.term),
                in_force: Some(activation.expected),
            };
            match self.commit(&turn, commit).await {
                Ok(done) => return Ok(Activated { revision: done.revision, versions: done.versions }),
                Err(Refused::Overtaken) => {}
                Err(Refused::Moved(in_force)) => return Err(ActivateError::Conflict { in_force }),
                Err(Refused::Record | Refused::Fenced) => return Err(ActivateError::Fenced),
                Err(Refused::Invalid(words)) => return Err(ActivateError::Invalid(words)),
                Err(Refused::Unavailable { words, maybe }) => return Err(ActivateError::Unavailable { words, maybe }),
                Err(Refused::Store(error)) => {
                    return Err(ActivateError::Unavailable { words: error.public(), maybe: false });
                }
            }
        }
        let words = "what is desired changes faster than an activation can be written".to_owned();
        Err(ActivateError::Unavailable { words, maybe: false })
    }
}

fn unavailable(error: DeskError) -> ActivateError {
    ActivateError::Unavailable { words: error.to_string(), maybe: false }
}

fn invalid(error: DeskError) -> ActivateError {
    ActivateError::Invalid(error.to_string())
}
