//! The control plane: the truth of the table, roll-outs, the admin API.

pub mod api;
pub mod backup;
pub mod desk;
mod guard;
pub mod keeper;
pub mod metrics;
pub mod pulse;
pub mod rollouts;
pub mod seats;
pub mod tokens;

pub use desk::fit::{FitError, PoolLayout, check_fit, layouts};
