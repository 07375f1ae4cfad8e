//! Whether one replica is usable: consecutive failures eject it, successful probes bring it back, and it comes back slowly.
//!
//! - Client errors (4xx) say nothing about the replica. 429 and 503 are back-pressure: a short pause that honours `Retry-After`, never an
//!   ejection. Only transport errors, other 5xx and failed probes count, and only in a row.
//! - Traffic and probes are counted apart: a probe that succeeds does not hide answers that fail. An answer clears both counts.
//! - An ejected replica comes back by probes alone, not before `base x 2^n`; it is eased in from a tenth of its share. So is a new one: an
//!   empty counter never attracts all traffic.
//! - A replica that is down for [`HealthConfig::out_of_service_after`] is out of service: subsets replace it. Before that nothing moves.
//!
//! The machine keeps no timer: what depends on time alone is a function of `now`.

use std::time::Duration;

use holdfast_types::Mono;

use crate::choose::FULL_SHARE;

/// Bounds and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Consecutive failures that eject. At least 1 counts. Default 3.
    pub fall: u32,
    /// Consecutive successful probes that bring back. Default 2.
    pub rise: u32,
    /// The first ejection lasts at least this long. Default 1 s.
    pub eject_base: Duration,
    /// No ejection lasts longer than this by itself; a replica that stays up for this long starts from the base again. Default 60 s.
    pub eject_max: Duration,
    /// The time from a tenth of the share to the full one. Default 10 s.
    pub ease_in: Duration,
    /// Down for this long: out of service. Default 10 s.
    pub out_of_service_after: Duration,
    /// The pause after 429 or 503 without `Retry-After`. Default 1 s.
    pub cool_off: Duration,
    /// The longest pause that a `Retry-After` can ask for. Default 30 s.
    pub cool_off_max: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            fall: 3,
            rise: 2,
            eject_base: Duration::from_secs(1),
            eject_max: Duration::from_secs(60),
            ease_in: Duration::from_secs(10),
            out_of_service_after: Duration::from_secs(10),
            cool_off: Duration::from_secs(1),
            cool_off_max: Duration::from_secs(30),
        }
    }
}

/// What was seen of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthEvent {
    /// A probe succeeded.
    ProbeOk,
    /// A probe failed or timed out.
    ProbeFailed,
    /// A request was answered with success.
    AnswerOk,
    /// No connection, a reset, a broken protocol, no answer in time.
    TransportError,
    /// A 5xx other than 503.
    ServerError,
    /// 429 or 503, with the wait that the replica asked for.
    Backpressure {
        /// The parsed `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// A 4xx other than 429.
    ClientError,
}

/// What changed by an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The replica was usable and is ejected.
    Ejected,
    /// It was ejected and is usable again.
    Readmitted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up { since: Mono },
    Ejected { since: Mono, until: Mono, probes: u32 },
}

/// The health of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    config: HealthConfig,
    state: State,
    failed_answers: u32,
    failed_probes: u32,
    /// Ejections in a row: the exponent of the next one.
    ejections: u32,
    cooling_until: Mono,
}

impl Health {
    /// A new replica: usable, eased in from `now`.
    #[must_use]
    pub fn new(config: HealthConfig, now: Mono) -> Self {
        let state = State::Up { since: now };
        Self { config, state, failed_answers: 0, failed_probes: 0, ejections: 0, cooling_until: Mono::ZERO }
    }

    /// New bounds and times; what was counted stays.
    pub fn set_config(&mut self, config: HealthConfig) {
        self.config = config;
    }

    /// Takes an event in. Some, if it ejected the replica or brought it back.
    pub fn apply(&mut self, now: Mono, event: HealthEvent) -> Option<Transition> {
        match event {
            HealthEvent::ClientError => None,
            HealthEvent::Backpressure { retry_after } => {
                // The replica answers: what came before was no unbroken row of failures.
                self.failed_answers = 0;
                let wait = retry_after.unwrap_or(self.config.cool_off).min(self.config.cool_off_max);
                self.cooling_until = self.cooling_until.max(now.after(wait));
                None
            }
            HealthEvent::AnswerOk => {
                self.failed_answers = 0;
                if self.usable() {
                    self.failed_probes = 0;
                }
                None
            }
            HealthEvent::ProbeOk => self.probe_ok(now),
            HealthEvent::ProbeFailed => {
                self.failed_probes = self.failed_probes.saturating_add(1);
                self.failed(now, self.failed_probes)
            }
            HealthEvent::TransportError | HealthEvent::ServerError => {
                self.failed_answers = self.failed_answers.saturating_add(1);
                self.failed(now, self.failed_answers)
            }
        }
    }

