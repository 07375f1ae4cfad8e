//! N replicas, R of which answer a read and W of which take a write.

use std::fmt;

/// The most replicas of one key.
pub const MAX_REPLICAS: u32 = 1_000;

/// A shape with `1 <= r, w <= n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quorum {
    n: u32,
    r: u32,
    w: u32,
}

/// Why a shape is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// N is zero or more than [`MAX_REPLICAS`].
    Replicas(u32),
    /// R is not within 1 and N.
    Reads {
        /// What was asked for.
        r: u32,
        /// The replicas that there are.
        n: u32,
    },
    /// W is not within 1 and N.
    Writes {
        /// What was asked for.
        w: u32,
        /// The replicas that there are.
        n: u32,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicas(n) => write!(f, "{n} replicas: there are 1 to {MAX_REPLICAS}"),
            Self::Reads { r, n } => write!(f, "a read of {r} of {n} replicas: it asks 1 to {n}"),
            Self::Writes { w, n } => write!(f, "a write to {w} of {n} replicas: it needs 1 to {n}"),
        }
    }
}

impl std::error::Error for ShapeError {}

/// What a group of replicas that sees only itself may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Enough of them for a read.
    pub reads: bool,
    /// Enough of them for a write.
    pub writes: bool,
}

impl Quorum {
    /// A shape.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn new(n: u32, r: u32, w: u32) -> Result<Self, ShapeError> {
        if n == 0 || n > MAX_REPLICAS {
            return Err(ShapeError::Replicas(n));
        }
        if r == 0 || r > n {
            return Err(ShapeError::Reads { r, n });
        }
        if w == 0 || w > n {
            return Err(ShapeError::Writes { w, n });
        }
        Ok(Self { n, r, w })
    }

    /// Replicas.
    #[must_use]
    pub fn n(self) -> u32 {
        self.n
    }

    /// Replicas that answer a read.
    #[must_use]
    pub fn r(self) -> u32 {
        self.r
    }

    /// Replicas that take a write.
    #[must_use]
    pub fn w(self) -> u32 {
        self.w
    }

    /// In how many replicas at least a read meets the last acknowledged write: R + W - N, and not less than none.
    #[must_use]
    pub fn overlap(self) -> u32 {
        (self.r + self.w).saturating_sub(self.n)
    }

    /// Every read meets the last acknowledged write.
    #[must_use]
    pub fn reads_meet_writes(self) -> bool {
        self.overlap() > 0
    }

    /// Replicas that may be lost while writes go on.
    #[must_use]
    pub fn losses_for_writes(self) -> u32 {
        self.n - self.w
    }

    /// Replicas that may be lost while reads go on.
    #[must_use]
    pub fn losses_for_reads(self) -> u32 {
        self.n - self.r
    }

    /// Two sides of a cut could both take writes.
    #[must_use]
    pub fn diverges_when_cut(self) -> bool {
        self.w * 2 <= self.n
    }

    /// What `replicas` of them may do that see one another and nobody else.
    #[must_use]
    pub fn side(self, replicas: u32) -> Side {
        Side { reads: replicas >= self.r, writes: replicas >= self.w }
    }
}
