//! Leases: RATE-1 over random histories in which messages are lost, late and out of order, gateways die, and the store goes and comes back.
#![allow(clippy::expect_used, reason = "a test fails loudly")]

use std::time::Duration;

use holdfast_quota::bucket::{Metered, Wait};
use holdfast_quota::lease::*;
use holdfast_quota::limit::{Allowance, Limit, Rate};
use holdfast_quota::rate1::Witness;
use holdfast_quota::scopes::{Gate, Scope, take_all};
use holdfast_types::Mono;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const START: Mono = Mono(3_600_000 * MS);

fn at(ms: u64) -> Mono {
    Mono(START.0 + ms * MS)
}

fn bank(limit: Limit) -> Bank {
    Bank::new(limit, Rules::default(), START)
}

/// Spends through an order that is answered at once; says whether it passes.
fn spend(holder: &mut Holder, bank: &mut Bank, now: Mono, cost: u64) -> bool {
    let mut effects = Vec::new();
    let mut verdict = holder.spend(now, cost, &mut effects);
    while let Some(Effect::Ask(ask)) = effects.pop() {
        if let Some(answer) = bank.apply(now, BankEvent::Ask(ask)) {
            holder.apply(now, Event::Answer(answer), &mut effects);
        }
        verdict = if verdict == Verdict::Pass { verdict } else { holder.spend_again(now, cost, &mut effects) };
    }
    verdict == Verdict::Pass
}

#[test]
fn granted_nothing_it_waits_a_chunks_time() {
    let limit = Limit::per_second(1_000, 100);
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 1), START));
    assert_eq!((0..1_000).filter(|_| spend(&mut holder, &mut bank, at(0), 1)).count(), 100);
    let mut effects = Vec::new();
    assert_eq!(holder.spend(at(24), 1, &mut effects), Verdict::Refused(Wait::For(Duration::from_millis(1))));
    assert_eq!(effects, []);
    assert!(spend(&mut holder, &mut bank, at(25), 1));
    assert_eq!(holder.held(), 24);
}

/// The last word of a request that is refused here and has asked before.
fn refused(holder: &mut Holder, bank: &mut Bank, now: Mono, cost: u64) -> Wait {
    assert!(!spend(holder, bank, now, cost), "at {now:?}");
    match holder.spend_again(now, cost, &mut Vec::new()) {
        Verdict::Refused(wait) => wait,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn who_is_refused_is_told_when_there_is_a_token() {
    let limit = Limit { rate: Rate::new(6, Duration::from_secs(60)), burst: 2 };
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 1), START));
    assert!((0..2).all(|_| spend(&mut holder, &mut bank, at(0), 1)));
    assert_eq!(refused(&mut holder, &mut bank, at(0), 1), Wait::For(Duration::from_secs(10)));
    // The store is asked each second, and says the same.
    for second in 1..10 {
        let left = Wait::For(Duration::from_secs(10 - second));
        assert_eq!(refused(&mut holder, &mut bank, at(second * 1_000), 1), left, "after {second} s");
    }
    assert!(spend(&mut holder, &mut bank, at(10_000), 1));
}

#[test]
fn who_wants_more_than_a_chunk_is_told_when_all_of_it_is_there() {
    let limit = Limit::per_second(1_000, 4_000);
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 1), START));
    assert!(spend(&mut holder, &mut bank, at(0), 4_000));
    let Wait::For(wait) = refused(&mut holder, &mut bank, at(100), 2_000) else { unreachable!("never") };
    assert_eq!(wait, Duration::from_millis(1_900));
    assert!(spend(&mut holder, &mut bank, at(2_000), 2_000));
}

#[test]
fn unused_tokens_go_back_once() {
    let limit = Limit::per_second(10, 100);
    let sharing = Sharing { chunk: 10_000, fraction: 10_000 };
    let mut bank = Bank::new(limit, Rules { sharing, ..Rules::default() }, START);
    let mut holder = Holder::new(1, Terms { sharing, ..Terms::new(limit, 1) }, START);
    assert!(spend(&mut holder, &mut bank, at(0), 1));
    assert_eq!((holder.held(), bank.out()), (9, 10));
    assert_eq!(holder.wakes_at(), Some(at(1_000)));
    let mut effects = Vec::new();
    holder.apply(at(1_000), Event::Tick, &mut effects);
    let [Effect::Ask(back)] = effects[..] else { unreachable!("{effects:?}") };
    assert_eq!((back.want, back.returned, holder.held()), (0, 9, 0));
    assert_eq!((holder.received(), holder.unused()), (10, 9), "one was spent");
    assert!(bank.apply(at(1_000), BankEvent::Ask(back)).is_some_and(|answer| answer.tokens == 0));
    assert_eq!(bank.apply(at(1_000), BankEvent::Ask(back)), None, "a return that arrives twice counts once");
    assert_eq!(bank.out(), 0);
}

