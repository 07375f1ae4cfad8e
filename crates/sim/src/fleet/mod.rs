//! A whole fleet in one history: gateways that decide and hold residency machines, replicas with memory, control planes with roll-outs, one store,
//! and clients that retry.
//!
//! What decides is the product's own code: [`holdfast_decide::decide`], the roll-out machine, the residency machine, the choice of a holder, health.
//! What drives them in the product (tasks, connections, records) is done here by messages that take time, come late, and are lost. A history follows
//! from its [`Setup`], its seed and its [`Act`]s, and every step of it is looked at by the predicates of the machines: PIN-1, PIN-2, PIN-3, ROUTE-1,
//! LOAD-1, LOAD-2.

mod acts;
mod bounds;
mod client;
mod company;
mod end;
mod gateway;
mod names;
mod news;
mod plane;
mod reloads;
mod seats;
mod server;
mod sessions;
mod store;
mod ushers;
mod wants;
mod world;

use std::ops::Range;

use crate::chance::Chance;
use crate::scenario::kind;
pub use acts::{Act, Fault, acts};
use world::World;

/// A millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second in nanoseconds.
pub const SECOND: u64 = 1_000 * MS;

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Gateways.
    pub gateways: usize,
    /// Replicas, all of one pool.
    pub replicas: usize,
    /// How many versions of the model fit into a replica.
    pub room: u64,
    /// Tenants. Each pins one version of the one model.
    pub tenants: usize,
    /// Versions of the model. Tenants begin at the first.
    pub versions: u32,
    /// The largest subset; tenants have 1 to so many in turn.
    pub subset: u8,
    /// New submissions per second in all, a Poisson process.
    pub rate: u64,
    /// When the first one comes: a fleet that has just been started has loaded nothing, and may refuse until it is agreed who loads where.
    pub traffic_from: u64,
    /// How long a model server takes for one, in nanoseconds.
    pub service: Range<u64>,
    /// How long a load takes.
    pub load: Range<u64>,
    /// What a request may take in all.
    pub budget: u64,
    /// The way of a message between two processes.
    pub delay: Range<u64>,
    /// How often a client retries.
    pub retries: u32,
    /// One of so many clients leaves in the middle. 0: none.
    pub leaves: u64,
    /// One of so many clients names a version by itself, whatever is pinned. 0: none.
    pub names: u64,
    /// One of so many messages of roll-outs to and from the store is lost, and some messages are late. 0: none.
    pub lost: u64,
    /// How long there are acts; then everything is repaired, and what has begun comes to its end.
    pub span: u64,
    /// How long a roll-out keeps what it leaves.
    pub retain: u64,
    /// Bounds on loads in flight: on one replica, and of the fleet.
    pub loads: (u32, u32),
    /// How long a gateway's lease to start loads lasts.
    pub lease: u64,
    /// A gateway that no control plane has answered for so long votes for nobody.
    pub alone: u64,
    /// Gateways can ask one another.
    pub peers: bool,
    /// What is done wrongly, to see that it shows.
    pub mistake: Option<Mistake>,
}

/// A mistake of whoever drives the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A client that tries again has its pin looked up again.
    ResolvesAgain,
    /// A gateway takes whatever table it is told.
    TakesAnyTable,
    /// Nobody compares the version that an answer names with the one that was asked.
    TrustsAnswers,
    /// A copy that proves wrong is called proven.
    TrustsLoads,
    /// A gateway starts loads as if there were no others.
    IgnoresSeats,
    /// Each gateway takes the bound of the fleet for its part: no gateway's own books can show that.
    TakesAll,
    /// A gateway says that it uses a version no more, whether or not it does, and goes on.
    BreaksItsWord,
}

