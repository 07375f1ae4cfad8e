//! The headers that the gateway adds to an answer.

/// One header that the gateway adds to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stamp {
    /// `x-holdfast-model`
    Model,
    /// `x-holdfast-version`
    Version,
    /// `x-holdfast-revision`
    Revision,
    /// `x-holdfast-reason`
    Reason,
    /// `x-holdfast-replica`
    Replica,
    /// `x-holdfast-request-id`
    RequestId,
    /// `x-holdfast-experiment`
    Experiment,
    /// `x-holdfast-stale`
    Stale,
}

impl Stamp {
    /// All stamps, in the order of their discriminants.
    pub const ALL: [Self; 8] = [
        Self::Model,
        Self::Version,
        Self::Revision,
        Self::Reason,
        Self::Replica,
        Self::RequestId,
        Self::Experiment,
        Self::Stale,
    ];

    /// The stamp's name in the configuration; the header is `x-holdfast-` and this.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Version => "version",
            Self::Revision => "revision",
            Self::Reason => "reason",
            Self::Replica => "replica",
            Self::RequestId => "request-id",
            Self::Experiment => "experiment",
            Self::Stale => "stale",
        }
    }
}

/// The set of stamps that leave the data listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps(u8);

impl Stamps {
    /// No stamps.
    pub const NONE: Self = Self(0);
    /// Every stamp: the default of a loopback data listener.
    pub const ALL: Self = Self(0xff);

    /// The set with one more stamp.
    #[must_use]
    pub const fn with(self, stamp: Stamp) -> Self {
        Self(self.0 | 1 << stamp as u8)
    }

    /// The set with one stamp fewer.
    #[must_use]
    pub const fn without(self, stamp: Stamp) -> Self {
        Self(self.0 & !(1 << stamp as u8))
    }

    /// Whether the stamp leaves.
    #[must_use]
    pub const fn contains(self, stamp: Stamp) -> bool {
        self.0 & (1 << stamp as u8) != 0
    }
}
