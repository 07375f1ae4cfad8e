//! Support for the end-to-end tests: real processes on free ports, exact bytes on a socket, upstreams that fail on demand, steady load.
//!
//! A helper that cannot do its work panics with a sentence that says what was missing: in a test that is the answer one wants. A child
//! process belongs to the value that started it and ends with it, and what it printed is shown when the test fails. Nothing here waits
//! for a guessed time: [`eventually`] polls for a condition until a deadline.
//!
//! This crate is a dev-dependency only. It knows the product by its command line, its ports and its headers, never by its code.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "test support: failing loudly, with the child's output, is its purpose"
)]

pub mod certificates;
pub mod cut;
pub mod deaf;
pub mod holdfast;
pub mod http;
pub mod jwks;
pub mod load;
pub mod metrics;
pub mod mlserver;
pub mod model_server;
pub mod postgres;
pub mod proc;
pub mod random;
pub mod raw;
pub mod redis;
pub mod script;
pub mod stub;
pub mod temp;
pub mod v2_stub;
pub mod wait;

pub use certificates::{Authority, Signed};
pub use cut::Cut;
pub use deaf::Deaf;
pub use holdfast::{Holdfast, serve_in};
pub use jwks::{Jwks, Signer};
pub use metrics::Metrics;
pub use mlserver::MlServer;
pub use model_server::ModelServer;
pub use postgres::PostgresServer;
pub use proc::{Proc, free_port};
pub use random::Random;
pub use redis::{RedisCluster, RedisServer};
pub use script::{Script, Step};
pub use stub::Stub;
pub use temp::TempDir;
pub use wait::eventually;
