//! A small real model server that speaks the Open Inference Protocol V2 over HTTP, for drills, the demo and tests.
//!
//! It does over HTTP what MLServer and Triton do: metadata, readiness, inference with JSON and binary tensors, and the repository API
//! that loads and unloads by model name. The models are real, if small: a linear text classifier per version, read from a file whose hash
//! the metadata reports, so a test can tell from an answer alone which version judged. Memory is declared and counted, loads take the time
//! that they are told to, and faults can be switched on while it runs.
//!
//! What it deliberately does not do: gRPC, TLS, compression, batching, shared memory, and any other kind of model. `/control` changes how
//! the server behaves and asks for no credentials: it is made for loopback.

pub mod answer;
pub mod body;
pub mod faults;
pub mod injector;
pub mod model;
pub mod options;
pub mod repository;
pub mod sample;
pub mod shelf;
pub mod span;
pub mod stats;
pub mod tensors;

mod connection;
mod control;
mod error;
mod infer;
mod loads;
mod metadata;
mod reply;
mod route;
mod server;

pub use error::Error;
pub use faults::Faults;
pub use model::{Model, Verdict};
pub use options::Options;
pub use repository::Layout;
pub use sample::{PROBE, write_sample_repository};
pub use server::{GRACE, MAX_BODY, MAX_CONNECTIONS, Running, run, start};
pub use span::Span;
pub use stats::Stats;
