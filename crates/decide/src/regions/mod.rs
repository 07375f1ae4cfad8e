//! Which regions clients are sent to: what becomes of a region that fails its checks, is drained, and comes back.
//!
//! - A region is out after so many failed checks in a row, and a check is good only if the balancer and the application both answer. One that goes in and
//!   out is kept out for twice as long each time ([`Health`]): checks that flap move nobody to and fro.
//! - A planned drain first has the others' capacity raised, and only then lets go, share by share. A region that fails is let go at once: so the others
//!   have to have the room beforehand, which [`after_loss`] computes.
//! - What comes back is reconciled first (what was written here and there meanwhile), and then gets a small share that grows in steps: never a jump onto
//!   cold caches.
//! - Somebody always has clients. Where no other region is well, the one that fails is kept, for a check can be wrong about everything at once; and a
//!   drain that would leave nobody is called off. Only then does a region get more than its share: when nobody else has any.
//!
//! A client goes to the nearest region whose share is above the client's place ([`Regions::send`]). So while a share grows, a client moves once, and
//! towards that region. [`Machine`](Regions) keeps no timer: what depends on time is a function of `now`, and [`Regions::next_change`] says when to look.

mod machine;
mod room;

use std::fmt;
use std::time::Duration;

use holdfast_placement::health::HealthConfig;
use holdfast_types::Mono;

pub use machine::Regions;
pub use room::{Demand, after_loss, crowded};

/// A whole share.
pub const FULL: u16 = 1_000;

/// Bounds and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How many failed checks in a row put a region out, how many good ones bring it back, and for how long it is out at least. Its slow start is not
    /// used: [`Rules::return_over`] is.
    pub health: HealthConfig,
    /// From the first step back of a planned drain to the last client.
    pub drain_over: Duration,
    /// From the first share of a region that is back to the whole.
    pub return_over: Duration,
    /// In how many steps.
    pub return_steps: u16,
    /// How long an answer to a client (a DNS record) may be kept.
    pub ttl: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            health: HealthConfig {
                fall: 3,
                rise: 5,
                eject_base: Duration::from_secs(30),
                eject_max: Duration::from_secs(1_800),
                ..HealthConfig::default()
            },
            drain_over: Duration::from_secs(300),
            return_over: Duration::from_secs(600),
            return_steps: 20,
            ttl: Duration::from_secs(60),
        }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A region was checked.
    Checked {
        /// Which.
        region: usize,
        /// Its balancer answered.
        balancer: bool,
        /// The application behind it did, too.
        application: bool,
    },
    /// Somebody wants it drained.
    Drain {
        /// Which.
        region: usize,
    },
    /// The other regions have the capacity that a drain asked for.
    Raised {
        /// The region that is drained.
        region: usize,
    },
    /// Somebody wants a drained region back.
    Return {
        /// Which.
        region: usize,
    },
    /// What was written here and there while it was out is the same in both, or nobody is there to bring it together with.
    Reconciled {
        /// Which.
        region: usize,
    },
    /// Time has passed.
    Tick,
}

/// Why a region has no clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It failed its checks.
    Checks,
    /// It was drained.
    Drained,
}

/// What is to be done, or known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Raise the capacity of all others by what this region has, and say so ([`Event::Raised`]).
    Raise {
        /// The region that is to be drained.
        region: usize,
    },
    /// It has no clients any more: answer other regions, and point its regional stores at them.
    Out {
        /// Which.
        region: usize,
        /// Why.
        why: Why,
    },
    /// It is well again: bring both sides' writes together, warm critical keys, and say so ([`Event::Reconciled`]).
    Reconcile {
        /// Which.
        region: usize,
    },
    /// It has the whole of its share again.
    Back {
        /// Which.
        region: usize,
    },
    /// It fails its checks and is kept, for no other is well. Somebody has to look.
    Alone {
        /// Which.
        region: usize,
    },
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such region.
    Unknown,
    /// No other region that is well has the whole of its share.
    Last,
    /// It has clients already, or is on its way to them.
    NotDrained,
    /// It is drained, or on the way there; or it is out by its checks.
    NotServing,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such region",
            Self::Last => "no other region is well and has the whole of its share",
            Self::NotDrained => "the region is not drained",
            Self::NotServing => "the region has not the whole of its share",
        })
    }
}

impl std::error::Error for Refused {}

/// Where a region stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has the whole of its share.
    Serving,
    /// It is to be drained, once the others have the room.
    Raising,
    /// Its share falls.
    Draining {
        /// Since when.
        since: Mono,
    },
    /// It has no clients.
    Out {
        /// Why.
        why: Why,
    },
    /// It is well, and its writes and those of others are being brought together.
    Reconciling,
    /// Its share grows.
    Returning {
        /// Since when.
        since: Mono,
    },
}
