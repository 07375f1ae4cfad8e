//! The store's side of one shared limit.
//!
//! With few gateways that want more than there is, each asks once in a chunk's time and gets a part; that is cheap and smooth. With many, most of such calls
//! would be in vain, so the bank gives out turns: each answer names the time before which it is no use to ask, one chunk's time after another. Then the number
//! of calls follows the chunks that the limit makes, and not the number of gateways. A turn is a time and no promise: who does not come leaves the
//! tokens to the next, and one number is all that the bank keeps for it.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_types::Mono;

use super::size::{Sharing, chunk, chunk_nanos, over_admission_bound};
use crate::bucket::{Bucket, Wait};
use crate::limit::Limit;

/// A process of a gateway. A restarted gateway is another one: the numbers of its orders begin anew.
pub type GatewayId = u64;

/// How a bank shares its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The size of a chunk.
    pub sharing: Sharing,
    /// From this many gateways on that want more than there is, answers name turns.
    pub turns_from: u32,
    /// How long tokens may be held, and how long a silent gateway counts.
    pub lease: Duration,
    /// After a time in which all were alone they stay so for this much longer, so that they come back at one moment. Longer than [`super::Terms::retry`].
    pub settle: Duration,
    /// At most so many gateways; more are granted nothing.
    pub most_gateways: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            sharing: Sharing::default(),
            turns_from: 5,
            lease: Duration::from_secs(5),
            settle: Duration::from_millis(500),
            most_gateways: 1_024,
        }
    }
}

/// Who has not asked for this long wants nothing at the moment. No turn is further away.
const WANTS: Duration = Duration::from_secs(1);

/// What a gateway asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who.
    pub gateway: GatewayId,
    /// The order's number; grows with each ask and return of a gateway.
    pub order: u64,
    /// Tokens wanted, at most; none to give back only.
    pub want: u64,
    /// They are for one request that is larger than a chunk, and may pass it.
    pub whole: bool,
    /// Tokens held, beside those that are wanted.
    pub held: u64,
    /// What the gateway was offered since its last ask, in tokens.
    pub offered: u64,
    /// Live gateways, as far as this one knows.
    pub gateways: u32,
    /// Unused tokens that go back with this ask.
    pub returned: u64,
    /// For how long the gateway was without the bank, and what it admitted meanwhile by its own bucket.
    pub alone: Option<(Duration, u64)>,
}

/// What happens to a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A gateway asks.
    Ask(Ask),
    /// The limit is another one. What is in use stays in use.
    Limit(Limit),
    /// The bucket was lost with its store.
    Lost,
    /// A gateway says that it ends.
    Gone(GatewayId),
}

/// What a gateway is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who.
    pub gateway: GatewayId,
    /// The order's number.
    pub order: u64,
    /// Tokens granted.
    pub tokens: u64,
    /// The most that the gateway may hold from now on.
    pub chunk: u64,
    /// Gateways that share the limit.
    pub gateways: u32,
    /// Before this much time it is no use to ask again.
    pub ask_after: Duration,
    /// How long the tokens may be held, from when they were asked for.
    pub lease: Duration,
    /// The gateway goes on alone for this long after it asked, and then leases again.
    pub alone_for: Duration,
    /// When the bank's bucket has a token again, if nobody else takes it: what a refused client is told. In whole microseconds, rounded up.
    pub next_in: Duration,
    /// Tokens that the bank has left.
    pub there: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    order: u64,
    /// The most that the gateway may hold, by what it said and was granted.
    out: u64,
    /// Of a limit that is too small to share: what it was granted and has spent since, some of which may come back.
    spent: u64,
    asked: Mono,
    demand: Demand,
}

/// What a gateway was offered, and in how much time: the last sixteen asks or so count. A quotient of two sums, so that the short times between
/// the first asks weigh as little as they say.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    /// In thousandths of a token.
    offered: u64,
    micros: u64,
}

impl Demand {
    fn and(self, offered: u64, micros: u64) -> Self {
        let add = |sum: u64, new: u64| (sum - sum / 16).saturating_add(new);
        Self { offered: add(self.offered, offered.saturating_mul(1_000)), micros: add(self.micros, micros) }
    }

    /// In thousandths of a token per second. Zero: not known.
    fn rate(self) -> u64 {
        u64::try_from(u128::from(self.offered) * 1_000_000 / u128::from(self.micros.max(1))).unwrap_or(u64::MAX)
    }
}

