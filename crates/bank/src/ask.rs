//! One ask of a gateway, as a call of the script.

use std::time::Duration;

use holdfast_quota::lease::{Answer, Ask, Rules};
use holdfast_quota::limit::Limit;

use crate::{Down, Stores};

/// The script counts in numbers that are exact to 2^53; a limit whose burst times span (in microseconds) is more than this is not shared.
pub const MAX_PARTS: u128 = 1 << 51;

/// Limits are spread over so many slots of a cluster.
pub(crate) const SLOTS: u64 = 64;

/// The script and its rules.
pub struct Limits {
    script: redis::Script,
    rules: Rules,
}

impl Limits {
    /// With these rules, which all gateways have to share.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { script: redis::Script::new(include_str!("script.lua")), rules }
    }

    /// Asks. `slot` is a number that follows from the name; `now` is the time for tests, in microseconds. None: an older order.
    ///
    /// # Errors
    /// [`Down`]. Whatever was to be granted is lost then.
    pub async fn ask(
        &self,
        stores: &Stores,
        (name, slot): (&str, u64),
        limit: Limit,
        ask: Ask,
        now: Option<u64>,
    ) -> Result<Option<Answer>, Down> {
        let base = stores.base(slot);
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let (alone, admitted) = ask
            .alone
            .map_or((-1, 0), |(span, admitted)| (i64::try_from(span.as_micros()).unwrap_or(i64::MAX), admitted));
        let rules = &self.rules;
        let mut call = self.script.key(format!("{base}:limit:{name}"));
        call.key(format!("{base}:born"));
        call.arg(limit.rate.tokens()).arg(micros(limit.rate.per()).max(1)).arg(limit.burst);
        call.arg(ask.gateway).arg(ask.order).arg(ask.want).arg(u8::from(ask.whole)).arg(ask.held).arg(ask.offered);
        call.arg(ask.gateways).arg(ask.returned).arg(alone).arg(admitted);
        call.arg(rules.sharing.chunk).arg(rules.sharing.fraction).arg(rules.turns_from);
        call.arg(micros(rules.lease)).arg(micros(rules.settle)).arg(rules.most_gateways);
        call.arg(now.map(|now| now.to_string()).unwrap_or_default());
        // Sends the script along once if the store does not know it, and nothing else a second time.
        let told: Vec<i64> = stores.call(slot, &call).await?;
        let [order, tokens, chunk, gateways, ask_after, alone_for, next_in, there] = told.as_slice() else {
            return Ok(None);
        };
        let number = |n: &i64| u64::try_from(*n).unwrap_or(0);
        Ok(Some(Answer {
            gateway: ask.gateway,
            order: number(order),
            tokens: number(tokens),
            chunk: number(chunk),
            gateways: u32::try_from(*gateways).unwrap_or(1),
            ask_after: Duration::from_micros(number(ask_after)),
            lease: rules.lease,
            alone_for: Duration::from_micros(number(alone_for)),
            next_in: Duration::from_micros(number(next_in)),
            there: number(there),
        }))
    }
}
