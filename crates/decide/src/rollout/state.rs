//! What a roll-out remembers: the part that is saved ([`Record`]), and the part that is seen anew by each process ([`Seen`]).
//!
//! Times in the record are the roll-out's own age: what has passed while some control plane had it in hand. A wall clock may jump, and the
//! clock of a process means nothing to the next one; so a time of retention can become longer by a crash, never shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_types::{GatewayName, ModelName, ReplicaName, Revision, TenantId, Version};

use super::event::{Claims, Command, GatewayView, PinView};
use super::plan::{Artifact, Options, RolloutId};

/// Where a pin is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The subset loads and proves the version.
    Warming,
    /// Live traffic is copied.
    Shadowing,
    /// Waits for its flip: for the other pins of an atomic change, or for a flip in progress.
    Ready,
    /// Part of the flip in progress.
    Flipping,
    /// A share of the traffic is on the new version.
    Canary,
    /// The pin has flipped; requests of the version that it left run on.
    Draining,
    /// The version that it left is kept.
    Retaining,
    /// The retention is over. The version that it left goes when nobody needs it.
    Collecting,
    /// Final.
    Done,
    /// Final: the pin did not move, or did not move back, in the words of who refused.
    Failed,
    /// Final: nothing was flipped.
    Aborted,
}

/// All stages, with their names in records.
const STAGES: [(Stage, &str); 11] = [
    (Stage::Warming, "warming"),
    (Stage::Shadowing, "shadowing"),
    (Stage::Ready, "ready"),
    (Stage::Flipping, "flipping"),
    (Stage::Canary, "canary"),
    (Stage::Draining, "draining"),
    (Stage::Retaining, "retaining"),
    (Stage::Collecting, "collecting"),
    (Stage::Done, "done"),
    (Stage::Failed, "failed"),
    (Stage::Aborted, "aborted"),
];

impl Stage {
    /// The name in records and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        STAGES.iter().find(|(stage, _)| *stage == self).map_or("", |(_, name)| name)
    }

    /// The stage of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        STAGES.iter().find(|(_, n)| *n == name).map(|(stage, _)| *stage)
    }

    /// Whether nothing follows by itself.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Aborted)
    }
}

/// A version of a pin and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Side {
    pub(super) artifact: Artifact,
    pub(super) order: Vec<ReplicaName>,
    pub(super) subset: usize,
    /// Candidates that are out of service.
    pub(super) lost: BTreeSet<ReplicaName>,
    /// Wherever this roll-out ever wanted it.
    pub(super) touched: BTreeSet<ReplicaName>,
}

impl Side {
    /// The replicas that the key hashes to now.
    pub(super) fn targets(&self) -> impl Iterator<Item = &ReplicaName> {
        self.order.iter().filter(|r| !self.lost.contains(*r)).take(self.subset)
    }
}

/// One pin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) tenant: TenantId,
    pub(super) model: ModelName,
    pub(super) old: Option<Side>,
    pub(super) new: Side,
    pub(super) stage: Stage,
    /// The age at which the stage began; pauses move it.
    pub(super) since: Duration,
    /// Percent of the traffic on the new version, by the table.
    pub(super) share: u8,
    /// A flip of it has been in force.
    pub(super) active: bool,
    /// It goes back to the old version.
    pub(super) back: bool,
    /// The way back is a new deployment.
    pub(super) cold: bool,
    /// Another change has moved the pin.
    pub(super) overtaken: bool,
    /// Canary steps done.
    pub(super) canary: usize,
    /// The revision of its last flip.
    pub(super) flipped: Revision,
    pub(super) words: Option<String>,
}

impl Lane {
    /// Where the traffic is to go.
    pub(super) fn target(&self) -> &Side {
        match &self.old {
            Some(old) if self.back => old,
            _ => &self.new,
        }
    }

    /// What the traffic leaves.
    pub(super) fn off(&self) -> Option<&Side> {
        if self.back { Some(&self.new) } else { self.old.as_ref() }
    }

    /// Whether it may still end in `failed`: nothing has flipped, or what it goes back to was gone. The version in force stays either way.
    pub(super) const fn can_fail(&self) -> bool {
        !self.active || self.cold
    }

    /// The pin as the table has it after the last step.
    pub(super) fn expected(&self) -> PinView {
        let (old, new) = (self.old.as_ref().map(|s| s.artifact.version.clone()), self.new.artifact.version.clone());
        match self.share {
            0 => PinView { version: old, split: None },
            100.. => PinView { version: Some(new), split: None },
            share => PinView { version: old, split: Some((new, share)) },
        }
    }

    pub(super) fn enter(&mut self, stage: Stage, age: Duration) {
        self.stage = stage;
        self.since = age;
    }

    /// Sides that this roll-out wants held, for as long as it runs.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &Side> {
        let (target, off) = match self.stage {
            Stage::Aborted => (false, false),
            // What is in force stays.
            Stage::Failed => (false, self.active),
            Stage::Done if self.overtaken => (false, false),
            Stage::Collecting | Stage::Done => (true, false),
            _ => (true, self.active),
        };
        self.off().filter(|_| off).into_iter().chain(Some(self.target()).filter(|_| target))
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.old.iter().chain([&self.new])
    }

    pub(super) fn sides_mut(&mut self) -> impl Iterator<Item = &mut Side> {
        self.old.iter_mut().chain([&mut self.new])
    }
}

