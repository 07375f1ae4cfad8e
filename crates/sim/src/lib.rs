//! A simulator over the pure cores: a virtual clock, seeded chance, no IO.
//!
//! The same seed gives the same run, byte for byte, on every machine: all arithmetic of a run is in integers, and chance comes from the generator of [`chance`].

pub mod chance;
pub mod fleet;
pub mod lease;
pub mod queue;
mod report;
mod run;
pub mod scenario;

pub use report::{Row, rows};
