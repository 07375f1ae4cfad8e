//! The routing table as one immutable snapshot, and the decision over it.
