//! Limits that gateways share: which of a book's limits are leased, and the one task that carries their asks to the store.
//!
//! A request never waits for the store but when its gateway holds nothing, and then for a few milliseconds at most. An order is one call with a deadline; what
//! does not answer has failed, and the holder goes by its part of the limit (`quota::lease`). The queue of orders is bounded, and one that finds no place has failed as well.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use holdfast_bank::{Limits, MAX_PARTS, Options, Stores};
use holdfast_config::Config;
use holdfast_quota::lease::{Ask, Effect, Event, GatewayId, Holder, Rules, Terms};
use holdfast_quota::limit::Limit;
use holdfast_telemetry::{Clock, Kind, Registry, Sink};
use holdfast_types::Mono;

use super::book::Book;
use crate::random::Random;

/// Orders that wait to be sent, and calls at one time.
const QUEUE: usize = 4_096;
const CALLS: usize = 256;
/// How often holders are looked at for what only time does.
const TICK: Duration = Duration::from_millis(20);

/// What a holder wants done.
pub(super) struct Order {
    name: Arc<str>,
    slot: u64,
    limit: Limit,
    ask: Ask,
    book: Weak<Book>,
    at: u16,
}

/// The way to the store.
pub struct Link {
    store: Arc<Stores>,
    calls: Limits,
    orders: mpsc::Sender<Order>,
    waiting: Mutex<Option<mpsc::Receiver<Order>>>,
    me: GatewayId,
    retry: Duration,
    within: Duration,
    /// Tokens that were admitted while the store did not answer.
    pub(super) alone: AtomicU64,
}

/// One leased limit.
pub(super) struct Leased {
    pub(super) holder: Holder,
    name: Arc<str>,
    slot: u64,
    at: u16,
    book: Weak<Book>,
    link: Arc<Link>,
}

impl Link {
    /// The way to the store that is configured.
    pub fn new(config: &Config) -> Option<Arc<Self>> {
        let url = config.limits.store.as_ref()?;
        let access = crate::store_access::of(url, &config.limits.store_access);
        let url = url.as_str().to_owned();
        let mut random = Random::new();
        let (me, within) = (random.next(), config.limits.store_within);
        let namespace = config.limits.store_namespace.to_string();
        let gateways = config.limits.store_gateways;
        let more: Vec<String> = config.limits.store_nodes.iter().map(|url| url.as_str().to_owned()).collect();
        let store = Stores::new(Options { url, namespace, within, gateways, seed: me, keeps: "limits", access }, &more);
        let store = store.inspect_err(|why| tracing::error!(%why, "the store of limits cannot be used")).ok()?;
        let (orders, waiting) = mpsc::channel(QUEUE);
        let retry = Duration::from_millis(400 + random.next() % 200);
        Some(Arc::new(Self {
            store,
            calls: Limits::new(Rules::default()),
            orders,
            waiting: Mutex::new(Some(waiting)),
            me,
            retry,
            within,
            alone: AtomicU64::new(0),
        }))
    }

    /// How the store does.
    #[must_use]
    pub fn state(&self) -> holdfast_bank::State {
        self.store.state()
    }

    /// Why the store cannot be connected to, if that is so.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.store.why()
    }

    /// Tokens that were admitted while the store did not answer.
    #[must_use]
    pub fn admitted_alone(&self) -> u64 {
        self.alone.load(Relaxed)
    }

    /// Shows it among the metrics.
    pub fn register(self: &Arc<Self>, registry: &Registry) {
        type Read = fn(&Link) -> u64;
        let shown: [(&'static str, &'static str, Kind, Read); 6] = [
            ("holdfast_limits_store_up", "Whether the store of shared limits answers.", Kind::Gauge, |l| {
                u64::from(l.state().up)
            }),
            ("holdfast_limits_store_gateways", "Live gateways, as the store counts them.", Kind::Gauge, |l| {
                l.state().gateways
            }),
            ("holdfast_limits_store_calls_total", "Calls of the store.", Kind::Counter, |l| l.state().calls),
            (
                "holdfast_limits_store_failures_total",
                "Calls that failed, or were not made since it was away.",
                Kind::Counter,
                |l| l.state().failures,
            ),
            ("holdfast_limits_store_connects_total", "Connections made to the store.", Kind::Counter, |l| {
                l.state().connects
            }),
            (
                "holdfast_limits_admitted_alone_total",
                "Requests and bytes that were admitted by this gateway's part of a limit, since the store did not answer.",
                Kind::Counter,
                Link::admitted_alone,
            ),
        ];
        for (name, help, kind, read) in shown {
            let link = self.clone();
            let value = move |sink: &mut Sink<'_>| sink.sample(&[], read(&link) as f64);
            registry.collector(name, help, kind, &[], Box::new(value));
        }
    }

    /// How long a request waits for the store at most.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.within + Duration::from_millis(2)
    }

    /// The terms of a limit now.
    fn terms(&self, limit: Limit) -> Terms {
        let terms = Terms::new(limit, self.store.gateways());
        // A call that was cut off by its deadline is told as failed before the holder gives it up.
        Terms { answer_within: self.within + Duration::from_millis(5), retry: self.retry, ..terms }
    }

    /// Carries orders to the store, for ever.
    pub async fn run(self: Arc<Self>) {
        let Some(mut orders) = self.waiting.lock().take() else { return };
        tokio::spawn(self.store.clone().run());
        let mut calls = JoinSet::new();
        let mut active: HashMap<(usize, u16), Weak<Book>> = HashMap::new();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(order) = orders.recv() => {
                    active.insert((order.book.as_ptr() as usize, order.at), order.book.clone());
                    if calls.len() < CALLS {
                        calls.spawn(self.clone().carry(order));
                    } else {
                        order.failed();
                    }
                }
                Some(_) = calls.join_next() => {}
                _ = ticks.tick() => {
                    let now = Clock::now();
                    active.retain(|(_, at), book| book.upgrade().is_some_and(|book| book.tick(*at, now)));
                }
            }
        }
    }

    async fn carry(self: Arc<Self>, order: Order) {
        let answer = self.calls.ask(&self.store, (&order.name, order.slot), order.limit, order.ask, None).await;
        match answer {
            Ok(Some(answer)) => order.told(Event::Answer(answer)),
            Ok(None) => order.failed(),
            Err(why) => {
                tracing::debug!(limit = &*order.name, %why, "an order of a lease has failed");
                order.failed();
            }
        }
    }
}

