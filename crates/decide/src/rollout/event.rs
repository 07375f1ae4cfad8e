//! What the machine is told: answers to its saves, what is seen of the fleet, and what people want.

use std::collections::BTreeSet;

use holdfast_types::{GatewayName, ReplicaName, Revision, Version};

use super::plan::Artifact;

/// The longest words of a server that are kept; longer ones are cut.
pub const MAX_WORDS: usize = 512;

/// A flip that gateways prepare for: the step of the roll-out, and the table on which it builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proposal {
    /// Which step of the roll-out. Never used for two flips.
    pub step: u32,
    /// The table that is in force until the flip.
    pub base: Revision,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Event {
    /// Time has passed. Also what starts a new or resumed machine.
    Tick,
    /// The store holds the record under this version.
    Saved { version: u64 },
    /// The store holds another record than the one that was to be replaced, or a higher term: somebody else is at it.
    SaveConflict { version: u64 },
    /// Whether the record was saved is not known. It is tried again.
    SaveFailed { version: u64 },
    /// All gateways that are registered, with or without a lease, after so many leases were granted. Replaces what was known of them.
    Gateways { roster: u64, all: Vec<GatewayView> },
    /// What one gateway says of itself, or what its lease says of it. The number is that of leases granted when all of them are known.
    Gateway { roster: u64, view: GatewayView },
    /// One replica about one version.
    Replica { replica: ReplicaName, artifact: Artifact, report: Report },
    /// The answer to [`Effect::ReadTable`](super::Effect::ReadTable).
    Table { read: u64, table: TableView },
    /// What is in force of the roll-out's pins, in its order, as seen by the way.
    InForce { revision: Revision, pins: Vec<PinView> },
    /// The step is in the table, under this revision.
    Activated { step: u32, revision: Revision },
    /// The step is not in the table, and what was asked under this version of the record never will be.
    ActivateRefused { step: u32, version: u64, why: ActivateRefusal },
    /// A gateway cannot build what it is to prepare.
    PrepareFailed { gateway: GatewayName, proposal: Proposal, words: String },
    /// Totals since the copying began, over all gateways; answers that could not be compared count in neither.
    Shadowed { pin: usize, compared: u64, differed: u64 },
    /// What a canary's condition says of a step, the `step`th one that is in force; `hold`: why the next one may not come yet. Of another step it says nothing.
    Judged { pin: usize, step: usize, hold: Option<String> },
    /// What the rest of the world needs. Replaces what was known of it.
    Claims(Claims),
    /// The artifact is gone.
    Collected { artifact: Artifact },
    /// The artifact could not be removed. It is tried again.
    CollectFailed { artifact: Artifact, words: String },
    /// The replica set changed: a pin's candidates anew, in the key's order of preference.
    Replan { pin: usize, version: Version, order: Vec<ReplicaName> },
    /// Somebody wants something. The answer carries the number.
    Command { ask: u64, command: Command },
}

/// What people may want of a roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// Nothing new is prepared, activated or collected, and the deadlines stand still. What is being loaded goes on loading, an activation in
    /// doubt is resolved, a lost replica is replaced, and the time of retention runs on.
    Pause,
    /// Ends a pause.
    Resume,
    /// Before the first activation: nothing is flipped and the new versions are let go. After it: refused, since `Revert` is meant.
    Abort,
    /// Back to the old versions, without canary or shadow. Pins that have not flipped stay where they are. Ends a pause.
    Revert {
        /// The asker knows that the old version may have to be loaded anew.
        confirmed: bool,
    },
}

impl Command {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Abort => "abort",
            Self::Revert { confirmed: false } => "revert",
            Self::Revert { confirmed: true } => "revert, also if it has to load",
        }
    }
}

/// What a replica says of a version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    /// In service, and neither holds it nor loads it.
    Absent,
    /// Holds it; nothing is proven.
    Loaded,
    /// Holds it: ready, the digest is the declared one, golden inputs got their answers.
    Proven,
    /// Out of service: the key's next candidate takes its place until anything else is reported.
    Lost,
    /// Could not load it. `permanent`: trying again will not help.
    #[expect(missing_docs, reason = "the text of the variant says it")]
    Failed { words: String, permanent: bool },
    /// Holds something else under its name.
    #[expect(missing_docs, reason = "the text of the variant says it")]
    Wrong { words: String },
}

/// A gateway, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatewayView {
    /// Its name.
    pub name: GatewayName,
    /// Whether it holds a lease. One that does is live and waited for, however silent it is. One that does not still serves its last table
    /// to whoever reaches it, and is given a lease again only when it has the table in force.
    pub leased: bool,
    /// The table that it answers new requests under.
    pub in_force: Revision,
    /// The oldest table that a request in flight was resolved under; `in_force` if none is in flight.
    pub oldest: Revision,
    /// The flip of this roll-out for which it holds both routes.
    pub prepared: Option<Proposal>,
}

/// The table in force, as far as the roll-out is concerned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableView {
    /// Its revision.
    pub revision: Revision,
    /// The last step of this roll-out that is in the table, and the revision under which it came in.
    pub applied: Option<(u32, Revision)>,
    /// How many leases have been granted to gateways. A renewal is none.
    pub roster: u64,
    /// The pins of the roll-out, in its order.
    pub pins: Vec<PinView>,
}

/// A pin in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PinView {
    /// The version.
    pub version: Option<Version>,
    /// A share of the traffic that goes to another version, in percent.
    pub split: Option<(Version, u8)>,
}

/// Why an activation was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ActivateRefusal {
    /// The table in force is another one than expected.
    Conflict,
    /// The record has been saved since under another version, or a higher term is known.
    Fenced,
    /// The change is not possible, in the words of whoever refused it.
    Invalid(String),
}

/// What is needed by others than this roll-out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claims {
    /// Versions that a pin of the table in force names, or a running roll-out is to pin.
    pub pinned: BTreeSet<Artifact>,
    /// Versions that another roll-out names as its rollback target, its time of retention not being over.
    pub targets: BTreeSet<Artifact>,
}
