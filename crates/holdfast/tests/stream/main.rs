//! WebSockets end to end: messages, limits and the ladder, hostile clients, and every way in which a socket ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod echo;
mod ends;
mod h2;
mod handshakes;
mod hostile;
mod ladder;
mod native;
mod rig;
mod through;