/// How far a flip is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum FlipState {
    /// The table is read. Saving this voids every earlier activation of the step, so what is read then is the truth.
    Reading,
    /// The gateways prepare.
    Preparing,
    /// The step may be in the table.
    Activating,
}

/// The one flip in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flip {
    pub(super) step: u32,
    pub(super) state: FlipState,
    pub(super) base: Revision,
    /// The pins, and their share afterwards.
    pub(super) pins: Vec<(usize, u8)>,
    pub(super) since: Duration,
}

/// What is saved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) id: RolloutId,
    /// Of the record in the store; 0: there is none yet.
    pub(super) version: u64,
    pub(super) term: u64,
    pub(super) age: Duration,
    pub(super) options: Options,
    pub(super) lanes: Vec<Lane>,
    pub(super) flip: Option<Flip>,
    pub(super) next_step: u32,
    pub(super) paused: Option<Duration>,
    /// An abort or a revert that waits for an activation to be resolved.
    pub(super) pending: Option<Command>,
}

/// A version on a replica, as this process has heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Holding {
    pub(super) loaded: bool,
    pub(super) proven: bool,
    pub(super) tries: u32,
    /// Not to be asked again before.
    pub(super) retry_at: Duration,
    /// The last words of failure.
    pub(super) words: Option<String>,
    /// Trying again does not help.
    pub(super) fatal: bool,
}

/// Something that was asked, so that it is not asked again at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ask {
    Observe,
    Warm(ReplicaName, Artifact),
    Verify(ReplicaName, Artifact),
    Release(ReplicaName, Artifact),
    Shadow(usize, u16),
    Read(u32),
    Prepare(GatewayName, super::event::Proposal),
    Activate(u32, u64),
    Tell(GatewayName, Revision),
    Collect(Artifact),
}

/// What this process sees and has asked. Lost with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    /// None until all are known.
    pub(super) gateways: Option<BTreeMap<GatewayName, GatewayView>>,
    /// Leases granted, as far as all gateways that have one are known.
    pub(super) roster: u64,
    /// Leases granted when the table was read.
    pub(super) read_roster: u64,
    pub(super) replicas: BTreeMap<(ReplicaName, Artifact), Holding>,
    pub(super) claims: Option<Claims>,
    pub(super) shadow: BTreeMap<usize, (u64, u64)>,
    /// What was judged of a pin's step last: which step, and why the next one may not come yet. Not saved: who goes on judges anew.
    pub(super) judged: BTreeMap<usize, (usize, Option<String>)>,
    pub(super) asked: BTreeMap<Ask, Duration>,
    pub(super) next_read: u64,
    /// The first read of the table that counts.
    pub(super) read_from: u64,
    /// No flip begins before.
    pub(super) flip_after: Duration,
    /// Pins that have raised the alarm of a deadline, with the begin of the stage.
    pub(super) alarmed: BTreeMap<usize, Duration>,
    /// Who asked for the pending command.
    pub(super) asker: Option<u64>,
}

impl Seen {
    pub(super) fn holding(&self, replica: &ReplicaName, artifact: &Artifact) -> Option<&Holding> {
        self.replicas.get(&(replica.clone(), artifact.clone()))
    }

    pub(super) fn proven(&self, replica: &ReplicaName, artifact: &Artifact) -> bool {
        self.holding(replica, artifact).is_some_and(|h| h.proven)
    }

    /// Whether every replica that the key hashes to holds the version, proven (PIN-3).
    pub(super) fn all_proven(&self, side: &Side) -> bool {
        side.targets().next().is_some() && side.targets().all(|r| self.proven(r, &side.artifact))
    }

    /// The gateways that hold a lease; none if they are not known yet.
    pub(super) fn live(&self) -> impl Iterator<Item = &GatewayView> {
        self.gateways.iter().flat_map(BTreeMap::values).filter(|g| g.leased)
    }

    /// Whether there are live gateways, and all of them pass. Nothing is concluded from an empty fleet.
    pub(super) fn all_live(&self, pass: impl Fn(&GatewayView) -> bool) -> bool {
        self.live().next().is_some() && self.live().all(pass)
    }

    /// All live gateways answer under the revision or a later one.
    pub(super) fn in_force(&self, revision: Revision) -> bool {
        self.all_live(|g| g.in_force >= revision)
    }

    /// No request is in flight that was resolved under an earlier revision.
    pub(super) fn drained(&self, revision: Revision) -> bool {
        self.all_live(|g| g.in_force >= revision && g.oldest >= revision)
    }
}

/// Cut to what is kept of somebody's words.
pub(super) fn cut(mut words: String) -> String {
    let mut end = super::event::MAX_WORDS.min(words.len());
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    words.truncate(end);
    words
}

/// The versions of a record, as names in views.
pub(super) fn same(view: Option<&PinView>, expected: &PinView) -> bool {
    view == Some(expected)
}

/// The version names of a side, for messages.
pub(super) fn at(view: Option<&PinView>) -> String {
    let version = |v: &Option<Version>| v.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    view.map_or_else(|| "nothing".to_owned(), |v| version(&v.version))
}
