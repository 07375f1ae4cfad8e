//! The world `growth`: many gateways, replicas, versions and tenants at once, to show what one machine cannot: that calls to the store of limits, loads and the
//! busiest replica do not grow with the fleet.
//!
//! Every message goes the whole way: its tenant's limit by the lease protocol ([`holdfast_quota::lease`]; a tenant at one gateway has a local bucket), its key's
//! subset by rendezvous hashing, the least loaded replica of it ([`holdfast_placement::choose`]), and the time that it takes there. Tenants follow a law of
//! halves: those numbered 2^n to 2^(n+1) have as much traffic together for each n, so the n-th has about 1/n of the first one's.

use std::collections::BTreeSet;

use holdfast_placement::choose::{Candidate, Choice, choose};
use holdfast_placement::members::{Member, MemberList};
use holdfast_placement::rendezvous::Rendezvous;
use holdfast_placement::subset::subset_key;
use holdfast_quota::bucket::Bucket;
use holdfast_quota::lease::{
    Answer, Ask as Order, Bank, BankEvent, Effect, Event, Holder, Rules, Sharing, Terms, Verdict, over_admission_bound,
};
use holdfast_quota::limit::Limit;
use holdfast_quota::rate1::Witness;
use holdfast_types::{Mono, Revision, Weight};

use super::{Ask, Broken, Knob, Report, Series, Set, World, knob};
use crate::chance::Chance;
use crate::queue::Queue;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SECOND: u64 = 1_000 * MS;
const START: u64 = 1_000 * SECOND;
/// One way to the store of limits.
const WAY: u64 = 250 * US;

const KNOBS: &[Knob] = &[
    knob("gateways", 5, 1, 1_000, "gateways"),
    knob("replicas", 100, 1, 100_000, "replicas"),
    knob("versions", 1_000, 1, 1_000_000, "versions, which tenants pin in turn"),
    knob("tenants", 5_000, 1, 1_000_000, "tenants"),
    knob("messages", 10_000, 1, 10_000_000, "messages per second of all of them, a Poisson process"),
    knob(
        "per_gateway",
        200,
        1,
        1_000_000,
        "a tenant with more messages per second than this is connected to a gateway more",
    ),
    knob(
        "subset",
        2,
        1,
        16,
        "replicas of a tenant's key; a tenant has one more for each so many messages per second as a replica takes in half a second",
    ),
    knob("service_us", 2_000, 1, 10_000_000, "how long a message takes at a replica, on average"),
    knob("room", 400, 1, 1_000_000, "versions that a replica has room for"),
    knob("seconds", 2, 1, 600, "how long"),
];

/// See the module.
pub static WORLD: World = World {
    name: "growth",
    about: "many gateways, replicas, versions and tenants, and the whole way of every message",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("messages", "messages that came"),
        ("admitted", "of them: those that their tenant's limit let pass"),
        ("tenants_seen", "of the tenants: those that sent anything"),
        ("store_calls", "of the messages: calls to the store of limits"),
        ("loads", "loads: a version to a replica of a key of it"),
        ("fullest", "of its room: what the fullest replica holds"),
        ("busiest", "of an even part: what the busiest replica served"),
        ("over_share", "of the bound of RATE-1: the most that a tenant's limit was passed by"),
        ("events", "steps of the simulation"),
    ],
    promises: &["RATE-1"],
    run: simulate,
};

enum Ev {
    Asks { tenant: usize, order: Order },
    Answers { tenant: usize, answer: Answer },
    Done { replica: u32 },
}

/// How a tenant's limit is kept.
enum Keeper {
    Local(Bucket),
    Leased(Box<Leased>),
}

struct Leased {
    bank: Bank,
    holders: Vec<Holder>,
    parked: Vec<u32>,
}

struct Tenant {
    limit: Limit,
    keeper: Keeper,
    witness: Witness,
    bound: u64,
    subset: Box<[u32]>,
}

struct Fleet<'a> {
    set: &'a Set,
    chance: Chance,
    queue: Queue<Ev>,
    now: u64,
    places: Rendezvous,
    tenants: Vec<Option<Box<Tenant>>>,
    in_flight: Vec<u32>,
    served: Vec<u64>,
    held: BTreeSet<(u32, u32)>,
    effects: Vec<Effect>,
    candidates: Vec<Candidate>,
    messages: u64,
    admitted: u64,
    calls: u64,
    seconds: Vec<(u64, u64)>,
    broken: Option<Broken>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let set = ask.set;
    let named = (0..set.get("replicas")).map(|ix| Member::new(format!("r{ix:06}"), Weight(1))).collect();
    let mut fleet = Fleet {
        set,
        chance: Chance::new(ask.seed),
        queue: Queue::default(),
        now: START,
        places: Rendezvous::new(MemberList::new(Revision(0), named).unwrap_or_default()),
        tenants: (0..set.count("tenants")).map(|_| None).collect(),
        in_flight: vec![0; set.count("replicas")],
        served: vec![0; set.count("replicas")],
        held: BTreeSet::new(),
        effects: Vec::new(),
        candidates: Vec::new(),
        messages: 0,
        admitted: 0,
        calls: 0,
        seconds: vec![(0, 0); set.count("seconds")],
        broken: None,
    };
    fleet.play();
    fleet.report()
}

