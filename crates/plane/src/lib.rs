//! What the control plane and the gateways say to one another.
//!
//! Both sides say how things are and never what happened: the control plane a [`View`] (the table in force, and its [`Orders`]), a gateway its
//! [`Status`]. Each replaces the one before. A message that is lost or overtaken costs nothing, and a side that is slow sees the latest. In one
//! process the two are joined by [`pair`]; nothing here knows how far apart they are.
//!
//! A table's content is a persistent map: two revisions share what they have in common, and [`Entries::changes`] between them costs what changed.

mod entries;
mod view;
mod wish;

use std::sync::Arc;

use tokio::sync::watch;

use holdfast_types::GatewayName;

pub use entries::{Edit, Entries, Name};
pub use view::*;
pub use wish::Wish;

/// The control plane's end of a link to one gateway.
#[derive(Debug)]
pub struct GatewayEnd {
    /// Whose link it is.
    pub gateway: GatewayName,
    /// What the gateway is told.
    pub view: watch::Sender<View>,
    /// What the gateway says. Closed: the gateway is gone.
    pub status: watch::Receiver<Arc<Status>>,
}

/// A gateway's end of its link to the control plane.
#[derive(Debug)]
pub struct ControlEnd {
    /// What the control plane tells. Closed: the control plane is gone; what it told last stays in force.
    pub view: watch::Receiver<View>,
    /// What this gateway says.
    pub status: watch::Sender<Arc<Status>>,
}

/// Both ends of a link, with what is told and said first.
#[must_use]
pub fn pair(gateway: GatewayName, view: View) -> (GatewayEnd, ControlEnd) {
    let (view_tx, view_rx) = watch::channel(view);
    let (status_tx, status_rx) = watch::channel(Arc::new(Status::of(gateway.clone())));
    (GatewayEnd { gateway, view: view_tx, status: status_rx }, ControlEnd { view: view_rx, status: status_tx })
}
