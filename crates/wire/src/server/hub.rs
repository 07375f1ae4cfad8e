//! Which gateways are here, and which tables they may have.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tracing::{error, info};

use holdfast_plane::Table;
use holdfast_types::GatewayName;

use crate::held::Stamp;

/// How long a newer link waits for the older one of its name to go.
const YIELD: Duration = Duration::from_secs(1);

/// What all links share.
pub(super) struct Hub {
    max_gateways: usize,
    seats: Mutex<Seats>,
    remembered: usize,
    tables: Mutex<VecDeque<(Stamp, Arc<Table>)>>,
    closing: watch::Sender<bool>,
}

#[derive(Default)]
struct Seats {
    taken: BTreeMap<GatewayName, Taken>,
    next: u64,
}

struct Taken {
    number: u64,
    peer: Option<SocketAddr>,
    leave: watch::Sender<bool>,
}

/// A gateway's place. Given back on drop.
pub(super) struct Seat {
    hub: Arc<Hub>,
    gateway: GatewayName,
    number: u64,
    leave: watch::Receiver<bool>,
    closing: watch::Receiver<bool>,
}

impl Hub {
    pub(super) fn new(max_gateways: usize, remembered: usize) -> Self {
        let (closing, _) = watch::channel(false);
        let (seats, tables) = (Mutex::default(), Mutex::default());
        Self { max_gateways, seats, remembered, tables, closing }
    }

    /// All links end.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Takes the place of this name. A link that has it leaves first.
    pub(super) async fn sit(self: &Arc<Self>, gateway: GatewayName, peer: Option<SocketAddr>) -> Result<Seat, Status> {
        let (leave, told) = watch::channel(false);
        let (number, before) = self.put(&gateway, Taken { number: 0, peer, leave })?;
        let seat = Seat { hub: self.clone(), gateway, number, leave: told, closing: self.closing.subscribe() };
        if let Some(before) = before {
            before.leave.send_replace(true);
            let gone = timeout(YIELD, before.leave.closed()).await.is_ok();
            tell_of(&seat.gateway, before.peer, peer, gone);
        }
        Ok(seat)
    }

    fn put(&self, gateway: &GatewayName, mut taken: Taken) -> Result<(u64, Option<Taken>), Status> {
        let mut seats = self.seats.lock();
        if seats.taken.len() >= self.max_gateways && !seats.taken.contains_key(gateway) {
            return Err(Status::resource_exhausted("there are as many gateways as this control plane takes"));
        }
        seats.next += 1;
        taken.number = seats.next;
        let number = taken.number;
        Ok((number, seats.taken.insert(gateway.clone(), taken)))
    }

    /// A table that a gateway may have from now on.
    pub(super) fn remember(&self, table: &Arc<Table>) {
        let Some(stamp) = Stamp::of(table) else { return };
        let mut tables = self.tables.lock();
        if tables.iter().any(|(known, _)| *known == stamp) {
            return;
        }
        tables.push_back((stamp, table.clone()));
        while tables.len() > self.remembered.max(1) {
            tables.pop_front();
        }
    }

    /// A table of the past, if it is remembered.
    pub(super) fn table(&self, stamp: Stamp) -> Option<Arc<Table>> {
        let tables = self.tables.lock();
        tables.iter().rev().find(|(known, _)| *known == stamp).map(|(_, table)| table.clone())
    }
}

/// A gateway that comes back replaces itself. Two that have one name would replace one another for ever: somebody has to know.
fn tell_of(gateway: &GatewayName, before: Option<SocketAddr>, now: Option<SocketAddr>, gone: bool) {
    let word = |peer: Option<SocketAddr>| peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    let (from, to) = (word(before), word(now));
    if before.map(|peer| peer.ip()) == now.map(|peer| peer.ip()) {
        info!(%gateway, before = from, now = to, gone, "a newer link of this gateway replaces the one before");
    } else {
        error!(%gateway, before = from, now = to, gone, "two addresses use the name of one gateway; the newer link replaces the other");
    }
}

impl Seat {
    /// Waits until the link has to end.
    pub(super) async fn left(&mut self) -> Status {
        tokio::select! {
            _ = self.leave.wait_for(|leave| *leave) => Status::already_exists("a newer link has this gateway's name"),
            _ = self.closing.wait_for(|closing| *closing) => Status::unavailable("the control plane stops"),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.hub.seats.lock();
        if seats.taken.get(&self.gateway).is_some_and(|taken| taken.number == self.number) {
            seats.taken.remove(&self.gateway);
        }
    }
}
