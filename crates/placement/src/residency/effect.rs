//! What the machine asks of its driver. Effects are carried out in order; `Show` comes before the `Wake` that relies on it.

use std::time::Duration;

use holdfast_types::{Bytes, Mono};

use super::event::{Op, ReplicaIx, VersionIx, WaiterId};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Effect {
    /// Ask the replica to load the version. Answer: `Event::LoadDone` with the same `op`, when the server has answered or broken off, however
    /// long after `deadline` that is; only then its slot is free.
    ///
    /// At `deadline` the load has failed for all who wait.
    Load { op: Op, replica: ReplicaIx, version: VersionIx, deadline: Mono },
    /// Compare the digest and ask the known questions; give up at `deadline`. Answer: `Event::Verified` with the same `op`.
    Verify { op: Op, replica: ReplicaIx, version: VersionIx, deadline: Mono },
    /// Set the flag "holds": requests may be sent.
    Show { replica: ReplicaIx, version: VersionIx },
    /// Clear the flag "holds". When nothing is in use any more (perhaps at once), answer `Event::Drained`; a later `Show` ends the watch.
    ///
    /// A sender counts itself in flight first and looks at the flag second; else a request could slip in after `Drained`.
    Hide { replica: ReplicaIx, version: VersionIx },
    /// Ask the replica to unload the version. Only ever sent when it is hidden and drained. Answer: `Event::UnloadDone` with the same `op`.
    Unload { op: Op, replica: ReplicaIx, version: VersionIx, deadline: Mono },
    /// Answer a waiting request.
    Wake { waiter: WaiterId, outcome: Outcome },
    /// Tell a person.
    Alarm(Alarm),
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Outcome {
    /// This candidate holds the version.
    Ready(ReplicaIx),
    /// Not within the request's budget, or not at all at present: come back.
    Shed { retry_after: Duration, why: Shed },
    /// Every candidate failed for good; waiting would not help.
    Failed { why: String },
}

/// Why a request was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shed {
    /// The deadline came before a holder did.
    Deadline,
    /// The expected load time passes the budget; the load is started or queued all the same, for the next attempt.
    Budget,
    /// As many requests wait as may wait.
    TooManyWaiters,
    /// No candidate is up.
    NoReplica,
    /// The candidates cannot load on request and hold other versions.
    Static,
    /// The version is quarantined on every candidate that could serve it.
    Quarantined,
    /// No room: what is held may not be evicted for it.
    NoRoom,
    /// The thrash guard holds the present set stable.
    Thrashing,
    /// Loads failed on every candidate that could load, at least three times in a row or for good, and back off.
    Backoff,
}

impl Shed {
    /// The reason as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Budget => "budget",
            Self::TooManyWaiters => "too_many_waiters",
            Self::NoReplica => "no_replica",
            Self::Static => "static",
            Self::Quarantined => "quarantined",
            Self::NoRoom => "no_room",
            Self::Thrashing => "thrashing",
            Self::Backoff => "backoff",
        }
    }
}

/// Something a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Alarm {
    /// Evicted and wanted again within the thrash window. Once per window for one version on one replica.
    Thrash { replica: ReplicaIx, version: VersionIx, after: Duration },
    /// The version alone is larger than the replica's memory. Once until either changes.
    DoesNotFit { replica: ReplicaIx, version: VersionIx, size: Bytes, memory: Bytes },
    /// What the replica holds, as measured, is more than its memory. Once until it fits again.
    OverMemory { replica: ReplicaIx, held: Bytes, memory: Bytes },
    /// The weights or the answers are not those of the version. The version is quarantined on the replica.
    VerificationFailed { replica: ReplicaIx, version: VersionIx, why: String },
    /// A load is over its time and has not ended. It keeps its slot.
    LoadOverdue { replica: ReplicaIx, version: VersionIx, after: Duration },
    /// The third load in a row has failed, or one failed for good.
    LoadFailing { replica: ReplicaIx, version: VersionIx, failures: u32, why: String },
    /// A wanted version has no room, and what is held may not be evicted for it. Once until the wanted set, memory or holdings change.
    WantedHasNoRoom { replica: ReplicaIx, version: VersionIx },
}
