//! The promises, each with an id. A predicate that checks one names it by this id, in tests, in simulation and in production metrics.

use std::fmt;

/// One promise of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// The version that served is the version that was resolved.
    Pin1,
    /// One submission has one resolution, through every retry.
    Pin2,
    /// No table is flipped before its target subset reports the new version ready.
    Pin3,
    /// A request is answered under one revision; revisions never go backwards in a gateway.
    Route1,
    /// Cold loads in flight never pass their bounds, per replica and per fleet.
    Load1,
    /// Nothing in use is evicted.
    Load2,
    /// Every counter, permit, slot and in-flight count returns to its start value after any abort.
    Acct1,
}

impl Invariant {
    /// The id as it is written in documents, metrics and logs.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Pin1 => "PIN-1",
            Self::Pin2 => "PIN-2",
            Self::Pin3 => "PIN-3",
            Self::Route1 => "ROUTE-1",
            Self::Load1 => "LOAD-1",
            Self::Load2 => "LOAD-2",
            Self::Acct1 => "ACCT-1",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}
