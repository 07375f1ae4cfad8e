//! The data plane: one file per stage of a request, and the drivers of the pure state.
//!
//! A request moves one way: accept, identify, resolve, dispatch, finish. The first three are synchronous functions over one snapshot; after
//! them a request keeps only its route. Nothing that comes later can resolve again.

mod admin;
mod answer;
mod body;
mod connection;
mod exchange;
mod explain;
mod fit;
mod fleet;
mod golden;
mod headers;
mod lease;
mod local;
mod probes;
mod random;
mod residency;
mod retry;
mod route_state;
mod server;
mod settings;
mod stage;
mod table;
mod upstream_body;
mod worker;

pub use fit::{FitError, check_fit};
pub use local::Local;
pub use server::{Gateway, Options, ServeError, Stopped, serve, worker_count};
pub use table::{Failed, PendingPin, PersistError, Reload, StartError, Status, Watch};