    fn probe_ok(&mut self, now: Mono) -> Option<Transition> {
        self.failed_probes = 0;
        let State::Ejected { until, probes, .. } = &mut self.state else { return None };
        *probes = probes.saturating_add(1);
        if *probes < self.config.rise || now < *until {
            return None;
        }
        self.state = State::Up { since: now };
        self.failed_answers = 0;
        self.cooling_until = Mono::ZERO;
        Some(Transition::Readmitted)
    }

    fn failed(&mut self, now: Mono, in_a_row: u32) -> Option<Transition> {
        match &mut self.state {
            State::Ejected { probes, .. } => {
                // A request that was in flight at the ejection says nothing new; a failed probe ends the row of good ones.
                if self.failed_probes > 0 {
                    *probes = 0;
                }
                None
            }
            State::Up { since } if in_a_row >= self.config.fall.max(1) => {
                if now.since(*since) >= self.config.eject_max {
                    self.ejections = 0;
                }
                let factor = 1u32.checked_shl(self.ejections).unwrap_or(u32::MAX);
                let length = self.config.eject_base.saturating_mul(factor).min(self.config.eject_max);
                self.ejections = self.ejections.saturating_add(1);
                self.state = State::Ejected { since: now, until: now.after(length), probes: 0 };
                (self.failed_answers, self.failed_probes) = (0, 0);
                Some(Transition::Ejected)
            }
            State::Up { .. } => None,
        }
    }

