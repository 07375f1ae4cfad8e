//! The data plane: one file per stage of a request, and the drivers of the pure state.
//!
//! A request moves one way: accept, identify, resolve, dispatch, finish. The first three are synchronous functions over one snapshot; after
//! them a request keeps only its route. Nothing that comes later can resolve again.

mod admin;
mod admin_port;
mod admin_query;
mod answer;
mod asker;
mod body;
mod cause;
mod connection;
mod exchange;
mod explain;
mod exposed;
mod fleet;
mod golden;
mod headers;
mod identity;
mod lease;
mod limits;
mod local;
mod measures;
mod parts;
mod pause;
mod probes;
mod random;
mod receipts;
mod replicas;
mod residency;
mod results;
mod retry;
mod route_state;
mod server;
mod settings;
mod shadow;
mod stage;
mod standing;
mod sticky;
mod store_access;
mod stream;
mod submissions;
mod table;
mod tokens;
mod trail;
mod until;
mod upstream_body;
mod worker;

pub use admin::{Access, Also, Answer, is_gateways, not_allowed, problem};
pub use admin_port::serve_admin;
pub use identity::check_key_file;
pub use limits::Measured;
pub use local::Local;
pub use probes::StoreProbe;
pub use receipts::{Disk, DiskOptions};
pub use residency::{Afar, Call, Company, Driver, Others, Parting};
pub use results::ArmResults;
pub use server::{Gateway, Options, ServeError, Stopped, serve, worker_count};
pub use shadow::{Difference, Kind, Magnitude, Noted, ShadowReport};
pub use standing::Standing;
pub use table::{ConfigStatus, Failed, PendingPin, StartError, Tables};
