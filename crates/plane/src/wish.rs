//! What one gateway would have another load.

use holdfast_decide::rollout::Artifact;

/// A version, and the model servers of which one is to load it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wish {
    /// What.
    pub artifact: Artifact,
    /// `HOST:PORT` of each, as gateways call a server among themselves.
    pub servers: Vec<Box<str>>,
}
