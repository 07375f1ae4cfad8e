//! What the machine wants done. Everything but `Save`, `Superseded` and a refusal comes only when the state that implies it is in the store.

use holdfast_types::{GatewayName, ModelName, ReplicaName, Revision, TenantId, Version};

use super::event::Proposal;
use super::plan::{Artifact, RolloutId};
use super::saved::Saved;

/// Something to be done, under the term of the machine: whoever has seen a higher term refuses it. All of it may be asked twice, by one process
/// or by two, and has then the effect of once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Effect {
    /// Compare-and-set of the record: takes effect if the store holds version `expected` (0: none) and no higher term than the record's. Answered
    /// by `Saved`, `SaveConflict` or `SaveFailed`.
    Save { expected: u64, saved: Box<Saved> },
    /// Another control plane has the roll-out. This machine does nothing any more; resume from the store, if it is still yours to do.
    Superseded,
    /// Tell all that is known of gateways, of every candidate of every side (`Absent` too: the record may have it as lost), and of claims; from
    /// then on, what changes.
    Observe,
    /// Have the replica hold the version, and keep it: a load, if it does not hold it. Answered by reports.
    Warm { replica: ReplicaName, artifact: Artifact },
    /// Readiness, digest, golden inputs. Answered by a report.
    Verify { replica: ReplicaName, artifact: Artifact },
    /// This roll-out does not need the version there any more. It goes unless a pin or another roll-out needs it.
    Release { replica: ReplicaName, artifact: Artifact },
    /// Copy so many requests of a thousand of this pin to the new version; 0: none.
    Shadow { pin: usize, share: u16 },
    /// Read the table. Answered by `Table` with the same number.
    ReadTable { read: u64 },
    /// Hold both routes, and flip when the step is seen in force: by the table's stream, or by a request that insists on its revision.
    /// Answered by the gateway's view.
    Prepare { gateway: GatewayName, proposal: Proposal, term: u64, flips: Vec<PinFlip> },
    /// The proposal will not be activated.
    Forget { proposal: Proposal },
    /// Put the step into the table as one change, if the table in force has revision `expected`, no lease was granted to a gateway after the
    /// first `roster`, the store's record of the roll-out has version `version`, and no higher term is known. The table notes roll-out and
    /// step. Asked once for each version of the record. Answered by `Activated` or `ActivateRefused`.
    Activate {
        rollout: RolloutId,
        step: u32,
        expected: Revision,
        roster: u64,
        version: u64,
        term: u64,
        flips: Vec<PinFlip>,
    },
    /// The gateway is behind: the table of this revision is in force.
    Tell { gateway: GatewayName, revision: Revision },
    /// Nobody needs the artifact any more: remove it, if the store's record still has version `version` and nobody has claimed it since.
    Collect { artifact: Artifact, version: u64, term: u64 },
    /// The answer to a command.
    Answer { ask: u64, answer: Result<(), Refusal> },
    /// Something a person should know.
    Alarm(Alarm),
}

/// A pin's part of an activation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PinFlip {
    /// The pin, as the plan counts.
    pub pin: usize,
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// The old version, for the rest of the traffic.
    pub old: Option<Version>,
    /// The new version.
    pub new: Version,
    /// Percent of the traffic for the new version: 0 is a revert, 100 the whole.
    pub share: u8,
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is paused already, or not paused.
    Nothing,
    /// It has ended.
    Over,
    /// Too late to abort: a pin has flipped. Use a revert.
    Active,
    /// Too late to abort: this per cent of a pin's traffic is on the new version, and none has flipped. Use a revert.
    Shared(u8),
    /// No pin has flipped. Use an abort.
    NotActive,
    /// The roll-out goes back already, or went back.
    GoesBack,
    /// There is nothing to go back to: a first pin, or a pin that another change has moved since.
    NoTarget,
    /// The retention is over: a revert is a cold redeployment of these, and has to be confirmed.
    Cold(Vec<Artifact>),
    /// The old version is just being removed. Ask again when it is gone, or kept.
    Collecting,
    /// Another command waits for an activation to be resolved.
    Busy,
}

/// Something a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Alarm {
    /// A version in force, or the way back, is not held where it should be.
    NotHeld { replica: ReplicaName, artifact: Artifact, words: String },
    /// A further step of a pin that has flipped is over its time.
    Late { pin: usize, words: String },
    /// Requests of the old version still run.
    Draining { pin: usize },
    /// Another change has moved the pin.
    Overtaken { pin: usize },
    /// An artifact could not be removed.
    NotCollected { artifact: Artifact, words: String },
    /// A flip that had begun was refused.
    NotActivated { words: String },
}
