//! The driver of roll-outs over a real store, a real desk, and scripted gateways that say what is so.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly, its helpers too")]

mod again;
mod canary;
mod doubt;
mod flips;
mod gateway;
mod kills;
mod leaders;
mod many;
mod rooms;
mod seeds;
mod support;
#[path = "../common/unsteady.rs"]
mod unsteady;
mod withdrawn;