#[test]
fn a_lost_answer_loses_its_tokens_and_a_late_one_is_not_looked_at() {
    let limit = Limit::per_second(1_000, 1_000);
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 2), START));
    let mut effects = Vec::new();
    assert!(matches!(holder.spend(at(0), 1, &mut effects), Verdict::Ordered(_)));
    let Some(Effect::Ask(ask)) = effects.pop() else { unreachable!() };
    let late = bank.apply(at(1), BankEvent::Ask(ask)).expect("an answer");
    assert_eq!(late.tokens, 25);
    holder.apply(at(20), Event::Tick, &mut effects);
    assert!(holder.is_alone());
    holder.apply(at(21), Event::Answer(late), &mut effects);
    assert_eq!((holder.held(), holder.is_alone()), (0, true));
}

#[test]
fn alone_each_has_a_fraction_never_none_and_serves_at_once_what_it_held() {
    let limit = Limit::per_second(1_000, 1_000);
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 4), START));
    assert!((0..5).all(|_| spend(&mut holder, &mut bank, at(0), 1)));
    holder.apply(at(0), Event::Failed(1), &mut Vec::new());
    assert!(!holder.is_alone(), "only the order that is open can fail");
    assert!((0..20).all(|_| spend(&mut holder, &mut bank, at(0), 1)));
    let mut effects = Vec::new();
    holder.spend(at(1), 1, &mut effects);
    holder.apply(at(1), Event::Failed(2), &mut effects);
    effects.clear();
    let admitted = (0..4_000).filter(|ms| holder.spend(at(2 + ms), 1, &mut effects) == Verdict::Pass).count();
    assert!((995..=1_000).contains(&admitted), "{admitted} in 4 s, of 250 a second");
    // A limit of 1 a second for 50 gateways: one in 50 s for each.
    let mut small = Holder::new(1, Terms::new(Limit::per_second(1, 1), 50), START);
    small.spend(at(0), 1, &mut effects);
    let admitted = (20..100_021).step_by(10).filter(|ms| small.spend(at(*ms), 1, &mut effects) == Verdict::Pass);
    assert_eq!(admitted.count(), 2);
}

#[test]
fn what_arose_afterwards_is_paid_by_the_next_tokens() {
    let limit = Limit::per_second(1_000, 1_000);
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 4), START));
    assert!(spend(&mut holder, &mut bank, at(0), 1));
    holder.charge(at(0), 30);
    assert_eq!(holder.held(), 0);
    assert!(spend(&mut holder, &mut bank, at(0), 1));
    assert_eq!(holder.held(), 25 - 6 - 1);
    // Down to one chunk of debt: one chunk pays it, and the next one is there to be spent. Four chunks are gone in all.
    holder.charge(at(0), 1_000);
    assert!(spend(&mut holder, &mut bank, at(0), 1));
    assert_eq!(holder.held(), 24);
    assert!(spend(&mut holder, &mut bank, at(0), 1_000 - 4 * 25 + 24));
    assert!(!spend(&mut holder, &mut bank, at(0), 1));
}

#[test]
fn a_lease_is_a_purse_beside_buckets() {
    let limit = Limit::per_second(1_000, 1_000);
    let (mut bank, mut tenant) = (bank(limit), Holder::new(1, Terms::new(limit, 4), START));
    let mut user = Metered::new(Allowance::of(Limit::per_second(10, 10)), START);
    assert!(spend(&mut tenant, &mut bank, at(0), 1));
    let mut effects = Vec::new();
    let mut pass = |cost: u64| {
        let mut tenant = Leased { holder: &mut tenant, effects: &mut effects, verdict: None };
        let gates = [Gate::new(Scope::Tenant, &mut tenant, cost), Gate::new(Scope::User, &mut user, cost)];
        take_all(at(0), &mut { gates }).map_err(|refused| refused.scope)
    };
    assert_eq!([pass(8), pass(3), pass(2)], [Ok(0), Err(Scope::User), Ok(0)]);
    assert_eq!(tenant.held(), 24 - 8 - 2);
}

