//! One shared limit over several gateways: what is asked of a simulation, and what comes of a run.

use std::ops::Range;
use std::time::Duration;

use holdfast_quota::lease::{Rules, Sharing};
use holdfast_quota::limit::Limit;
use holdfast_quota::rate1::Broken;

pub use crate::run::run;

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The limit per second; the burst is as much.
    pub limit: u64,
    /// Requests offered per second in all, a Poisson process.
    pub offered: u64,
    /// Each gateway's part of them, relative to the others'.
    pub shares: Vec<u64>,
    /// How long.
    pub seconds: u64,
    /// How the limit is cut.
    pub sharing: Sharing,
    /// From how many wanting gateways on the bank gives out turns.
    pub turns_from: u32,
    /// The way from a gateway to the store, one direction.
    pub delay: Duration,
    /// While the store answers nobody, in milliseconds from the start.
    pub away: Range<u64>,
    /// Whether it comes back without its bucket.
    pub loses: bool,
}

/// The gateways' parts in the worked case.
const WORKED: [u64; 4] = [40, 30, 20, 10];

impl Scenario {
    /// The worked case: 1,000/s, offered 1,600/s through 4 gateways 40/30/20/10 %, 10 s, the store near.
    #[must_use]
    pub fn worked() -> Self {
        Self {
            limit: 1_000,
            offered: 1_600,
            shares: WORKED.to_vec(),
            seconds: 10,
            sharing: Sharing::default(),
            turns_from: Rules::default().turns_from,
            delay: Duration::ZERO,
            away: 0..0,
            loses: false,
        }
    }

    /// The same through so many gateways, with equal parts if they are not 4.
    #[must_use]
    pub fn through(self, gateways: u32) -> Self {
        let shares = if gateways == 4 { WORKED.to_vec() } else { (0..gateways.max(1)).map(|_| 1).collect() };
        Self { shares, ..self }
    }

    pub(crate) fn bucket(&self) -> Limit {
        Limit::per_second(self.limit, self.limit)
    }

    pub(crate) fn gateways(&self) -> u32 {
        u32::try_from(self.shares.len()).unwrap_or(u32::MAX)
    }
}

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Admitted in each second.
    pub admitted: Vec<u64>,
    /// Offered by gateway.
    pub offered_by: Vec<u64>,
    /// Admitted by gateway.
    pub admitted_by: Vec<u64>,
    /// Calls to the store.
    pub calls: u64,
    /// By how many tokens `burst + rate x time` was passed in the worst interval.
    pub over: u64,
    /// When the stated bound was passed, if it was.
    pub broken: Option<Broken>,
    /// The most that a gateway held and had on order.
    pub most_held: u64,
}

impl Run {
    /// The most admitted in a second, of seconds 3 to 9: the initial burst is over by then.
    #[must_use]
    pub fn worst_second(&self) -> u64 {
        self.admitted.iter().skip(3).max().copied().unwrap_or(0)
    }

    /// What the gateway that fares worst and the one that fares best get of what they are offered, in hundredths of what all get on average.
    #[must_use]
    pub fn fairness(&self) -> (u64, u64) {
        let (offered, admitted): (u64, u64) = (self.offered_by.iter().sum(), self.admitted_by.iter().sum());
        let of = |(offered_by, admitted_by): (&u64, &u64)| {
            let even = u128::from(*offered_by) * u128::from(admitted);
            let mine = u128::from(*admitted_by) * u128::from(offered) * 100;
            u64::try_from(mine / even.max(1)).unwrap_or(u64::MAX)
        };
        let all = || self.offered_by.iter().zip(&self.admitted_by).map(of);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }
}
