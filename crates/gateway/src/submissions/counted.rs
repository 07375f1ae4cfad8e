//! What became of submissions, and how their ledger does, among the metrics.

use std::sync::Arc;

use holdfast_telemetry::{Counter, Family, Kind, Label, Registry, Sink};

use super::Ledger;

/// Counters by outcome.
pub struct Counted {
    submissions: Family<Counter, 1>,
    sticky: Family<Counter, 1>,
}

impl Counted {
    /// Shows them.
    pub fn register(registry: &Registry, ledger: Option<&Arc<Ledger>>) -> Self {
        const OUTCOMES: &str = "Requests with a route token or a submission's key, by what became of their resolution.";
        if let Some(ledger) = ledger {
            type Read = fn(&Ledger) -> u64;
            let shown: [(&'static str, &'static str, Read); 2] = [
                ("holdfast_ledger_up", "Whether the ledger of submissions answers.", |ledger| {
                    u64::from(ledger.is_up())
                }),
                (
                    "holdfast_ledger_entries",
                    "Submissions in the ledger's file; of a store, those that are remembered here.",
                    |ledger| ledger.entries(),
                ),
            ];
            for (name, help, read) in shown {
                let ledger = ledger.clone();
                let value = move |sink: &mut Sink<'_>| sink.sample(&[], read(&ledger) as f64);
                registry.collector(name, help, Kind::Gauge, &[], Box::new(value));
            }
        }
        const STICKY: &str = "Sticky tokens of experiments, by what became of them.";
        let family = |name, help| registry.family(name, help, [Label::closed("outcome")], ());
        Self {
            submissions: family("holdfast_submissions_total", OUTCOMES),
            sticky: family("holdfast_sticky_total", STICKY),
        }
    }

    /// Counts one; the outcome is a word of a closed list.
    pub fn count(&self, outcome: &'static str) {
        self.submissions.get([outcome]).inc();
    }

    /// Counts a sticky token; the outcome is a word of a closed list.
    pub fn count_sticky(&self, outcome: &'static str) {
        self.sticky.get([outcome]).inc();
    }
}
