//! A gateway that is one of several: which servers it owns, and for how long ([`holdfast_placement::seats`]).
//!
//! Whoever keeps its seat tells here what it is told: seatings and leases. Which replicas that means changes with the table too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use holdfast_config::Endpoint;
use holdfast_placement::residency::{Event, Own, ReplicaIx};
use holdfast_placement::seats::{Seat, Seating};
use holdfast_plane::Wish;
use holdfast_telemetry::Clock;
use holdfast_types::{GatewayName, Mono, PoolName};

use super::Driver;
use super::afar::Asks;
use crate::fleet::Replica;

/// An answer of another gateway that is on its way. Dropping it ends the question.
pub type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What became of a load that another gateway was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Afar {
    /// The version is on this server.
    Ready(Box<str>),
    /// Not in the time that there was.
    Shed {
        /// When to ask again.
        retry: Duration,
        /// Why, as a word.
        why: String,
    },
    /// It cannot be loaded.
    Failed(String),
    /// None of the servers is that gateway's.
    NotOwner,
    /// No answer.
    Silent,
}

/// A version that is about to be unloaded, or is not after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parting {
    /// The number of the question, among all of this gateway's.
    pub word: u64,
    /// How long the unload may take.
    pub within: Duration,
    /// The copy is wrong by the account of who asks.
    pub renews: bool,
    /// It stays: the word that was given to the question of this number is over.
    pub taken_back: bool,
}

/// How other gateways are asked.
pub trait Others: Send + Sync + 'static {
    /// Has a gateway load a version on a server of its own.
    fn load(&self, owner: &Seat, wish: Wish, within: Duration) -> Call<Afar>;

    /// Asks a gateway to use a version on a server no more, or tells it that it may again. False: it is in use, or there was no answer.
    fn leaves(&self, seat: &Seat, wish: Wish, parting: Parting) -> Call<bool>;

    /// Tells a gateway that a version is about to be loaded on a server. False: there was no answer.
    fn reloads(&self, seat: &Seat, wish: Wish, within: Duration) -> Call<bool>;

    /// Has the owner be told in another way, for a gateway that cannot be asked.
    fn wish(&self, wish: Wish);
}

/// See the module.
pub struct Company {
    pub(super) me: GatewayName,
    pub(super) others: Arc<dyn Others>,
    pub(super) asks: Asks,
    state: Mutex<State>,
    /// Pools whose servers have been seen to tell what they are loading.
    telling: Mutex<BTreeSet<PoolName>>,
    /// Wishes of others that are being granted.
    pub(super) granting: Mutex<BTreeSet<Wish>>,
}

#[derive(Default)]
struct State {
    /// It was told by a control plane that knows no seats: it loads as if there were no others.
    alone: bool,
    until: Option<Mono>,
    owners: Arc<Owners>,
}

/// For metrics.
pub(crate) struct SeatNumbers {
    pub(crate) epoch: u64,
    pub(crate) seats: usize,
    /// For how long loads may be started.
    pub(crate) left: Duration,
}

/// So long after a load was asked for a server is asked whether it tells of it.
const BEGUN: Duration = Duration::from_millis(20);
/// The most pools that are taken from others at once.
const MOST_POOLS: usize = 1_024;

/// Who owns which replica's server.
#[derive(Default)]
pub(super) struct Owners {
    pub(super) seating: Seating,
    of: HashMap<ReplicaIx, usize>,
}

impl Owners {
    pub(super) fn of(&self, replica: ReplicaIx) -> Option<&Seat> {
        self.seating.seats.get(*self.of.get(&replica)?)
    }
}

/// What gateways call a server among themselves.
pub(super) fn server_name(endpoint: &Endpoint) -> Box<str> {
    let (host, port) = endpoint.server();
    format!("{host}:{port}").into()
}

impl Company {
    /// Nobody sits yet.
    #[must_use]
    pub fn new(me: GatewayName, others: Arc<dyn Others>) -> Arc<Self> {
        Arc::new(Self {
            me,
            others,
            asks: Asks::default(),
            state: Mutex::default(),
            telling: Mutex::default(),
            granting: Mutex::default(),
        })
    }

    pub(super) fn owners(&self) -> Arc<Owners> {
        self.state.lock().owners.clone()
    }

    pub(super) fn is_alone(&self) -> bool {
        self.state.lock().alone
    }

    /// A server of the pool has told that it is loading something.
    pub(super) fn tells_of_loads(&self, pool: &PoolName) {
        let mut telling = self.telling.lock();
        if !telling.contains(pool) {
            telling.insert(pool.clone());
        }
    }
}

impl Driver {
    /// From now on this gateway is one of several, and starts no load before it has a lease. To be called before there is a table.
    pub fn join(&self, company: Arc<Company>) {
        if self.company.set(company).is_ok() {
            self.apply(Event::SetOwn(Some(Own::NOTHING)));
        }
    }

    /// A control plane leads that knows no seats: loads are bounded for each gateway by itself.
    pub fn alone(&self) {
        let Some(company) = self.company.get() else { return };
        if !std::mem::replace(&mut company.state.lock().alone, true) {
            tracing::warn!("the control plane knows no seats: the bounds on loads hold for this gateway by itself");
            self.apply(Event::SetOwn(None));
        }
    }

    /// Pools whose servers have been seen to tell what they are loading.
    #[must_use]
    pub fn that_tell(&self) -> Vec<PoolName> {
        self.company.get().map(|company| company.telling.lock().iter().cloned().collect()).unwrap_or_default()
    }

