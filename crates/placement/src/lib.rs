//! Who owns a key, who holds a version, and which replica loads or serves it.
//!
//! | module | question |
//! |---|---|
//! | [`hash`] | which number stands for this key, on every machine and in every release |
//! | [`members`] | who takes part, in an order that depends on names alone |
//! | [`ring`], [`rendezvous`], [`slots`], behind [`owners`] | who owns this key, in order of preference |
//! | [`subset`] | which k replicas may serve this key |
//! | [`choose`] | which of them serves this request |
//! | [`health`] | whether a replica is usable, cooling off, ejected, out of service |
//! | [`residency`] | who holds which version, and what is loaded and evicted |
//! | [`fit`] | do the pins fit into the memory |
//! | [`invariants`] | the promises of residency as predicates |
//!
//! Everything is pure: time and randomness are arguments, the arithmetic is in integers, and nothing here does IO.

pub mod choose;
pub mod fit;
pub mod hash;
pub mod health;
pub mod invariants;
pub mod members;
pub mod owners;
pub mod rendezvous;
pub mod residency;
pub mod ring;
pub mod slots;
pub mod subset;
