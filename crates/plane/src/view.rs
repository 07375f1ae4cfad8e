//! The table in force, what gateways are asked to do beside serving it, and what they say of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_decide::rollout::{Artifact, Proposal, Report, RolloutId};
use holdfast_types::{GatewayName, ModelName, PoolName, ReplicaName, Revision, TenantId, Version};

use crate::Entries;

/// The table in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The revision that made it. 0: there is none yet.
    pub revision: Revision,
    /// The digest of its content, as the store has it: 64 hexadecimal digits.
    pub digest: Arc<str>,
    /// Everything that routes, with the pins in force.
    pub entries: Entries,
}

/// A version that a replica should hold beyond what the table's pins say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Want {
    /// The replica, of the artifact's pool.
    pub replica: ReplicaName,
    /// What.
    pub artifact: Artifact,
    /// Its place among what pins are on their way to, one order over all roll-outs: what has a lower one takes the room of what has a higher one, and
    /// never the other way round. 0: it gives its room to none of them.
    pub place: u32,
}

/// A pin's part of a flip that is prepared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flip {
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// Where it goes.
    pub new: Version,
    /// Percent of the traffic that goes there.
    pub share: u8,
}

/// A flip that may come into force next. A gateway says it is prepared once it holds both routes: of each pin, every replica of the new key's
/// subset that is in service shows the new version as proven.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepare {
    /// Of which roll-out.
    pub rollout: RolloutId,
    /// Which flip of it.
    pub proposal: Proposal,
    /// The pins.
    pub flips: Arc<[Flip]>,
}

/// Live traffic of a pin that is copied to another version, its answers compared and thrown away.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shadowing {
    /// Of which roll-out.
    pub rollout: RolloutId,
    /// Which of its pins.
    pub pin: usize,
    /// Whose requests.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// Where the copies go.
    pub version: Version,
    /// Requests of a thousand.
    pub share: u16,
}

/// A step of a canary whose two versions are measured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Measuring {
    /// Of which roll-out.
    pub rollout: RolloutId,
    /// Which of its pins.
    pub pin: usize,
    /// Which step of it is in force: each is measured by itself.
    pub step: usize,
    /// Whose requests.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// The version that the pin is at.
    pub old: Version,
    /// The version that has a share.
    pub new: Version,
}

/// A pin on its way, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// Where it goes.
    pub to: Version,
    /// What it waits for, or why it does not go, if that is known and is not that it is being warmed.
    pub words: Option<String>,
}

/// What is asked of a gateway beside serving the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Orders {
    /// What should be warm in addition, each once.
    pub wants: Arc<[Want]>,
    /// Flips to prepare.
    pub prepare: Arc<[Prepare]>,
    /// Traffic to copy.
    pub shadow: Arc<[Shadowing]>,
    /// Canaries to measure.
    pub measure: Arc<[Measuring]>,
    /// The versions that the status should tell of.
    pub observe: Arc<[Artifact]>,
    /// The live gateways in order of their names: the loads of a replica are started by one of them. Empty: this gateway is alone.
    pub live: Arc<[GatewayName]>,
    /// Pins that are desired and not in force yet.
    pub pending: Arc<[Pending]>,
}

/// The keys that sign the gateways' own tokens, and which tokens were revoked: opaque here.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TokenState {
    /// The one with the larger stamp is the later one. 0: there is none.
    pub stamp: u64,
    /// What it is, as it is stored. Secret.
    pub content: Arc<[u8]>,
}

impl std::fmt::Debug for TokenState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenState").field("stamp", &self.stamp).finish_non_exhaustive()
    }
}

/// All that a gateway is told.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What it serves.
    pub table: Arc<Table>,
    /// What else it does.
    pub orders: Arc<Orders>,
    /// By which keys it signs tokens of its own, and which of them it takes. An older one than what it has is nothing to it.
    pub tokens: Arc<TokenState>,
}

