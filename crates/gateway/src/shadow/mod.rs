//! Live traffic of a pin that is copied to another version, to see whether the two say the same.
//!
//! Which requests are copied is decided once, beside their resolution, by the submission ([`holdfast_decide::is_shadowed`]). The copy goes out when
//! the client's answer is complete, by a task of the runtime beside the workers, over connections of its own, and to a replica of the new version's own
//! subset that holds it, proven. It is sent once or not at all, and whatever becomes of it concerns nobody's request.
//!
//! Bounds: [`QUEUE`] copies wait, [`RUNNING`] run, [`ROOM`] bytes are kept for them; a replica has as many at a time as
//! `fleet::replica` says, and none while it uses more than half of the places that live traffic has. What finds no room is dropped and counted.
//!
//! ACCT-1: each request that was chosen owns a ticket, which counts one outcome when it is dropped, wherever that is.

mod compare;
mod copying;
mod difference;
mod order;
mod room;
mod run;
mod show;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};

use holdfast_decide::rollout::RolloutId;
use holdfast_decide::{PinChange, Reason, is_shadowed};
use holdfast_plane::{Shadowed, Shadowing};
use holdfast_telemetry::{Counter, GatewayMetrics};
use holdfast_types::{ModelName, TenantId};

use crate::exchange::Resolution;
use crate::residency::Driver;
use crate::route_state::RouteState;
use crate::table::{Table, target};

pub use copying::Copying;
pub use difference::{Difference, Kind, Magnitude};
pub use order::{Noted, ShadowReport};
pub(crate) use show::told;

use copying::Ticket;
use order::{Course, Order, Outcome};
use room::Room;

/// Most copies that wait to be sent.
const QUEUE: usize = 256;
/// Most copies under way.
const RUNNING: usize = 16;
/// Most bytes of requests and answers that are kept for copies.
const ROOM: usize = 64 << 20;
/// Most pins of which the totals are kept after their copying has ended.
const PAST: usize = 256;

type Plan = HashMap<(TenantId, ModelName), Arc<Order>>;
type Key = (RolloutId, usize);

/// See the module.
pub struct Shadows {
    /// Whether anything is copied at all: all that a request asks while nothing is.
    any: AtomicBool,
    plan: ArcSwap<Plan>,
    state: Mutex<State>,
    room: Arc<Room>,
    outcomes: Outcomes,
    queue: OnceLock<mpsc::Sender<Box<Copying>>>,
    driver: Arc<Driver>,
}

#[derive(Default)]
struct State {
    /// What the plan was made from.
    table: Weak<Table>,
    orders: Arc<[Shadowing]>,
    ordered: BTreeMap<Key, Arc<Course>>,
    /// What is not ordered any more, the oldest first. It goes on where it ended if it is ordered again.
    past: VecDeque<Arc<Course>>,
}

/// The counters of all copies.
struct Outcomes([Counter; Outcome::ALL.len()]);

impl Shadows {
    pub(crate) fn new(driver: Arc<Driver>, metrics: &GatewayMetrics) -> Self {
        Self {
            any: AtomicBool::new(false),
            plan: ArcSwap::default(),
            state: Mutex::default(),
            room: Room::of(ROOM),
            outcomes: Outcomes(Outcome::ALL.map(|outcome| metrics.shadow.get([outcome.as_str()]))),
            queue: OnceLock::new(),
            driver,
        }
    }

    /// Whether anything is copied.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Takes orders, and the table that they are carried out over. One caller at a time.
    pub(crate) fn follow(&self, table: &Arc<Table>, orders: &Arc<[Shadowing]>, metrics: &GatewayMetrics) {
        let mut state = self.state.lock();
        if std::ptr::eq(state.table.as_ptr(), Arc::as_ptr(table)) && state.orders == *orders {
            return;
        }
        state.table = Arc::downgrade(table);
        state.orders = orders.clone();
        let mut plan = Plan::new();
        let mut before = std::mem::take(&mut state.ordered);
        for ordered in orders.iter().filter(|ordered| ordered.share > 0) {
            let course = state.course(&mut before, ordered);
            // Another order for the same pin is not carried out: whose share a request is in has one answer.
            let place = (ordered.tenant.clone(), ordered.model.clone());
            if let (false, Some(order)) = (plan.contains_key(&place), self.order(table, ordered, course, metrics)) {
                plan.insert(place, Arc::new(order));
            }
        }
        for (_, over) in before {
            over.stop();
            state.past.push_back(over);
        }
        let surplus = state.past.len().saturating_sub(PAST);
        state.past.drain(..surplus);
        if !plan.is_empty() {
            self.queue.get_or_init(|| self.dispatch());
        }
        self.any.store(!plan.is_empty(), Relaxed);
        self.plan.store(Arc::new(plan));
    }