/// The store's side of one shared limit.
#[derive(Clone, Debug)]
pub struct Bank {
    limit: Limit,
    rules: Rules,
    bucket: Bucket,
    leases: BTreeMap<GatewayId, Lease>,
    /// Live gateways, as the last one that asked knows: the first to come must not take the parts of those that come after.
    live: u32,
    next_turn: Mono,
    /// The last ask of a gateway that was not alone.
    last_ask: Mono,
    /// Until then no tokens are made, since all were alone.
    opens: Mono,
}

impl Bank {
    /// A bank whose bucket is full: for a limit that is new.
    #[must_use]
    pub fn new(limit: Limit, rules: Rules, now: Mono) -> Self {
        Self { bucket: Bucket::full(limit, now), ..Self::after_loss(limit, rules, now) }
    }

    /// A bank whose bucket is empty: what was there before is not known.
    #[must_use]
    pub fn after_loss(limit: Limit, rules: Rules, now: Mono) -> Self {
        let bucket = Bucket::empty(now);
        Self {
            limit,
            rules,
            bucket,
            leases: BTreeMap::new(),
            live: 1,
            next_turn: now,
            last_ask: Mono::ZERO,
            opens: now,
        }
    }

    /// Takes an event in. Whatever asks is answered, but for an order that is older than the gateway's last.
    pub fn apply(&mut self, now: Mono, event: Event) -> Option<Answer> {
        match event {
            Event::Ask(ask) => return self.ask(now, ask),
            // The same limit again is no change, which would let a debt off.
            Event::Limit(limit) if limit == self.limit => {}
            Event::Limit(limit) => {
                self.bucket.change(self.limit, limit, now.max(self.opens));
                self.limit = limit;
            }
            Event::Lost => *self = Self::after_loss(self.limit, self.rules, now),
            Event::Gone(gateway) => {
                self.leases.remove(&gateway);
            }
        }
        None
    }

    /// Gateways that share the limit: the live ones, and one at least; of a limit that is too small to share, those that have a lease.
    #[must_use]
    pub fn gateways(&self) -> u32 {
        if self.is_small() { self.holders() } else { self.holders().max(self.live) }
    }

