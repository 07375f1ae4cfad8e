//! Who owns a key, who holds a version, and which replica loads or serves it.
//!
//! | module | question |
//! |---|---|
//! | [`hash`] | which number stands for this key, on every machine and in every release |
//! | [`members`] | who takes part, in an order that depends on names alone |
//! | [`ring`], [`rendezvous`], [`slots`], behind [`owners`] | who owns this key, in order of preference |
//! | [`subset`] | which k replicas may serve this key |
//! | [`handover`] | who goes on serving a key whose replicas have changed |
//! | [`choose`] | which of them serves this request |
//! | [`health`] | whether a replica is usable, cooling off, ejected, out of service |
//! | [`residency`] | who holds which version, and what is loaded and evicted |
//! | [`seats`] | which gateway of a fleet may start loads on which server, and how many |
//! | [`fit`] | do the pins fit into the memory |
//! | [`proposal`] | how many replicas each key should have |
//! | [`layouts`], [`cold`] | how likely a layout overflows, and how often something is loaded then |
//! | [`movement`], [`origin`] | what a change of members moves, and what that costs an origin |
//! | [`invariants`] | the promises of residency as predicates |
//!
//! Everything is pure: time and randomness are arguments, the arithmetic is in integers, and nothing here does IO.

pub mod choose;
pub mod cold;
pub mod fit;
pub mod handover;
pub mod hash;
pub mod health;
pub mod invariants;
pub mod layouts;
pub mod members;
pub mod movement;
pub mod origin;
pub mod owners;
pub mod proposal;
pub mod rendezvous;
pub mod residency;
pub mod ring;
pub mod seats;
pub mod slots;
pub mod subset;