impl Order {
    fn failed(&self) {
        self.told(Event::Failed(self.ask.order));
    }

    fn told(&self, event: Event) {
        if let Some(book) = self.book.upgrade() {
            book.told(self.at, &self.name, Clock::now(), event);
        }
    }
}

impl Leased {
    /// Leases a limit, if the store can count it exactly.
    pub(super) fn new(
        link: &Arc<Link>,
        name: String,
        at: u16,
        book: &Weak<Book>,
        limit: Limit,
        now: Mono,
    ) -> Option<Self> {
        let parts = u128::from(limit.burst).max(u128::from(limit.rate.tokens())) * limit.rate.per().as_micros().max(1);
        let whole = limit.rate.per().subsec_nanos().is_multiple_of(1_000);
        (parts <= MAX_PARTS && whole).then(|| Self {
            holder: Holder::new(link.me, link.terms(limit), now),
            slot: xxhash_rust::xxh3::xxh3_64(name.as_bytes()),
            name: name.into(),
            at,
            book: book.clone(),
            link: link.clone(),
        })
    }

    /// Whether it is the limit of this name in the store.
    pub(super) fn is_called(&self, name: &str) -> bool {
        *self.name == *name
    }

    pub(super) fn limit(&self) -> Limit {
        self.holder.terms().limit
    }

    pub(super) fn gateways(&self) -> u32 {
        self.holder.terms().gateways
    }

    /// Another limit; what is in use stays in use.
    pub(super) fn change(&mut self, limit: Limit, now: Mono) {
        let terms = self.link.terms(limit);
        self.apply(now, Event::Terms(terms));
    }

    /// Takes the cost. True in the error: it may be there in a moment.
    pub(super) fn take(
        &mut self,
        now: Mono,
        cost: u64,
        again: bool,
    ) -> Result<(), (holdfast_quota::bucket::Wait, bool)> {
        use holdfast_quota::lease::Verdict;
        if self.gateways() != self.link.store.gateways() {
            self.change(self.limit(), now);
        }
        let mut effects = Vec::new();
        let spend = if again { Holder::spend_again } else { Holder::spend };
        let verdict = spend(&mut self.holder, now, cost, &mut effects);
        if verdict == Verdict::Pass && self.holder.is_alone() {
            self.link.alone.fetch_add(cost, Relaxed);
        }
        self.send(now, effects);
        match verdict {
            Verdict::Pass => Ok(()),
            Verdict::Ordered(wait) => Err((wait, true)),
            Verdict::Refused(wait) => Err((wait, false)),
        }
    }

    /// Puts back what was taken and not used.
    pub(super) fn give_back(&mut self, now: Mono, tokens: u64) {
        self.holder.give_back(now, tokens);
        if self.holder.wakes_at().is_some_and(|wakes| wakes <= now) {
            self.apply(now, Event::Tick);
        }
    }

    /// What the store says, or time does.
    pub(super) fn apply(&mut self, now: Mono, event: Event) {
        let mut effects = Vec::new();
        self.holder.apply(now, event, &mut effects);
        self.send(now, effects);
    }

    fn send(&mut self, now: Mono, effects: Vec<Effect>) {
        for Effect::Ask(ask) in effects {
            let (name, book, limit) = (self.name.clone(), self.book.clone(), self.limit());
            let order = Order { name, slot: self.slot, limit, ask, book, at: self.at };
            if self.link.orders.try_send(order).is_err() {
                // Of a failed order comes no other.
                self.holder.apply(now, Event::Failed(ask.order), &mut Vec::new());
            }
        }
    }
}