/// Nobody is named as the owner: who holds the one chunk that may be out is the owner for as long as it does.
#[test]
fn a_limit_that_is_too_small_to_share_has_one_chunk_out_among_fifty_gateways() {
    let limit = Limit::per_second(10, 10);
    let mut bank = bank(limit);
    let mut holders: Vec<Holder> = (0..50).map(|id| Holder::new(id, Terms::new(limit, 50), START)).collect();
    let bound = over_admission_bound(10, 50, Sharing::default());
    let mut witness = Witness::new(limit, bound, START);
    let mut passed = 0;
    for ms in 0..20_000 {
        for (id, holder) in holders.iter_mut().enumerate() {
            // Each is offered four a second, so all together twenty times the limit.
            if (ms + id as u64 * 5).is_multiple_of(250) && spend(holder, &mut bank, at(ms), 1) {
                assert!(witness.admitted(at(ms), 1).is_ok(), "at {ms} ms");
                passed += 1;
            }
        }
        let held: u64 = holders.iter().map(Holder::held).sum();
        assert!(held <= bound, "{held} are held at {ms} ms");
    }
    assert!((209..=210 + bound).contains(&passed), "ten a second and the burst: {passed}");
}

#[test]
fn a_token_of_a_small_limit_that_one_gateway_has_spent_keeps_no_other_from_the_next() {
    let limit = Limit { rate: Rate::new(60, Duration::from_secs(60)), burst: 10 };
    let mut bank = bank(limit);
    let mut holders: Vec<Holder> = (0..3).map(|id| Holder::new(id, Terms::new(limit, 3), START)).collect();
    let passed = (0..30).filter(|n| spend(&mut holders[n % 3], &mut bank, at(0), 1)).count();
    assert_eq!((passed, bank.out()), (10, 0));
}

#[test]
fn what_was_not_used_of_a_small_limit_goes_back_to_the_bank_and_no_more_than_was_taken() {
    let limit = Limit { rate: Rate::new(60, Duration::from_secs(60)), burst: 10 };
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 3), START));
    assert!((0..10).all(|_| spend(&mut holder, &mut bank, at(0), 1)));
    let mut give_back = |bank: &mut Bank, tokens: u64| {
        let mut effects = Vec::new();
        holder.give_back(at(1), tokens);
        assert_eq!(holder.held(), 0);
        holder.apply(at(1), Event::Tick, &mut effects);
        let [Effect::Ask(ask)] = effects[..] else { panic!("{effects:?}") };
        bank.apply(at(1), BankEvent::Ask(ask)).unwrap().there
    };
    assert_eq!(give_back(&mut bank, 3), 3);
    assert_eq!(give_back(&mut bank, 100), 10);
    // Of a store that has lost its bucket nothing comes back.
    bank.apply(at(1), BankEvent::Lost);
    assert_eq!(give_back(&mut bank, 1), 0);
}

#[test]
fn one_request_larger_than_a_chunk_is_ordered_as_a_whole() {
    let limit = Limit::per_second(1_000, 1_000);
    let (mut bank, mut holder) = (bank(limit), Holder::new(1, Terms::new(limit, 4), START));
    assert!(spend(&mut holder, &mut bank, at(0), 400));
    assert!(spend(&mut holder, &mut bank, at(0), 600));
    assert!(!spend(&mut holder, &mut bank, at(0), 1));
    assert!(holder.held() <= holder.chunk());
    assert_eq!(holder.spend(at(5_000), 1_001, &mut Vec::new()), Verdict::Refused(Wait::Never));
    // Larger than the chunk of many gateways, and not than that of few.
    let (mut bank, mut holder) = (self::bank(limit), Holder::new(1, Terms::new(limit, 50), START));
    assert!((0..50).all(|_| spend(&mut holder, &mut bank, at(0), 20)));
    assert!(!spend(&mut holder, &mut bank, at(0), 20));
}

