//! Which gateway of a fleet may start loads on which model server, and how many (LOAD-1 over all gateways).
//!
//! A *seating* is a numbered list of gateways. Each server has one owner in it, and the fleet's bound is divided over its seats, so that within
//! one seating nobody has to be asked before a load. Therefore all that matters is that nobody loads under one seating while somebody else loads
//! under another. A gateway loads only while it holds a *lease* of the seating in force ([`Holder`]): of the control plane, or of a majority of
//! the seats while no control plane answers. The control plane ([`Registrar`]) puts the next one in force when nobody can hold a lease of the
//! one before any more: all of its seats have promised that, or those that have not can get no lease and the last one is over.
//!
//! What this rests on:
//!
//! * **Clocks** are monotonic and differ in rate by a tenth at most. A lease counts from when it was asked for; who waits for its end waits a
//!   quarter longer ([`Seating::over`]).
//! * **A promise outlives its process.** It is on disk before it is told. A seat is a *home* (a state folder, which one process at a time can
//!   have) and a *life* in it; what a later life of a home says, it says for the earlier ones, which are dead.
//! * **Nobody votes for ever.** Who was answered by no control plane for long ([`Seating::alone`]) votes no more. So also seats whose homes are lost
//!   with all that they have promised can be given away in the end.
//! * **One writes.** A registrar acts on a record that it alone can replace (compare and set), and grants nothing unless it replaced it a short
//!   while ago; whoever takes the record over waits for that while.
//!
//! The loads that are in flight when a seating comes into force are nobody's: each gateway counts them against its own part until it has seen
//! them end ([`crate::residency`]). [`Seating::unsure`] says whether there may be any that a server does not tell of.

mod holder;
pub mod promises;
mod registrar;

use std::time::Duration;

use holdfast_types::{GatewayName, Revision, Weight};

use crate::hash::{Purpose, stable_hash};
use crate::members::{Member, MemberList};
use crate::rendezvous::Rendezvous;

pub use holder::{Heard, Holder, Lease, News};
pub use registrar::{Record, Registrar, Rules, Sit, Told};

/// The most seats.
pub const MAX_SEATS: usize = 256;

/// Who sits: a name, the folder in which its promises are, and which process of that folder it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    /// The gateway's name.
    pub name: GatewayName,
    /// A number that its state folder was given when it was made.
    pub home: u64,
    /// Counts the processes that had the folder.
    pub life: u64,
    /// Where other gateways reach it. None: nowhere.
    pub peer: Option<Box<str>>,
}

/// A numbered list of gateways. The order of its seats is that of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seating {
    /// Its number. No two seatings have one number. Zero: nobody sits yet.
    pub epoch: u64,
    /// How long a lease of it lasts.
    pub lease: Duration,
    /// A gateway that no control plane has answered for so long votes for nobody, so that gateways of which nothing is heard again do not hold
    /// their seats for ever.
    pub alone: Duration,
    /// The most loads in flight over all seats.
    pub bound: u32,
    /// Who sits.
    pub seats: Vec<Seat>,
    /// When it came into force, loads may have been in flight of which nobody can be asked but the servers.
    pub unsure: bool,
}

impl Seating {
    /// The seat of a gateway.
    #[must_use]
    pub fn seat(&self, name: &GatewayName) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.name == *name)
    }

    /// How many seats are more than half.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.seats.len() / 2 + 1
    }

    /// How long to wait, by any clock, for the end of leases that were asked for up to now: a quarter more covers a tenth on either side.
    #[must_use]
    pub fn over(&self) -> Duration {
        longer(self.lease)
    }

    /// The loads that a gateway may have in flight. The parts add up to the bound.
    #[must_use]
    pub fn share(&self, name: &GatewayName) -> u32 {
        let seats = u32::try_from(self.seats.len()).unwrap_or(u32::MAX).max(1);
        let Some(rank) = self.seats.iter().position(|seat| seat.name == *name) else { return 0 };
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        (self.bound / seats).saturating_add(u32::from(rank < self.bound % seats))
    }

    /// Who starts loads on the server at this address. Seats without a part of the bound own nothing. None: nobody sits.
    #[must_use]
    pub fn owner(&self, server: &str) -> Option<&Seat> {
        let owning = self.seats.iter().filter(|seat| self.share(&seat.name) > 0);
        let members = owning.map(|seat| Member::new(seat.name.as_str(), Weight(1))).collect();
        let ring = Rendezvous::new(MemberList::new(Revision(self.epoch), members).ok()?);
        let mut first = Vec::new();
        ring.first(stable_hash(Purpose::LoadOwner, &[server.as_bytes()]), 1, &mut first);
        let index = usize::try_from(*first.first()?).ok()?;
        let name = &ring.members().members().get(index)?.name;
        self.seats.iter().find(|seat| seat.name.as_str() == &**name)
    }
}

/// A quarter longer.
fn longer(time: Duration) -> Duration {
    time.saturating_add(time / 4)
}