    /// Other gateways have seen the servers of these pools tell what they are loading.
    pub fn telling(&self, pools: Vec<PoolName>) {
        if let Some(company) = self.company.get() {
            company.telling.lock().extend(pools.into_iter().take(MOST_POOLS));
        }
    }

    /// Looks while a load is under way whether its server tells of it, if that is not known of the pool.
    pub(super) fn see_if_it_tells(&self, replica: &Arc<Replica>) {
        let known = |company: &Arc<Company>| company.telling.lock().contains(&replica.pool);
        if self.company.get().is_some_and(|company| !known(company)) {
            let replica = replica.clone();
            self.tasks.spawn(async move {
                tokio::time::sleep(BEGUN).await;
                replica.refresh.notify_one();
            });
        }
    }

    /// The control plane gives seats.
    pub fn in_company(&self) {
        let Some(company) = self.company.get() else { return };
        if std::mem::take(&mut company.state.lock().alone) {
            tracing::info!("the control plane gives seats: the bounds on loads hold over all gateways");
            self.own();
        }
    }

    /// Another seating is in force. Loads of the one before may be in flight anywhere.
    pub fn seated(&self, seating: Seating) {
        let Some(company) = self.company.get() else { return };
        let unsure = seating.unsure;
        let owners = Arc::new(self.owners_of(seating));
        {
            let mut state = company.state.lock();
            (state.owners, state.until) = (owners, None);
        }
        self.own();
        let now = Clock::now();
        let telling = company.telling.lock().clone();
        let mut events = Vec::new();
        for pool in self.fleet.pools() {
            let waits = unsure && !telling.contains(&pool.name);
            let until = if waits { now.after(pool.config.loads.timeout) } else { Mono::ZERO };
            events.extend(pool.replicas.iter().map(|r| Event::Unsettled { replica: r.ix, until }));
        }
        self.apply_all(events);
        self.fleet.replicas().iter().for_each(|replica| replica.refresh.notify_one());
    }

    /// Until when loads may be started. None: not at all.
    pub fn leased(&self, until: Option<Mono>) {
        let Some(company) = self.company.get() else { return };
        let changed = {
            let mut state = company.state.lock();
            !state.alone && std::mem::replace(&mut state.until, until) != until
        };
        if changed {
            self.own();
        }
    }

    /// Works out anew who owns which replica: there is another table.
    pub(super) fn own_again(&self) {
        let Some(company) = self.company.get() else { return };
        let seating = company.owners().seating.clone();
        let owners = Arc::new(self.owners_of(seating));
        company.state.lock().owners = owners;
        self.own();
    }

    fn owners_of(&self, seating: Seating) -> Owners {
        let mut by_server: BTreeMap<Box<str>, Option<usize>> = BTreeMap::new();
        let mut of = HashMap::new();
        for replica in self.fleet.replicas() {
            let server = server_name(&replica.endpoint);
            let owner = *by_server.entry(server).or_insert_with_key(|server| {
                let owner = seating.owner(server)?;
                seating.seats.iter().position(|seat| seat.name == owner.name)
            });
            of.extend(owner.map(|owner| (replica.ix, owner)));
        }
        Owners { seating, of }
    }

    fn own(&self) {
        let Some(company) = self.company.get() else { return };
        let (until, owners) = {
            let state = company.state.lock();
            if state.alone {
                return;
            }
            (state.until, state.owners.clone())
        };
        let own = until.map_or(Own::NOTHING, |until| Own {
            replicas: owners
                .of
                .keys()
                .filter(|r| owners.of(**r).is_some_and(|s| s.name == company.me))
                .copied()
                .collect(),
            until,
            part: owners.seating.share(&company.me),
        });
        self.apply(Event::SetOwn(Some(own)));
    }

    /// Whether a load or an unload may be sent to the replica at this moment.
    pub(super) fn may_act(&self, replica: ReplicaIx) -> bool {
        self.company.get().is_none() || self.state.lock().machine.owns_at(Clock::now(), replica)
    }

    /// Nothing that this gateway has begun is in flight, and it waits for no load of which nobody tells.
    #[must_use]
    pub fn drained_of_loads(&self) -> bool {
        self.state.lock().machine.drained_of_loads(Clock::now())
    }

    /// What is known of seats, in numbers. None: this gateway is no part of a fleet.
    pub(crate) fn seat_numbers(&self) -> Option<SeatNumbers> {
        let company = self.company.get()?;
        let state = company.state.lock();
        let left = state.until.map_or(Duration::ZERO, |until| until.since(Clock::now()));
        Some(SeatNumbers { epoch: state.owners.seating.epoch, seats: state.owners.seating.seats.len(), left })
    }

    /// What is known of seats, for people. None: this gateway is no part of a fleet.
    #[must_use]
    pub fn seat_told(&self) -> Option<Value> {
        let company = self.company.get()?;
        let (until, owners, alone) = {
            let state = company.state.lock();
            (state.until, state.owners.clone(), state.alone)
        };
        let left = until.map_or(Duration::ZERO, |until| until.since(Clock::now()));
        let mine = |r: &ReplicaIx| owners.of(*r).is_some_and(|seat| seat.name == company.me);
        let mut owns: Vec<String> = (owners.of.keys().filter(|r| mine(r)).filter_map(|r| self.fleet.replica(*r)))
            .map(|r| format!("{}/{}", r.pool, r.name))
            .collect();
        owns.sort_unstable();
        let seats: Vec<&str> = owners.seating.seats.iter().map(|seat| seat.name.as_str()).collect();
        Some(json!({
            "epoch": owners.seating.epoch, "seats": seats, "lease_left_ms": left.as_millis() as u64, "owns": owns,
            "loads": owners.seating.share(&company.me), "bounded_alone": alone,
        }))
    }
}