#[test]
fn a_dead_gateways_place_is_free_when_its_lease_ends_and_a_silent_one_drops_its_tokens_before() {
    let limit = Limit::per_second(1_000, 1_000);
    let mut bank = bank(limit);
    let mut holders: Vec<Holder> = (0..50).map(|g| Holder::new(g, Terms::new(limit, 50), START)).collect();
    assert!(holders.iter_mut().all(|holder| spend(holder, &mut bank, at(0), 1)));
    assert_eq!(bank.gateways(), 50);
    assert!(spend(&mut holders[0], &mut bank, at(5_000), 8));
    assert_eq!((bank.gateways(), bank.out()), (50, 8), "one lease, of 50 live gateways");
    assert_eq!(bank.apply(at(5_000), BankEvent::Gone(0)), None);
    assert_eq!(bank.out(), 0);
    let received = holders[1].received();
    holders[1].apply(at(5_000), Event::Tick, &mut Vec::new());
    assert_eq!((holders[1].held(), holders[1].unused()), (0, received - 1));
}

#[test]
fn a_lost_bucket_comes_back_empty_and_more_gateways_than_are_told_apart_get_nothing() {
    let limit = Limit::per_second(100, 1_000);
    let mut bank = Bank::new(limit, Rules { most_gateways: 1, ..Rules::default() }, START);
    bank.apply(at(0), BankEvent::Lost);
    let (mut holder, mut other) =
        (Holder::new(1, Terms::new(limit, 2), START), Holder::new(2, Terms::new(limit, 2), START));
    assert!(!spend(&mut holder, &mut bank, at(0), 1));
    assert_eq!((1..=100).filter(|_| spend(&mut holder, &mut bank, at(1_000), 1)).count(), 100);
    assert!(!spend(&mut other, &mut bank, at(2_000), 1));
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Spend(usize, u64),
    GiveBack(usize),
    Tick,
    /// Delivers, loses or repeats one of the messages that are on their way.
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    Fail,
    Die(usize),
    End(usize),
    StoreLoses,
    /// A gateway learns of another number of live gateways.
    Believes(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..30u64).prop_map(Step::Pass),
        1 => (0..4_000u64).prop_map(Step::Pass),
        10 => (0..8usize, 1..4u64).prop_map(|(g, cost)| Step::Spend(g, cost)),
        1 => (0..8usize).prop_map(Step::GiveBack),
        2 => Just(Step::Tick),
        12 => (0..8usize).prop_map(Step::Deliver),
        1 => (0..8usize).prop_map(Step::Lose),
        1 => (0..8usize).prop_map(Step::Repeat),
        1 => Just(Step::Fail),
        1 => (0..8usize).prop_map(Step::Die),
        1 => (0..8usize).prop_map(Step::End),
        1 => Just(Step::StoreLoses),
        1 => (0..8usize, 1..9u32).prop_map(|(g, live)| Step::Believes(g, live)),
    ]
}

#[derive(Clone, Debug)]
enum Mail {
    Ask(Ask),
    Answer(Answer),
}

struct World {
    now: Mono,
    limit: Limit,
    bank: Bank,
    holders: Vec<Holder>,
    mail: Vec<Mail>,
    witness: Witness,
    next: u64,
}

impl World {
    fn new(rate: u64, burst: u64, gateways: u32, chunk: u32) -> Self {
        let (limit, sharing) = (Limit::per_second(rate, burst), Sharing { chunk, ..Sharing::default() });
        let terms = Terms { sharing, ..Terms::new(limit, gateways) };
        // Every gateway may have died and come again with what it held counted once more, until its lease ends.
        let bound = u64::from(gateways) * chunk_of(rate, gateways, sharing);
        Self {
            now: START,
            limit,
            bank: Bank::new(limit, Rules { sharing, ..Rules::default() }, START),
            holders: (0..u64::from(gateways)).map(|g| Holder::new(g, terms, START)).collect(),
            mail: Vec::new(),
            witness: Witness::new(limit, bound, START),
            next: 100,
        }
    }

    fn holder(&mut self, at: usize) -> &mut Holder {
        let count = self.holders.len();
        &mut self.holders[at % count]
    }