impl Fleet<'_> {
    fn play(&mut self) {
        let (end, rate) = (START + self.set.get("seconds") * SECOND, self.set.get("messages").max(1));
        // A thousandth of a nanosecond is what a mean of some hundred needs.
        let mean = SECOND * 1_000 / rate;
        let mut next = START * 1_000;
        loop {
            next += self.chance.exponential(mean);
            let at = (next / 1_000).min(end);
            while let Some((due, event)) = self.queue.take(at) {
                self.now = due;
                self.happens(event);
            }
            self.now = at;
            if at >= end || self.broken.is_some() {
                return;
            }
            self.message();
        }
    }

    /// A tenant, by the law of halves.
    fn pick(&mut self) -> usize {
        let count = self.tenants.len() as u64;
        let octaves = u64::from(count.ilog2()) + 1;
        loop {
            let first = 1u64 << self.chance.below(octaves);
            let number = first + self.chance.below(first);
            if number <= count {
                return usize::try_from(number - 1).unwrap_or(0);
            }
        }
    }

    /// A tenant's messages per second on average, one at least.
    fn mean(&self, tenant: usize) -> u64 {
        let octaves = u64::from((self.tenants.len() as u64).ilog2()) + 1;
        let first = 1u64 << (tenant as u64 + 1).ilog2();
        (self.set.get("messages") / octaves / first).max(1)
    }

    /// What is known of a tenant once it has sent something: its limit is a quarter above what it sends on average, every sixteenth one's is half of it.
    fn comes(&mut self, tenant: usize) -> Box<Tenant> {
        let mean = self.mean(tenant);
        let rate = if tenant % 16 == 15 { mean / 2 } else { mean + mean / 4 }.max(1);
        let limit = Limit::per_second(rate, rate.saturating_mul(2));
        let most = self.set.get("gateways");
        let gateways = u32::try_from((mean / self.set.get("per_gateway") + 1).min(most)).unwrap_or(1);
        let sharing = Sharing::default();
        let (keeper, bound) = if gateways < 2 || !sharing.is_shareable(rate, gateways) {
            (Keeper::Local(Bucket::full(limit, Mono(self.now))), 0)
        } else {
            let holder = |gateway: u32| Holder::new(u64::from(gateway), Terms::new(limit, gateways), Mono(self.now));
            let leased = Leased {
                bank: Bank::new(limit, Rules::default(), Mono(self.now)),
                holders: (0..gateways).map(holder).collect(),
                parked: (0..gateways).map(|_| 0).collect(),
            };
            (Keeper::Leased(Box::new(leased)), over_admission_bound(rate, gateways, sharing))
        };
        let version = tenant % self.set.count("versions");
        let key = subset_key(&format!("tenant-{tenant}"), "model", &version.to_string());
        let half_a_second = 500_000 / self.set.get("service_us").max(1);
        let k = self.set.get("subset") + mean / half_a_second.max(1);
        let mut subset = Vec::new();
        self.places.first(key, usize::try_from(k).unwrap_or(1), &mut subset);
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        self.held.extend(subset.iter().map(|replica| (*replica, version)));
        let witness = Witness::new(limit, bound, Mono(self.now));
        Box::new(Tenant { limit, keeper, witness, bound, subset: subset.into_boxed_slice() })
    }

    fn message(&mut self) {
        let tenant = self.pick();
        self.messages += 1;
        if let Some(second) = self.seconds.get_mut(usize::try_from((self.now - START) / SECOND).unwrap_or(0)) {
            second.0 += 1;
        }
        let mut known = match self.tenants[tenant].take() {
            Some(known) => known,
            None => self.comes(tenant),
        };
        let now = Mono(self.now);
        match &mut known.keeper {
            Keeper::Local(bucket) => {
                if bucket.take(known.limit, now, 1).is_ok() {
                    self.serve(&mut known);
                }
            }
            Keeper::Leased(leased) => {
                let gateway = usize::try_from(self.chance.below(leased.holders.len() as u64)).unwrap_or(0);
                let verdict = leased.holders[gateway].spend(now, 1, &mut self.effects);
                self.decided(tenant, &mut known, gateway, verdict);
            }
        }
        self.tenants[tenant] = Some(known);
    }

    fn decided(&mut self, tenant: usize, known: &mut Tenant, gateway: usize, verdict: Verdict) {
        for Effect::Ask(order) in self.effects.drain(..) {
            self.calls += 1;
            self.queue.put(self.now + WAY, Ev::Asks { tenant, order });
        }
        match verdict {
            Verdict::Pass => self.serve(known),
            Verdict::Ordered(_) => {
                if let Keeper::Leased(leased) = &mut known.keeper {
                    leased.parked[gateway] += 1;
                }
            }
            Verdict::Refused(_) => {}
        }
    }

    fn happens(&mut self, event: Ev) {
        match event {
            Ev::Done { replica } => {
                if let Some(count) = self.in_flight.get_mut(replica as usize) {
                    *count -= 1;
                }
            }
            Ev::Asks { tenant, order } => {
                if let Some(Keeper::Leased(leased)) = self.tenants[tenant].as_mut().map(|known| &mut known.keeper)
                    && let Some(answer) = leased.bank.apply(Mono(self.now), BankEvent::Ask(order))
                {
                    self.queue.put(self.now + WAY, Ev::Answers { tenant, answer });
                }
            }
            Ev::Answers { tenant, answer } => {
                if let Some(mut known) = self.tenants[tenant].take() {
                    self.answered(tenant, &mut known, answer);
                    self.tenants[tenant] = Some(known);
                }
            }
        }
    }

    fn answered(&mut self, tenant: usize, known: &mut Tenant, answer: Answer) {
        let gateway = usize::try_from(answer.gateway).unwrap_or(usize::MAX);
        let Keeper::Leased(leased) = &mut known.keeper else { return };
        let Some(holder) = leased.holders.get_mut(gateway) else { return };
        holder.apply(Mono(self.now), Event::Answer(answer), &mut self.effects);
        for _ in 0..std::mem::take(&mut leased.parked[gateway]) {
            let Keeper::Leased(leased) = &mut known.keeper else { return };
            let verdict = leased.holders[gateway].spend_again(Mono(self.now), 1, &mut self.effects);
            self.decided(tenant, known, gateway, verdict);
        }
    }

    fn serve(&mut self, known: &mut Tenant) {
        self.admitted += 1;
        if let Err(broken) = known.witness.admitted(Mono(self.now), 1) {
            let what = format!("RATE-1: the bound was passed by {}", broken.by);
            self.broken.get_or_insert(Broken { at: (self.now - START) / MS, what });
        }
        self.candidates.clear();
        let in_flight = &self.in_flight;
        let candidate = |replica: &u32| Candidate { in_flight: in_flight[*replica as usize], ..Candidate::IDLE };
        self.candidates.extend(known.subset.iter().map(candidate));
        let Choice::Serve(at) = choose(&self.candidates, self.chance.draw()) else { return };
        let replica = known.subset[at];
        self.in_flight[replica as usize] += 1;
        self.served[replica as usize] += 1;
        if let Some(second) = self.seconds.get_mut(usize::try_from((self.now - START) / SECOND).unwrap_or(0)) {
            second.1 += 1;
        }
        let service = self.set.get("service_us") * US;
        let takes = service / 2 + self.chance.below(service.max(1));
        self.queue.put(self.now + takes, Ev::Done { replica });
    }

    fn report(self) -> Report {
        let mut holds = vec![0u64; self.served.len()];
        for (replica, _) in &self.held {
            holds[*replica as usize] += 1;
        }
        let known = || self.tenants.iter().flatten();
        let over = known().map(|t| t.witness.worst() as f64 / t.bound.max(1) as f64).fold(0.0, f64::max);
        let messages = self.messages.max(1) as f64;
        let even = self.served.iter().sum::<u64>().max(1) as f64 / self.served.len().max(1) as f64;
        let most = |all: &[u64]| all.iter().max().copied().unwrap_or(0) as f64;
        let figures = vec![
            ("messages", self.messages as f64),
            ("admitted", self.admitted as f64 / messages),
            ("tenants_seen", known().count() as f64 / self.tenants.len().max(1) as f64),
            ("store_calls", self.calls as f64 / messages),
            ("loads", self.held.len() as f64),
            ("fullest", most(&holds) / self.set.get("room").max(1) as f64),
            ("busiest", most(&self.served) / even),
            ("over_share", over),
            ("events", (self.messages + self.queue.count()) as f64),
        ];
        let of = |name, value: fn(&(u64, u64)) -> u64| Series {
            name,
            values: self.seconds.iter().map(|second| value(second) as f64).collect(),
        };
        Report {
            broken: self.broken,
            figures,
            series: vec![of("messages/s", |s| s.0), of("served/s", |s| s.1)],
            acts: Vec::new(),
            log: Vec::new(),
        }
    }
}
