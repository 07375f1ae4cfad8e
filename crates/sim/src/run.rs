//! A run: arrivals, asks and answers in the order of their times, through the machines of `quota::lease` themselves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use holdfast_quota::lease::{
    Answer, Ask, Bank, BankEvent, Effect, Event, Holder, Rules, Terms, Verdict, over_admission_bound,
};
use holdfast_quota::rate1::Witness;
use holdfast_types::Mono;

use crate::chance::Chance;
use crate::lease::{Run, Scenario};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Where the run begins on its clock: a time before it must be a time, too.
const START: u64 = 1_000 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Ask(Ask),
    Answer(Answer),
}

/// Something on its way: when it arrives, its number (so that what arrives at one time has an order), and its place among those on their way.
type Due = Reverse<(u64, usize)>;

struct World<'a> {
    scenario: &'a Scenario,
    bank: Bank,
    holders: Vec<Holder>,
    /// Requests that wait for an open order, by gateway.
    parked: Vec<u64>,
    due: BinaryHeap<Due>,
    mail: Vec<On>,
    effects: Vec<Effect>,
    witness: Witness,
    lost: bool,
    run: Run,
}

/// Simulates one run.
#[must_use]
pub fn run(scenario: &Scenario, seed: u64) -> Run {
    let mut world = World::new(scenario);
    let mut chance = Chance::new(seed);
    let (mean, end) = (SECOND / scenario.offered.max(1), START + scenario.seconds * SECOND);
    let whole: u64 = scenario.shares.iter().sum();
    let mut now = START;
    loop {
        now += chance.exponential(mean);
        let gateway = pick(&scenario.shares, chance.below(whole.max(1)));
        world.deliver(now.min(end));
        if now >= end {
            return world.end();
        }
        world.run.offered_by[gateway] += 1;
        world.request(now, gateway);
    }
}

fn pick(shares: &[u64], at: u64) -> usize {
    let mut sum = 0;
    let found = shares.iter().position(|share| {
        sum += share;
        at < sum
    });
    found.unwrap_or(0)
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let (now, limit, gateways) = (Mono(START), scenario.bucket(), scenario.gateways());
        let rules = Rules { sharing: scenario.sharing, turns_from: scenario.turns_from, ..Rules::default() };
        let holder = |gateway: u32| {
            // Each tries again at a time of its own, as a gateway's jitter would have it.
            let retry = Duration::from_millis(200 + u64::from(gateway) * 200 / u64::from(gateways));
            let terms = Terms { sharing: scenario.sharing, retry, ..Terms::new(limit, gateways) };
            Holder::new(u64::from(gateway), terms, now)
        };
        let none = vec![0; scenario.shares.len()];
        let bound = over_admission_bound(scenario.limit, gateways, scenario.sharing);
        Self {
            scenario,
            bank: Bank::new(limit, rules, now),
            holders: (0..gateways).map(holder).collect(),
            parked: none.clone(),
            due: BinaryHeap::new(),
            mail: Vec::new(),
            effects: Vec::new(),
            witness: Witness::new(limit, bound, now),
            lost: false,
            run: Run {
                admitted: vec![0; usize::try_from(scenario.seconds).unwrap_or(0)],
                offered_by: none.clone(),
                admitted_by: none,
                calls: 0,
                over: 0,
                broken: None,
                most_held: 0,
            },
        }
    }

    fn end(mut self) -> Run {
        self.run.over = self.witness.worst();
        self.run
    }

    /// Whatever arrives until then.
    fn deliver(&mut self, until: u64) {
        while let Some(&Reverse((at, place))) = self.due.peek()
            && at <= until
        {
            self.due.pop();
            self.arrive(at, self.mail[place]);
        }
        if self.due.is_empty() {
            self.mail.clear();
        }
    }

    fn arrive(&mut self, at: u64, what: On) {
        match what {
            On::Ask(ask) => {
                if let Some(answer) = self.store(at, ask) {
                    self.send(at, On::Answer(answer));
                }
            }
            On::Answer(answer) => {
                let Ok(gateway) = usize::try_from(answer.gateway) else { return };
                self.holders[gateway].apply(Mono(at), Event::Answer(answer), &mut self.effects);
                self.note(gateway);
                for _ in 0..std::mem::take(&mut self.parked[gateway]) {
                    let verdict = self.holders[gateway].spend_again(Mono(at), 1, &mut self.effects);
                    self.decided(at, gateway, verdict);
                }
            }
        }
    }

    /// The store's answer, unless it is away.
    fn store(&mut self, at: u64, ask: Ask) -> Option<Answer> {
        let since_start = (at - START) / MS;
        if self.scenario.away.contains(&since_start) {
            return None;
        }
        if self.scenario.loses && !self.lost && since_start >= self.scenario.away.end {
            self.lost = true;
            self.bank.apply(Mono(at), BankEvent::Lost);
        }
        self.bank.apply(Mono(at), BankEvent::Ask(ask))
    }

    fn send(&mut self, at: u64, what: On) {
        let delay = u64::try_from(self.scenario.delay.as_nanos()).unwrap_or(0);
        self.mail.push(what);
        self.due.push(Reverse((at + delay, self.mail.len() - 1)));
    }

    fn request(&mut self, at: u64, gateway: usize) {
        let verdict = self.holders[gateway].spend(Mono(at), 1, &mut self.effects);
        self.decided(at, gateway, verdict);
    }

    fn decided(&mut self, at: u64, gateway: usize, verdict: Verdict) {
        self.note(gateway);
        for Effect::Ask(ask) in std::mem::take(&mut self.effects) {
            self.run.calls += 1;
            self.send(at, On::Ask(ask));
        }
        match verdict {
            Verdict::Pass => self.admit(at, gateway),
            Verdict::Ordered(_) => {
                self.parked[gateway] += 1;
                // A store that is near answers before anything else happens.
                if self.scenario.delay.is_zero() {
                    self.deliver(at);
                }
            }
            Verdict::Refused(_) => {}
        }
    }

    fn admit(&mut self, at: u64, gateway: usize) {
        let second = usize::try_from((at - START) / SECOND).unwrap_or(0);
        if let Some(count) = self.run.admitted.get_mut(second) {
            *count += 1;
        }
        self.run.admitted_by[gateway] += 1;
        if let Err(broken) = self.witness.admitted(Mono(at), 1) {
            self.run.broken.get_or_insert(broken);
        }
    }

    fn note(&mut self, gateway: usize) {
        self.run.most_held = self.run.most_held.max(self.holders[gateway].held_and_ordered());
    }
}
