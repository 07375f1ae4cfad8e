//! HTTP/1.1 as clients and replicas see it: framing, fields, bodies, limits, connections.
//!
//! The replica is a stub that records every request that it receives, so that a test can say what did not arrive.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

#[path = "http/bodies.rs"]
mod bodies;
#[path = "http/connections.rs"]
mod connections;
#[path = "http/corpus.rs"]
mod corpus;
#[path = "http/fields.rs"]
mod fields;
#[path = "http/fixture.rs"]
mod fixture;
#[path = "http/framing.rs"]
mod framing;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/refusals.rs"]
mod refusals;
#[path = "http/upstream.rs"]
mod upstream;