    fn send(&mut self, effects: Vec<Effect>) {
        self.mail.extend(effects.into_iter().map(|Effect::Ask(ask)| Mail::Ask(ask)));
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Ask(ask) => self.mail.extend(self.bank.apply(self.now, BankEvent::Ask(ask)).map(Mail::Answer)),
            Mail::Answer(answer) => {
                let (now, mut effects) = (self.now, Vec::new());
                if let Some(holder) = self.holders.iter_mut().find(|h| h.me() == answer.gateway) {
                    holder.apply(now, Event::Answer(answer), &mut effects);
                }
                self.send(effects);
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let (now, mut effects) = (self.now, Vec::new());
        let place = |at: usize, mail: &[Mail]| (!mail.is_empty()).then(|| at % mail.len().max(1));
        match step {
            Step::Pass(ms) => self.now = Mono(now.0 + ms * MS),
            Step::Spend(g, cost) => {
                if self.holder(g).spend(now, cost, &mut effects) == Verdict::Pass {
                    prop_assert_eq!(self.witness.admitted(now, cost), Ok(()));
                }
            }
            Step::GiveBack(g) => {
                let holder = self.holder(g);
                if holder.spend(now, 1, &mut effects) == Verdict::Pass {
                    holder.give_back(now, 1);
                }
            }
            Step::Tick => self.holders.iter_mut().for_each(|h| h.apply(now, Event::Tick, &mut effects)),
            Step::Deliver(at) => {
                if let Some(at) = place(at, &self.mail) {
                    let mail = self.mail.swap_remove(at);
                    self.deliver(mail);
                }
            }
            Step::Lose(at) => {
                if let Some(at) = place(at, &self.mail) {
                    self.mail.swap_remove(at);
                }
            }
            Step::Repeat(at) => {
                if let Some(at) = place(at, &self.mail) {
                    let mail = self.mail[at].clone();
                    self.deliver(mail);
                }
            }
            // What fails is the order that is open, by its time.
            Step::Fail => self.now = Mono(now.0 + 25 * MS),
            Step::Die(g) => {
                self.next += 1;
                let (next, limit) = (self.next, self.limit);
                let holder = self.holder(g);
                let terms = Terms { limit, ..holder.terms() };
                *holder = Holder::new(next, terms, now);
            }
            Step::End(g) => self.holder(g).apply(now, Event::End, &mut effects),
            Step::Believes(g, gateways) => {
                let holder = self.holder(g);
                let terms = Terms { gateways, ..holder.terms() };
                holder.apply(now, Event::Terms(terms), &mut effects);
            }
            Step::StoreLoses => {
                self.bank.apply(now, BankEvent::Lost);
            }
        }
        self.send(effects);
        self.mail.truncate(64);
        for holder in &self.holders {
            prop_assert!(holder.held_and_ordered() <= holder.chunk().max(3), "{holder:?}");
        }
        Ok(())
    }
}

fn chunk_of(rate: u64, gateways: u32, sharing: Sharing) -> u64 {
    // A gateway by itself may have the whole chunk before the others come, and one may know of more gateways than there are.
    let all = (1..=8).map(|g| over_admission_bound(rate, g, sharing)).max().unwrap_or(1);
    let each = all.max(u64::from(gateways)).div_ceil(u64::from(gateways));
    each.min(sharing.nominal(rate)).max(3)
}

proptest! {
    #[test]
    fn rate_1_holds_while_the_store_answers_whatever_happens_to_gateways(
        rate in 20u64..2_000, burst in 1u64..500, gateways in 1u32..6, chunk in 1u32..2_000,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(rate, burst, gateways, chunk);
        for step in steps {
            // Here whatever is sent arrives at once; what goes wrong with messages is below.
            if matches!(step, Step::Lose(_) | Step::Fail | Step::StoreLoses) {
                continue;
            }
            world.step(step)?;
            while let Some(mail) = world.mail.pop() {
                world.deliver(mail);
            }
        }
    }

    #[test]
    fn what_is_held_stays_within_the_chunk_and_the_long_run_within_the_rate_in_any_history(
        rate in 20u64..2_000, burst in 1u64..500, gateways in 1u32..6, chunk in 1u32..2_000,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(rate, burst, gateways, chunk);
        // Who is cut off goes by its part while the others have all of it: twice the limit, until it comes back and is charged.
        world.witness = Witness::new(Limit::per_second(2 * rate, 2 * burst), u64::from(gateways) * chunk_of(rate, gateways, Sharing { chunk, ..Sharing::default() }), START);
        for step in steps {
            world.step(step)?;
        }
    }
}