impl Setup {
    /// A small fleet in which everything is tight: what random histories run in, each in another one.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x0005_e709);
        let mut within = |range: Range<u64>| chance.within(&range);
        let quick = within(0..3) == 0;
        Self {
            gateways: within(2..4) as usize,
            replicas: within(3..6) as usize,
            room: within(2..4),
            tenants: within(2..5) as usize,
            versions: within(3..6) as u32,
            subset: within(1..4) as u8,
            rate: within(3..12),
            traffic_from: SECOND,
            service: 5 * MS..400 * MS,
            load: if quick { 100 * MS..500 * MS } else { 300 * MS..4 * SECOND },
            budget: 10 * SECOND,
            delay: MS / 5..20 * MS,
            retries: 3,
            leaves: 40,
            names: 12,
            lost: 12,
            span: 40 * SECOND,
            retain: 6 * SECOND,
            loads: (1, within(1..4) as u32),
            // A tenth of it is longer than a message that is late.
            lease: within(4..8) * SECOND,
            alone: within(10..40) * SECOND,
            peers: within(0..4) > 0,
            mistake: None,
        }
    }
}

/// What happened in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Submissions that came.
    pub offered: u64,
    /// Answers that clients got.
    pub answered: u64,
    /// Of these, by the version that was pinned last by then in the store.
    pub newest: u64,
    /// Submissions that clients gave up.
    pub failed: u64,
    /// Attempts that were refused or broke and were tried again.
    pub retried: u64,
    /// Loads that began.
    pub loads: u64,
    /// The longest time that an answer took, in nanoseconds.
    pub slowest: u64,
}

/// What was counted over a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By second.
    pub seconds: Vec<Second>,
    /// Events of the simulation.
    pub events: u64,
    /// Roll-outs that began.
    pub rollouts: u64,
    /// Steps that came into force.
    pub flips: u64,
    /// Pins that went back.
    pub reverts: u64,
    /// Loads that failed.
    pub failed_loads: u64,
    /// Versions that were unloaded.
    pub unloads: u64,
    /// Answers of servers that named another version than asked; none of them reached a client.
    pub wrong: u64,
    /// Answers by other weights, of a copy that was loaded for another gateway in the place of the one that this gateway has proved.
    pub unproved: u64,
    /// Seatings that came into force.
    pub seatings: u64,
    /// Loads that began while no control plane could give a lease: by votes of others.
    pub voted: u64,
    /// Versions that were unloaded while somebody used them who could not be asked.
    pub unasked: u64,
    /// Times that a control plane took over.
    pub terms: u64,
    /// The most loads that one replica had in flight, over all gateways.
    pub most_loads: u64,
}

impl Tally {
    /// Answers in all.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.seconds.iter().map(|s| s.answered).sum()
    }

    /// Submissions that clients gave up.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.seconds.iter().map(|s| s.failed).sum()
    }
}

/// How a history went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The first promise that was broken, and when, in nanoseconds from the start.
    pub broken: Option<(u64, String)>,
    /// What was counted.
    pub tally: Tally,
    /// What happened, one line each, if that was asked for.
    pub log: Vec<String>,
}

/// Plays a history.
#[must_use]
pub fn run(setup: &Setup, seed: u64, acts: &[(u64, Act)], log: bool) -> Outcome {
    match World::new(setup, seed, acts, log) {
        Some(world) => world.play(),
        None => Outcome { broken: Some((0, "the setup is none".to_owned())), tally: Tally::default(), log: Vec::new() },
    }
}

/// The same broken history with as few acts as break the same promise still: halves, then parts of halves are left out for as long as that works.
#[must_use]
pub fn shortened(setup: &Setup, seed: u64, acts: &[(u64, Act)]) -> Vec<(u64, Act)> {
    let broken = |acts: &[(u64, Act)]| run(setup, seed, acts, false).broken.map(|(_, what)| kind(&what));
    let Some(first) = broken(acts) else { return acts.to_vec() };
    let breaks = |acts: &[(u64, Act)]| broken(acts).as_ref() == Some(&first);
    let (mut kept, mut part) = (acts.to_vec(), acts.len().div_ceil(2));
    while part > 0 && !kept.is_empty() {
        let mut from = 0;
        while from < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(from..kept.len().min(from + part));
            if breaks(&fewer) {
                kept = fewer;
            } else {
                from += part;
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    kept
}