    /// Neither ejected nor down: may be sent requests (unless it is cooling off).
    #[must_use]
    pub fn usable(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// The replica asked for a pause that is not over.
    #[must_use]
    pub fn cooling(&self, now: Mono) -> bool {
        now < self.cooling_until
    }

    /// Belongs in subsets: up, or down for less than [`HealthConfig::out_of_service_after`].
    #[must_use]
    pub fn in_service(&self, now: Mono) -> bool {
        match self.state {
            State::Up { .. } => true,
            State::Ejected { since, .. } => now.since(since) < self.config.out_of_service_after,
        }
    }

    /// The share per 1024 in slow start: grows linearly from a tenth to [`FULL_SHARE`] over [`HealthConfig::ease_in`].
    #[must_use]
    pub fn ease(&self, now: Mono) -> u16 {
        let State::Up { since } = self.state else { return FULL_SHARE / 10 };
        let (up, ease_in) = (now.since(since).as_nanos(), self.config.ease_in.as_nanos());
        let first = u128::from(FULL_SHARE / 10);
        let grown = ((u128::from(FULL_SHARE) - first) * up.min(ease_in)).checked_div(ease_in);
        grown.and_then(|g| u16::try_from(first + g).ok()).unwrap_or(FULL_SHARE)
    }

    /// The next moment at which an answer of this machine changes without an event.
    #[must_use]
    pub fn next_change(&self, now: Mono) -> Option<Mono> {
        let out = match self.state {
            State::Ejected { since, .. } => Some(since.after(self.config.out_of_service_after)),
            State::Up { .. } => None,
        };
        out.into_iter().chain([self.cooling_until]).filter(|t| *t > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HealthEvent::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    fn fresh() -> Health {
        Health::new(HealthConfig::default(), at(0))
    }

    /// Ejects at `ms`, brings back at the first moment possible, and says how long that was.
    fn cycle(health: &mut Health, ms: u64) -> u64 {
        for _ in 0..3 {
            health.apply(at(ms), TransportError);
        }
        assert!(!health.usable());
        let back = (ms..).step_by(100).find(|t| health.apply(at(*t), ProbeOk) == Some(Transition::Readmitted)).unwrap();
        back - ms
    }

    #[test]
    fn what_counts_and_what_does_not() {
        let pause = Backpressure { retry_after: None };
        for (name, events, usable) in [
            ("two failures", vec![TransportError; 2], true),
            ("three failures", vec![TransportError, ServerError, TransportError], false),
            ("three failed probes", vec![ProbeFailed; 3], false),
            ("an answer between", vec![ServerError, ServerError, AnswerOk, ServerError, ServerError], true),
            ("a good probe hides no bad answers", vec![ServerError, ProbeOk, ServerError, ProbeOk, ServerError], false),
            ("fifty over-long prompts", vec![ClientError; 50], true),
            ("a client error between changes nothing", vec![ServerError, ServerError, ClientError, ServerError], false),
            ("fifty 429", vec![pause; 50], true),
            (
                "answers keep a replica whose probe is broken",
                vec![ProbeFailed, ProbeFailed, AnswerOk, ProbeFailed],
                true,
            ),
        ] {
            let mut health = fresh();
            for event in events {
                health.apply(at(1), event);
            }
            assert_eq!(health.usable(), usable, "{name}");
        }
    }

    #[test]
    fn back_pressure_pauses_and_honours_retry_after() {
        let mut health = fresh();
        health.apply(at(1000), Backpressure { retry_after: None });
        assert!(health.cooling(at(1999)) && !health.cooling(at(2000)) && health.usable());
        health.apply(at(2000), Backpressure { retry_after: Some(Duration::from_secs(5)) });
        health.apply(at(2001), Backpressure { retry_after: None });
        assert!(health.cooling(at(6999)) && !health.cooling(at(7000)), "the longer wait stands");
        health.apply(at(8000), Backpressure { retry_after: Some(Duration::from_secs(100_000)) });
        assert!(!health.cooling(at(38_000)), "an absurd wait is bounded");
    }

    #[test]
    fn back_only_by_probes_and_not_before_the_time() {
        let mut health = fresh();
        for _ in 0..3 {
            health.apply(at(0), TransportError);
        }
        for _ in 0..9 {
            assert_eq!(health.apply(at(900), ProbeOk), None, "one second has not passed");
            assert_eq!(health.apply(at(5000), AnswerOk), None, "an answer to an old request is no probe");
        }
        assert_eq!(health.apply(at(5000), ProbeFailed), None);
        assert_eq!(health.apply(at(5001), ProbeOk), None, "two in a row are needed");
        assert_eq!(health.apply(at(5002), ProbeOk), Some(Transition::Readmitted));
    }

    #[test]
    fn ejections_double_up_to_the_bound_and_start_again_after_a_good_time() {
        let mut health = fresh();
        let mut now = 0;
        let mut lengths = Vec::new();
        for _ in 0..8 {
            let length = cycle(&mut health, now);
            lengths.push(length);
            now += length + 1;
        }
        assert_eq!(lengths, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(cycle(&mut health, now + 60_000), 1000);
    }

    #[test]
    fn out_of_service_only_after_ten_seconds() {
        let mut health = fresh();
        for _ in 0..3 {
            health.apply(at(500), ProbeFailed);
        }
        assert!(health.in_service(at(500)) && health.in_service(at(10_499)) && !health.in_service(at(10_500)));
        assert_eq!(health.next_change(at(600)), Some(at(10_500)));
        health.apply(at(11_000), ProbeOk);
        health.apply(at(11_001), ProbeOk);
        assert!(health.in_service(at(11_001)));
    }

    #[test]
    fn a_returned_replica_is_eased_in() {
        let health = fresh();
        let shares = [0, 2500, 5000, 9999, 10_000, 99_999].map(|ms| health.ease(at(ms)));
        assert_eq!(shares, [102, 332, 563, 1023, 1024, 1024]);
        let at_once = Health::new(HealthConfig { ease_in: Duration::ZERO, ..HealthConfig::default() }, at(0));
        assert_eq!(at_once.ease(at(0)), FULL_SHARE);
    }

    fn event() -> impl Strategy<Value = HealthEvent> {
        prop_oneof![
            Just(ProbeOk),
            Just(ProbeFailed),
            Just(AnswerOk),
            Just(TransportError),
            Just(ServerError),
            (0u64..1 << 40).prop_map(|ms| Backpressure { retry_after: Some(Duration::from_millis(ms)) }),
            Just(ClientError),
        ]
    }

    proptest! {
        #[test]
        fn a_replica_that_probes_well_always_comes_back(events in prop::collection::vec((event(), 0u64..5000), 0..60)) {
            let mut health = fresh();
            let mut now = 0;
            for (event, step) in events {
                now += step;
                let before = health.usable();
                let change = health.apply(at(now), event);
                prop_assert_eq!(change.is_some(), before != health.usable());
                prop_assert!((102..=1024).contains(&health.ease(at(now))));
                prop_assert!(!health.usable() || health.in_service(at(now)));
            }
            for _ in 0..62 {
                now += 1000;
                health.apply(at(now), ProbeOk);
            }
            prop_assert!(health.usable() && !health.cooling(at(now)));
        }
    }
}
