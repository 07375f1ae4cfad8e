//! The roll-out machine: phase by phase, and in random histories with two control planes.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, reason = "a test fails loudly")]

mod desk;
mod doubt;
mod edges;
mod histories;
mod letters;
mod model;
mod phases;
mod sim;
mod world;