    fn holders(&self) -> u32 {
        u32::try_from(self.leases.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Whether the limit is too small to share: one chunk is out at a time, and goes from gateway to gateway.
    fn is_small(&self) -> bool {
        !self.rules.sharing.is_shareable(self.per_second(), self.holders().max(self.live))
    }

    /// The most tokens that gateways may hold at this moment.
    #[must_use]
    pub fn out(&self) -> u64 {
        self.leases.values().fold(0, |sum, lease| sum.saturating_add(lease.out))
    }

    fn ask(&mut self, now: Mono, ask: Ask) -> Option<Answer> {
        let life = self.rules.lease;
        self.leases.retain(|_, lease| now.since(lease.asked) < life);
        let known = self.leases.get(&ask.gateway).copied();
        if known.is_some_and(|lease| ask.order <= lease.order) {
            return None;
        }
        self.live = ask.gateways;
        if known.is_none() && self.leases.len() >= self.rules.most_gateways {
            return Some(self.answer(now, ask, 0, 1, life));
        }
        if let Some(alone_for) = ask.alone.and_then(|(span, admitted)| self.settle_alone(now, span, admitted)) {
            let answer = self.answer(now, ask, 0, self.chunk_of(0), Duration::ZERO);
            return Some(Answer { alone_for, ..answer });
        }
        // Only tokens that are known to be out come back: from a lease that was lost or has ended there are none.
        let (out, spent) = known.map_or((0, 0), |lease| (lease.out, lease.spent));
        let back = ask.returned.min(out.saturating_add(spent));
        let left = out.saturating_add(spent).saturating_sub(back.saturating_add(ask.held));
        let spent = if self.is_small() { left.min(self.limit.burst) } else { 0 };
        self.bucket.give_back(self.limit, now.max(self.opens), back);
        let demand = known.map_or(Demand::default(), |lease| {
            let micros = u64::try_from(now.since(lease.asked).as_micros()).unwrap_or(u64::MAX);
            lease.demand.and(ask.offered, micros)
        });
        self.leases.insert(ask.gateway, Lease { order: ask.order, out: ask.held, spent, asked: now, demand });
        if ask.alone.is_none() {
            self.last_ask = now;
        }
        let chunk = self.chunk_of(demand.rate());
        let tokens = self.grant(now, ask, chunk);
        let ask_after = self.ask_after(now, ask, tokens, chunk);
        Some(self.answer(now, ask, tokens, chunk, ask_after))
    }

    fn answer(&self, now: Mono, ask: Ask, tokens: u64, chunk: u64, ask_after: Duration) -> Answer {
        let (gateways, lease, alone_for) = (self.gateways(), self.rules.lease, Duration::ZERO);
        let next_in = self.next_in(now);
        let there = self.bucket.available(self.limit, now.max(self.opens));
        let (gateway, order) = (ask.gateway, ask.order);
        Answer { gateway, order, tokens, chunk, gateways, ask_after, lease, alone_for, next_in, there }
    }

    fn next_in(&self, now: Mono) -> Duration {
        let opens = now.max(self.opens);
        let Wait::For(wait) = self.bucket.wait(self.limit, opens, 1) else { return Duration::ZERO };
        let wait = if wait.is_zero() { wait } else { wait + opens.since(now) };
        Duration::from_micros(u64::try_from(wait.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    fn per_second(&self) -> u64 {
        self.limit.rate.whole_per_second()
    }

    /// A gateway's chunk. While every gateway can have the chunk for few, every one does; else what all may hold is shared by what each is offered.
    fn chunk_of(&self, demand: u64) -> u64 {
        let (rate, gateways, sharing) = (self.per_second(), self.gateways(), self.rules.sharing);
        let (even, nominal) = (chunk(rate, gateways, sharing), sharing.nominal(rate));
        if even == nominal {
            return nominal;
        }
        let all: u128 = self.leases.values().map(|lease| u128::from(lease.demand.rate())).sum();
        let share = u128::from(over_admission_bound(rate, gateways, sharing)) * u128::from(demand) / all.max(1);
        let mine = if all == 0 || demand == 0 { even } else { u64::try_from(share).unwrap_or(u64::MAX) };
        mine.clamp(1, nominal)
    }

    /// Takes what is granted from the bucket: what is wanted, what is there, and no more than may be out altogether.
    fn grant(&mut self, now: Mono, ask: Ask, chunk: u64) -> u64 {
        let bound = over_admission_bound(self.per_second(), self.gateways(), self.rules.sharing);
        let room = bound.saturating_sub(self.out());
        let most = if ask.whole { ask.want } else { ask.want.min(chunk.saturating_sub(ask.held)).min(room) };
        let tokens = self.bucket.take_up_to(self.limit, now.max(self.opens), most);
        if let Some(lease) = self.leases.get_mut(&ask.gateway) {
            lease.out = lease.out.saturating_add(tokens);
        }
        tokens
    }

    /// When it is worth to ask again.
    fn ask_after(&mut self, now: Mono, ask: Ask, tokens: u64, chunk: u64) -> Duration {
        // While there is a whole chunk for everybody nobody need wait for a turn.
        let everybody = over_admission_bound(self.per_second(), self.gateways(), self.rules.sharing);
        let there = self.bucket.available(self.limit, now.max(self.opens));
        if ask.want == 0 || (tokens > 0 && there >= everybody.min(self.limit.burst / 2).max(1)) {
            return Duration::ZERO;
        }
        // The bucket has tokens and the one chunk is out: it is spent at once, which the bank is told at once.
        if tokens == 0 && there > 0 && self.is_small() {
            return Duration::ZERO;
        }
        let chunk_time = chunk_nanos(chunk, self.per_second());
        let wanting = self.leases.values().filter(|lease| now.since(lease.asked) < WANTS).count();
        if wanting < usize::try_from(self.rules.turns_from).unwrap_or(usize::MAX) {
            return if tokens > 0 { Duration::ZERO } else { Duration::from_nanos(chunk_time) };
        }
        let turn = Duration::from_nanos(chunk_time);
        self.next_turn = self.next_turn.max(now).after(turn).min(now.after(WANTS));
        self.next_turn.since(now).max(turn)
    }

    /// A gateway was alone. If nobody was served meanwhile, all were: what they admitted is the rate of that time, and so that time makes no tokens; and since they
    /// come back one after another, all go on alone until the last has come. Else this one went on by its part of the limit while the others had all of
    /// it, and is charged for that time.
    ///
    /// The bucket is not looked at before it is known which time it shall skip.
    fn settle_alone(&mut self, now: Mono, span: Duration, admitted: u64) -> Option<Duration> {
        let since = Mono(now.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        if now >= self.opens && since >= self.last_ask && since >= self.opens {
            self.opens = now.after(self.rules.settle);
            self.bucket.skip_to(self.opens);
        }
        if now < self.opens {
            return Some(self.opens.since(now));
        }
        let beside = now.since(since.max(self.opens)).as_nanos();
        let charged = (u128::from(admitted) * beside).div_ceil(span.as_nanos().max(1));
        self.bucket.charge(self.limit, now, u64::try_from(charged).unwrap_or(u64::MAX).min(admitted));
        None
    }
}
