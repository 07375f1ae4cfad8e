//! A gateway's side of one shared limit: it spends what it holds, asks for more in time, and goes by its part of the limit when nobody answers.

use std::time::Duration;

use holdfast_types::Mono;

use super::bank::{Answer, Ask, GatewayId};
use super::size::chunk_nanos;
use super::terms::Terms;
use crate::bucket::{Bucket, Wait};
use crate::limit::Limit;

/// What happens to a holder, beside requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The bank answers.
    Answer(Answer),
    /// The order of this number has failed: the store is not there, or says no.
    Failed(u64),
    /// Time passes. Wanted at least as often as `answer_within` while an order is open.
    Tick,
    /// The terms have changed: another limit, another number of gateways. What is in use stays in use.
    Terms(Terms),
    /// The gateway ends: what it holds goes back.
    End,
}

/// What a holder wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the bank. For [`Ask::want`] of none there is no answer to wait for.
    Ask(Ask),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Pass,
    /// It may pass when the open order is answered, which is soon; or it is refused with this wait.
    Ordered(Wait),
    /// It is refused.
    Refused(Wait),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    order: u64,
    want: u64,
    at: Mono,
}

#[derive(Clone, Copy, Debug)]
struct Alone {
    since: Mono,
    bucket: Bucket,
    admitted: u64,
    /// When it ends, once the bank has said.
    until: Option<Mono>,
}

/// A gateway's side of one shared limit.
#[derive(Clone, Debug)]
pub struct Holder {
    me: GatewayId,
    terms: Terms,
    chunk: u64,
    held: u64,
    /// What was charged and not there; the next tokens pay it.
    debt: u64,
    /// When the tokens that are held are not ours any more.
    expires: Mono,
    open: Option<Open>,
    order: u64,
    received: u64,
    unused: u64,
    /// The bank counts tokens of a small limit as held here.
    counted: bool,
    /// Of a small limit: tokens that go back with the next ask.
    returning: u64,
    ask_at: Mono,
    /// When the bank had a token again, by its last answer.
    next_at: Mono,
    /// What the bank had left, by its last answer.
    there: u64,
    used: Mono,
    offered: u64,
    alone: Option<Alone>,
}

impl Holder {
    /// One that holds nothing.
    #[must_use]
    pub fn new(me: GatewayId, terms: Terms, now: Mono) -> Self {
        let chunk = terms.chunk();
        Self {
            me,
            terms,
            chunk,
            held: 0,
            debt: 0,
            expires: now,
            open: None,
            order: 0,
            received: 0,
            unused: 0,
            counted: false,
            returning: 0,
            ask_at: now,
            next_at: now,
            there: 0,
            used: now,
            offered: 0,
            alone: None,
        }
    }

    /// A request of this cost. A cost above a chunk is ordered as a whole; until it is there, what is held may pass a chunk for it.
    pub fn spend(&mut self, now: Mono, cost: u64, effects: &mut Vec<Effect>) -> Verdict {
        self.offered = self.offered.saturating_add(cost);
        self.spend_again(now, cost, effects)
    }

    /// The same for a request that has waited for an order: it is not offered twice.
    pub fn spend_again(&mut self, now: Mono, cost: u64, effects: &mut Vec<Effect>) -> Verdict {
        self.settle_time(now);
        if cost > self.terms.limit.burst {
            return Verdict::Refused(Wait::Never);
        }
        self.used = now;
        if self.alone.is_some() {
            return self.spend_alone(now, cost, effects);
        }
        let passes = self.held >= cost;
        if passes {
            self.held -= cost;
        }
        if !passes || self.held < self.terms.low_water.min(self.chunk) {
            self.order_for(now, if passes { 0 } else { cost }, effects);
        }
        self.tell(effects);
        match (passes, self.open) {
            (true, _) => Verdict::Pass,
            (false, Some(_)) => Verdict::Ordered(self.wait(now, cost)),
            (false, None) => Verdict::Refused(self.wait(now, cost)),
        }
    }

    /// Puts back what was spent and not used. What a chunk has no room for is lost: a token can be given up, never made. Of a limit that is too small to share
    /// it goes back to the bank with the next [`Event::Tick`], since another gateway may hold the chunk by now.
    pub fn give_back(&mut self, now: Mono, tokens: u64) {
        self.settle_time(now);
        let terms = self.alone_limit();
        match &mut self.alone {
            Some(alone) => {
                alone.bucket.give_back(terms, now, tokens);
                alone.admitted = alone.admitted.saturating_sub(tokens);
            }
            None if self.terms.is_small() => {
                self.returning = self.returning.saturating_add(tokens);
                self.unused = self.unused.saturating_add(tokens);
            }
            None => {
                let ordered = self.open.map_or(0, |open| open.want);
                let room = self.chunk.saturating_sub(self.held.saturating_add(ordered));
                self.held += tokens.min(room);
                self.unused = self.unused.saturating_add(tokens.saturating_sub(room));
            }
        }
    }