    fn order(
        &self,
        table: &Table,
        ordered: &Shadowing,
        course: Arc<Course>,
        metrics: &GatewayMetrics,
    ) -> Option<Order> {
        let Shadowing { tenant, model, version, share, .. } = ordered;
        let change = PinChange { tenant: tenant.clone(), model: model.clone(), version: version.clone() };
        let route = target(table, &change);
        let state = route.as_ref().and_then(|route| RouteState::of(table, route, &self.driver, metrics));
        let Some((route, state)) = route.zip(state) else {
            tracing::warn!(%tenant, %model, %version, "nothing is copied to a version that the table does not have");
            return None;
        };
        Some(Order { course, share: *share, subset: usize::from(route.subset), version: route.version, state })
    }

    /// Starts the task that takes copies out of the queue.
    fn dispatch(&self) -> mpsc::Sender<Box<Copying>> {
        let (send, mut receive) = mpsc::channel::<Box<Copying>>(QUEUE);
        let (driver, running) = (self.driver.clone(), Arc::new(Semaphore::new(RUNNING)));
        self.driver.spawn(async move {
            while let Some(copy) = receive.recv().await {
                let Ok(turn) = running.clone().acquire_owned().await else { return };
                driver.spawn(async move {
                    Box::pin(run::run(copy)).await;
                    drop(turn);
                });
            }
        });
        send
    }

    /// Whether this inference is among those that are copied. Only what came to its version by the pin is, and only from the old version.
    #[cold]
    pub(crate) fn choose(self: &Arc<Self>, resolution: &Resolution, submission: &[u8]) -> Option<Box<Copying>> {
        let route = &resolution.route;
        if resolution.reason != Reason::Pin {
            return None;
        }
        let order = self.plan.load().get(&(route.tenant.clone(), route.model.clone()))?.clone();
        let chosen = order.version != route.version
            && is_shadowed(route.tenant.as_str(), route.model.as_str(), submission, order.share);
        chosen.then(|| Box::new(Copying::new(self.clone(), Ticket::new(order, self.clone()))))
    }

    /// The totals of what is copied now.
    pub(crate) fn totals(&self) -> Vec<Shadowed> {
        self.state.lock().ordered.values().map(|course| course.totals()).collect()
    }

    /// What a roll-out's copies have shown, pin by pin.
    pub(crate) fn report(&self, rollout: RolloutId) -> Vec<ShadowReport> {
        let state = self.state.lock();
        let all = state.ordered.values().chain(&state.past).filter(|course| course.rollout == rollout);
        let mut report: Vec<_> = all.map(|course| course.report()).collect();
        report.sort_by_key(|pin| pin.pin);
        report
    }

    /// Whether nothing is kept for a copy.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.room.free() == ROOM
    }

    fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.outcomes.0.get(outcome as usize) {
            counter.inc();
        }
    }
}

impl State {
    /// The course that an order belongs to: the one before, if there is one.
    fn course(&mut self, before: &mut BTreeMap<Key, Arc<Course>>, ordered: &Shadowing) -> Arc<Course> {
        let key = (ordered.rollout, ordered.pin);
        let course = self.ordered.entry(key).or_insert_with(|| {
            let past = self.past.iter().position(|course| (course.rollout, course.pin) == key);
            let known = before.remove(&key).or_else(|| self.past.remove(past?));
            known.unwrap_or_else(|| Arc::new(Course::new(ordered.rollout, ordered.pin)))
        });
        course.resume();
        course.clone()
    }
}

#[cfg(test)]
mod tests;
