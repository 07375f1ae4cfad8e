//! What a process can be, and how its parts are put together.

mod admin;
mod board;
mod both;
mod control;
mod differs;
mod entrance;
mod follow;
mod leading;
mod port;
mod proofs;
mod reload;
mod renewal;
mod seat;

use std::path::Path;
use std::sync::Arc;

use holdfast_config::Role;
use holdfast_control::api::Door;
use holdfast_control::desk::Desk;
use holdfast_control::keeper::Keeper;
use holdfast_gateway::{Also, Company, Gateway, Standing, StoreProbe};
use holdfast_net::Tasks;
use holdfast_plane::ControlEnd;
use holdfast_telemetry::Registry;

use crate::command::Failure;
use crate::config_file::Read;

pub use admin::{access, resources};
pub use board::Board;
pub use both::{Both, store, store_file, stored};
pub use control::Control;
pub use entrance::{ADMIN, DATA, data_entrance, entrance, renew};
use follow::Elsewhere;
pub use follow::Leaving;
pub use port::listen;
pub use proofs::{check, postgres};
pub use reload::Reload;

/// Where the control plane of a gateway is.
pub enum Planes {
    /// In this process.
    Here(Both),
    /// In others.
    Elsewhere(Box<Elsewhere>),
}

/// Gives the gateway's end of the link to its control plane, wherever that is.
///
/// # Errors
/// The store, or the saved table, cannot be opened; or what the file says cannot be used.
pub async fn open(read: Read) -> Result<(Planes, ControlEnd), Failure> {
    if read.split.loaded.config.role() == Role::Gateway {
        let (elsewhere, control) = follow::open(&read.split.loaded.config).await?;
        return Ok((Planes::Elsewhere(Box::new(elsewhere)), control));
    }
    let (both, control) = Box::pin(both::open(read)).await?;
    Ok((Planes::Here(both), control))
}

impl Planes {
    /// Whether the table is known to be the control plane's.
    pub fn standing(&self) -> Arc<Standing> {
        match self {
            Self::Here(_) => Standing::local(),
            Self::Elsewhere(elsewhere) => elsewhere.standing.clone(),
        }
    }

    /// Shows what the control plane does among the metrics.
    pub fn register(&self, registry: &Registry) {
        if let Self::Here(both) = self {
            both.register(registry);
        }
    }

    /// What the control plane answers on the admin port.
    pub fn also(&self, door: &Arc<Door>, state: &Path) -> Option<Also> {
        match self {
            Self::Here(both) => Some(resources(door, both, None, state)),
            Self::Elsewhere(_) => None,
        }
    }

    /// Tells how the store does.
    pub fn probe(&self) -> Option<StoreProbe> {
        match self {
            Self::Here(both) => Some(both.probe()),
            Self::Elsewhere(_) => None,
        }
    }

    /// Keeps the history bounded, where that is done here.
    pub fn keeper(&self) -> Option<Arc<Keeper>> {
        match self {
            Self::Here(both) => Some(both.keeper.clone()),
            Self::Elsewhere(_) => None,
        }
    }

    /// The desk, if it is here.
    pub fn desk(&self) -> Option<Arc<Desk>> {
        match self {
            Self::Here(both) => Some(both.desk.clone()),
            Self::Elsewhere(_) => None,
        }
    }

    /// How other gateways are asked, where there are any.
    pub fn company(&self) -> Option<Arc<Company>> {
        match self {
            Self::Here(_) => None,
            Self::Elsewhere(elsewhere) => Some(elsewhere.seat.company.clone()),
        }
    }

    /// Runs what has to run beside the gateway, until the process ends. Gives what is to be done at its end.
    pub fn run(self, gateway: &Gateway, tasks: &Tasks) -> Option<Leaving> {
        match self {
            Self::Here(both) => {
                both.run(tasks);
                None
            }
            Self::Elsewhere(elsewhere) => Some(elsewhere.run(gateway, tasks)),
        }
    }
}