    /// Takes a cost that has arisen already: from what is held, and the rest from what comes next. The debt is one chunk at most, as is what can be given
    /// back, so that a store that is away is not followed by a long silence.
    pub fn charge(&mut self, now: Mono, cost: u64) {
        self.settle_time(now);
        let limit = self.alone_limit();
        if let Some(alone) = &mut self.alone {
            alone.bucket.charge(limit, now, cost);
            alone.admitted = alone.admitted.saturating_add(cost);
            return;
        }
        let paid = self.held.min(cost);
        self.held -= paid;
        self.debt = self.debt.saturating_add(cost - paid).min(self.chunk);
    }

    /// Takes an event in.
    pub fn apply(&mut self, now: Mono, event: Event, effects: &mut Vec<Effect>) {
        self.settle_time(now);
        match event {
            Event::Answer(answer) => self.answered(now, answer),
            Event::Failed(order) => {
                if self.open.is_some_and(|open| open.order == order) {
                    self.fail(now);
                }
            }
            Event::Tick => self.tick(now, effects),
            Event::Terms(terms) => self.change(now, terms),
            Event::End => self.return_all(now, effects),
        }
    }

    /// Who it is.
    #[must_use]
    pub const fn me(&self) -> GatewayId {
        self.me
    }

    /// Its terms.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Tokens held.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// What is left of the limit as far as is known here: what is held, and what the bank had at its last answer. That is at most a lease ago, for who holds
    /// nothing has to ask.
    #[must_use]
    pub fn left(&self, now: Mono) -> u64 {
        let held = self.alone.map_or(self.held, |alone| alone.bucket.available(self.alone_limit(), now));
        held.saturating_add(self.there).min(self.terms.limit.burst)
    }

    /// Tokens that have come since the start. All of them are held, were spent, or are [unused](Self::unused).
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Tokens that came and left without being spent: they went back, their lease ended, or there was no room for them.
    #[must_use]
    pub const fn unused(&self) -> u64 {
        self.unused
    }

    /// Tokens held and on order.
    #[must_use]
    pub fn held_and_ordered(&self) -> u64 {
        self.held.saturating_add(self.open.map_or(0, |open| open.want))
    }