/// A table that a gateway cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its revision.
    pub revision: Revision,
    /// Why, in the gateway's words.
    pub words: String,
}

/// One replica, as a gateway sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaStatus {
    /// Whose.
    pub pool: PoolName,
    /// Its name.
    pub replica: ReplicaName,
    /// Whether it is in service. One that is not holds nothing that counts.
    pub in_service: bool,
    /// Requests in flight from this gateway.
    pub in_flight: u32,
    /// Of the observed versions, those about which there is something to say. One that is not here is absent.
    pub versions: Vec<Observed>,
}

/// A version on a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What.
    pub artifact: Artifact,
    /// How it stands. Never `Absent` and never `Lost`.
    pub report: Report,
    /// Loads that failed in a row: each more is another try.
    pub failures: u32,
}

/// Comparisons of copied traffic since the copying began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadowed {
    /// Of which roll-out.
    pub rollout: RolloutId,
    /// Which of its pins.
    pub pin: usize,
    /// Copies that were answered so that both answers could be compared, or that should have been answered.
    pub compared: u64,
    /// Those of them that differed: by what they say, by an error, or by no whole answer.
    pub differed: u64,
}

/// Answers of one version, as a gateway measured them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Inferences that have ended, but for those that their client gave up.
    pub requests: u64,
    /// Those that failed on the side of the gateway or the model: 5xx.
    pub errors: u64,
    /// How long those took that did not fail, in slots of `holdfast_assign::window::Sketch` over microseconds.
    pub latency: BTreeMap<u16, u64>,
    /// The sum of their times, in microseconds.
    pub micros: u64,
}

impl Figures {
    /// Takes what another gateway has measured.
    pub fn join(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.errors = self.errors.saturating_add(other.errors);
        self.micros = self.micros.saturating_add(other.micros);
        for (slot, count) in &other.latency {
            let kept = self.latency.entry(*slot).or_default();
            *kept = kept.saturating_add(*count);
        }
    }
}

/// What a gateway has measured of a step of a canary since it was told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Of which roll-out.
    pub rollout: RolloutId,
    /// Which of its pins.
    pub pin: usize,
    /// Which step.
    pub step: usize,
    /// The version that has a share.
    pub canary: Figures,
    /// The version that the pin is at.
    pub baseline: Figures,
}

/// What a gateway says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Its name.
    pub gateway: GatewayName,
    /// The revision that it answers new requests under; 0: none yet.
    pub in_force: Revision,
    /// The oldest revision that a request in flight was resolved under; `in_force` if there is none.
    pub oldest: Revision,
    /// The table it was told last, if it cannot serve it.
    pub refused: Option<Refused>,
    /// Flips that it is prepared for.
    pub prepared: Vec<(RolloutId, Proposal)>,
    /// Flips that it cannot prepare, and why.
    pub unprepared: Vec<(RolloutId, Proposal, String)>,
    /// Every replica in the table it serves.
    pub replicas: Vec<ReplicaStatus>,
    /// Copied traffic.
    pub shadowed: Vec<Shadowed>,
    /// Canaries.
    pub measured: Vec<Measured>,
    /// Names under which replicas may still hold versions that no table names any more: pool, name upstream, and what it was.
    pub retired: BTreeMap<(PoolName, String), (ModelName, Version)>,
    /// It has stopped in order: it answers nobody any more, and says no more.
    pub left: bool,
}

impl Status {
    /// A gateway of which nothing is known.
    #[must_use]
    pub const fn of(gateway: GatewayName) -> Self {
        Self {
            gateway,
            in_force: Revision(0),
            oldest: Revision(0),
            refused: None,
            prepared: Vec::new(),
            unprepared: Vec::new(),
            replicas: Vec::new(),
            shadowed: Vec::new(),
            measured: Vec::new(),
            retired: BTreeMap::new(),
            left: false,
        }
    }
}
