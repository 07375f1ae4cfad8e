//! `holdfast_routed_total{rule,outcome}`: what chose the versions of requests, and how these ended.

use crate::family::{Family, Label};
use crate::metric::Counter;
use crate::registry::Registry;

/// What stands for the reasons behind which there is no arm and no rule.
const PLAIN: [&str; 4] = ["override", "explicit", "pin", "replay"];
const OUTCOMES: [&str; 2] = ["ok", "error"];

/// The counters that need no look-up, and the family of all.
#[derive(Debug)]
pub struct RoutedPlain {
    plain: [[Counter; 2]; PLAIN.len()],
    all: Family<Counter, 2>,
}

impl RoutedPlain {
    pub(crate) fn register(registry: &Registry) -> Self {
        let all = registry.family(
            "holdfast_routed_total",
            "Requests that ended, by what chose their version (pin, explicit, override, replay, experiment:NAME/ARM, rule:TENANT/NAME), and whether they failed.",
            [Label::open("rule"), Label::closed("outcome")],
            (),
        );
        let plain = PLAIN.map(|rule| OUTCOMES.map(|outcome| all.get([rule, outcome])));
        Self { plain, all }
    }

    /// Counts a request by the place of its reason: 0 override, 1 explicit, 2 pin, 3 replay.
    #[inline]
    pub fn count(&self, reason: usize, is_error: bool) {
        if let Some(counters) = self.plain.get(reason) {
            counters[usize::from(is_error)].inc();
        }
    }

    pub(crate) fn by(&self, rule: &str) -> [Counter; 2] {
        OUTCOMES.map(|outcome| self.all.get([rule, outcome]))
    }

    pub(crate) fn forget_unused(&self) {
        self.all.release_unheld();
    }
}