    /// The most that may be held, but for one larger request.
    #[must_use]
    pub const fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Whether it goes by its part of the limit, since the store does not answer.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// When [`Event::Tick`] is next of use. None: after the next request or answer.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Mono> {
        let answer = self.open.map(|open| open.at.after(self.terms.answer_within));
        let retry = self.alone.filter(|_| self.open.is_none()).map(|_| self.ask_at);
        let idle = (self.held > 0).then(|| self.used.after(self.terms.idle()).min(self.expires));
        let tells = self.has_to_tell().then_some(self.used);
        [answer, retry, idle, tells].into_iter().flatten().min()
    }

    /// What only time does: an answer that does not come, tokens that are not ours any more.
    fn settle_time(&mut self, now: Mono) {
        if self.held > 0 && now >= self.expires {
            self.leave(0);
        }
        if self.open.is_some_and(|open| now.since(open.at) >= self.terms.answer_within) {
            self.fail(now);
        }
        if self.alone.and_then(|alone| alone.until).is_some_and(|until| now >= until) {
            self.together(now);
        }
    }

    fn tick(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.alone.is_some() {
            self.order_for(now, 0, effects);
        } else if self.held > 0 && self.open.is_none() && now.since(self.used) >= self.terms.idle() {
            self.return_all(now, effects);
        }
        self.tell(effects);
    }

    /// Whether the bank has to be told that the chunk of a small limit is spent, or that some of it was not used: until then the others get none.
    fn has_to_tell(&self) -> bool {
        let spent = self.counted && self.held == 0 && self.terms.is_small();
        (spent || self.returning > 0) && self.open.is_none() && self.alone.is_none()
    }

    fn tell(&mut self, effects: &mut Vec<Effect>) {
        if self.has_to_tell() {
            self.counted = self.held > 0;
            effects.push(Effect::Ask(self.ask(0, 0)));
        }
    }

    /// Orders what is missing to a chunk, or to one larger request.
    fn order_for(&mut self, now: Mono, cost: u64, effects: &mut Vec<Effect>) {
        if self.open.is_some() || now < self.ask_at {
            return;
        }
        // Who is alone keeps its bucket until it is answered, and takes over what is in it then.
        let held = self.alone.map_or(self.held, |_| self.chunk);
        let want = self.chunk.max(cost).saturating_sub(held);
        if want == 0 && self.alone.is_none() {
            return;
        }
        let alone = self.alone.map(|alone| (now.since(alone.since), alone.admitted));
        let ask = self.ask(want, 0);
        let whole = cost > self.chunk;
        self.open = Some(Open { order: ask.order, want, at: now });
        effects.push(Effect::Ask(Ask { whole, held, alone, ..ask }));
    }

    fn ask(&mut self, want: u64, returned: u64) -> Ask {
        self.order += 1;
        let offered = std::mem::take(&mut self.offered);
        let returned = returned.saturating_add(std::mem::take(&mut self.returning));
        let (gateway, order, gateways) = (self.me, self.order, self.terms.gateways);
        Ask { gateway, order, want, whole: false, held: self.held, offered, gateways, returned, alone: None }
    }

    fn answered(&mut self, now: Mono, answer: Answer) {
        // An answer to an order that was given up is not looked at: its tokens are lost.
        let Some(open) = self.open.take_if(|open| open.order == answer.order) else { return };
        let before = self.chunk;
        self.expires = open.at.after(answer.lease);
        if !answer.alone_for.is_zero()
            && let Some(alone) = &mut self.alone
        {
            // From when it was asked, so that no one is alone for longer than the bank says.
            let until = open.at.after(answer.alone_for);
            alone.until = Some(until);
            self.ask_at = until;
            return;
        }
        self.together(now);
        self.chunk = answer.chunk.max(1);
        let is_large = self.held.saturating_add(open.want) > before;
        self.receive(answer.tokens.min(open.want));
        self.counted = self.held > 0;
        let paid = self.debt.min(self.held);
        self.held -= paid;
        self.debt -= paid;
        if !is_large {
            // A smaller chunk: what is beyond it is given up.
            self.leave(self.chunk);
        }
        self.ask_at = now.after(answer.ask_after);
        self.next_at = now.after(answer.next_in);
        self.there = answer.there;
    }

    /// Is not alone any more: whole tokens of its bucket are tokens held.
    fn together(&mut self, now: Mono) {
        let limit = self.alone_limit();
        if let Some(mut alone) = self.alone.take() {
            self.receive(alone.bucket.take_up_to(limit, now, self.chunk));
            self.expires = self.expires.max(now.after(self.terms.idle));
        }
    }

    fn receive(&mut self, tokens: u64) {
        self.held = self.held.saturating_add(tokens);
        self.received = self.received.saturating_add(tokens);
    }

    /// Holds no more than this from now on, and tells what goes.
    fn leave(&mut self, most: u64) -> u64 {
        let goes = self.held.saturating_sub(most);
        self.held -= goes;
        self.unused = self.unused.saturating_add(goes);
        goes
    }

    fn fail(&mut self, now: Mono) {
        self.open = None;
        self.ask_at = now.after(self.terms.retry);
        self.there = 0;
        if self.alone.is_none() {
            let mut bucket = Bucket::empty(now);
            bucket.give_back(self.alone_limit(), now, self.held);
            self.leave(0);
            self.alone = Some(Alone { since: now, bucket, admitted: 0, until: None });
        }
    }

    /// The part of the limit that a gateway alone goes by: a fraction, never none, with one chunk as its burst.
    fn alone_limit(&self) -> Limit {
        Limit { rate: self.terms.limit.rate.divided(self.terms.gateways), burst: self.chunk }
    }

    fn spend_alone(&mut self, now: Mono, cost: u64, effects: &mut Vec<Effect>) -> Verdict {
        self.order_for(now, 0, effects);
        let limit = self.alone_limit();
        let Some(alone) = &mut self.alone else { return Verdict::Refused(Wait::Never) };
        match alone.bucket.take(limit, now, cost) {
            Ok(()) => {
                alone.admitted = alone.admitted.saturating_add(cost);
                Verdict::Pass
            }
            // More than a chunk: not alone, but perhaps when the store is back.
            Err(Wait::Never) => Verdict::Refused(self.wait(now, cost)),
            Err(wait) => Verdict::Refused(wait),
        }
    }

    /// The wait until the cost can be there: until it is worth to ask, and until the bank has made what is missing here, if nobody else takes it.
    fn wait(&self, now: Mono, cost: u64) -> Wait {
        let Limit { rate, burst } = self.terms.limit;
        let missing = cost.saturating_sub(self.held).max(1);
        let (Some(_), Some(more), 1..) = (rate.time_for(1), rate.time_for(missing - 1), burst) else {
            return Wait::Never;
        };
        let asks = self.ask_at.since(now).max(Duration::from_nanos(chunk_nanos(1, rate.whole_per_second())));
        Wait::For(asks.max(self.next_at.since(now) + more))
    }

    fn change(&mut self, now: Mono, terms: Terms) {
        let old = self.alone_limit();
        // What is on order was for the old chunk; its tokens are given up.
        self.open = None;
        self.terms = Terms { gateways: terms.gateways.max(1), ..terms };
        // Until the bank says otherwise: the even chunk, and what is held beyond it is given up.
        self.chunk = self.terms.chunk();
        self.leave(self.chunk);
        let new = self.alone_limit();
        if let Some(alone) = &mut self.alone {
            // Used stays used; a larger burst must not make tokens.
            let there = alone.bucket.available(old, now);
            alone.bucket = Bucket::empty(now);
            alone.bucket.give_back(new, now, there);
        }
    }

    fn return_all(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.held + self.returning == 0 || self.alone.is_some() || self.open.is_some() {
            return;
        }
        let back = self.leave(0);
        self.counted = false;
        let ask = self.ask(0, back);
        self.expires = now;
        effects.push(Effect::Ask(ask));
    }
}
