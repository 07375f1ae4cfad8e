//! The condition of a canary: an expression in CEL over what gateways have measured of both versions.
//!
//! It is judged beside the roll-outs' driver, never by a request. Three things may come of it: it holds, it does not, or nothing can be said, and then the
//! canary stays where it is: no data is never taken for good news. CEL has no loops without a list, and there is no list here but one that the text itself
//! writes down, so a bounded text has a bounded cost.

use std::collections::HashMap;

use cel::{Context, Program, Value};

use holdfast_assign::window::Sketch;
use holdfast_plane::Figures;

/// The most bytes of a condition.
const LONGEST: usize = 1_024;
/// What a condition can ask of a version.
const MEMBERS: &str = "requests, errors, error_rate, mean_ms, p50_ms, p95_ms and p99_ms";
/// Macros that go over lists: without them the cost is that of the text.
const LOOPS: [&str; 6] = ["all", "exists", "exists_one", "existsOne", "map", "filter"];

/// What a condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// Nothing can be said yet, and why.
    Hold(String),
    /// It does not hold; the figures in words.
    Broken(String),
}

/// A condition that can be judged.
#[derive(Debug)]
pub struct Condition {
    text: String,
    program: Program,
    /// Answers of each version that it asks about.
    samples: u64,
    /// Which versions it asks about.
    asks: [bool; 2],
}

/// What versions are called in a condition.
const NAMES: [&str; 2] = ["canary", "baseline"];

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// It cannot be judged, in words: it is no CEL, asks for what there is not, or gives neither true nor false.
    pub fn read(text: &str, samples: u64) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("has {} bytes; the most is {LONGEST}", text.len()));
        }
        let program =
            Program::compile(text).map_err(|error| format!("is no CEL: {}", first_line(&error.to_string())))?;
        let asks = {
            let references = program.references();
            if let Some(stranger) = references.variables().into_iter().find(|name| !NAMES.contains(name)) {
                return Err(format!("asks for {stranger}; there are canary and baseline, each with {MEMBERS}"));
            }
            if LOOPS.iter().any(|name| references.has_function(name)) || contains_loop(text) {
                return Err("goes over a list; compare the figures one by one".to_owned());
            }
            NAMES.map(|name| references.has_variable(name))
        };
        if !asks[0] {
            return Err("does not ask about the canary".to_owned());
        }
        let condition = Self { text: text.to_owned(), program, samples: samples.max(1), asks };
        // With figures of everything it has to give an answer, so that what never can is told at once.
        let some = Figures { requests: 1_000, errors: 10, latency: [(100, 990)].into(), micros: 1_000_000 };
        match condition.value([&some, &some]) {
            Ok(_) => Ok(condition),
            Err(why) => Err(format!(
                "{why}; whole numbers are compared with whole numbers, and rates and times with numbers such as 1.0"
            )),
        }
    }

    /// Judges.
    #[must_use]
    pub fn judge(&self, canary: &Figures, baseline: &Figures) -> Verdict {
        let both = [canary, baseline];
        for ((figures, name), _) in both.iter().zip(NAMES).zip(self.asks).filter(|(_, asks)| *asks) {
            if figures.requests < self.samples {
                return Verdict::Hold(format!(
                    "{} of {} answers of the {name} were measured",
                    figures.requests, self.samples
                ));
            }
        }
        match self.value(both) {
            Ok(true) => Verdict::Holds,
            Ok(false) => Verdict::Broken(format!("{} does not hold: {}", self.text, told(both))),
            Err(why) => Verdict::Hold(format!("{} cannot be judged: {why}", self.text)),
        }
    }

    fn value(&self, both: [&Figures; 2]) -> Result<bool, String> {
        let mut context = Context::default();
        for (name, figures) in NAMES.iter().zip(both) {
            context.add_variable_from_value(*name, members(figures));
        }
        match self.program.execute(&context) {
            Ok(Value::Bool(value)) => Ok(value),
            Ok(_) => Err("it gives neither true nor false".to_owned()),
            Err(error) => Err(first_line(&error.to_string())),
        }
    }
}

/// Whether a macro over lists is in the text, which the parser has expanded.
fn contains_loop(text: &str) -> bool {
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    LOOPS.iter().any(|name| squeezed.contains(&format!(".{name}(")))
}

fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it cannot be read").to_owned()
}

/// The figures of a version, as far as there are any: what is not measured is not there, and no zero.
fn figures(figures: &Figures) -> Vec<(&'static str, f64)> {
    let answered = figures.latency.values().sum::<u64>();
    let mut all = Vec::new();
    if figures.requests > 0 {
        all.push(("error_rate", figures.errors as f64 / figures.requests as f64));
    }
    if answered > 0 {
        all.push(("mean_ms", figures.micros as f64 / answered as f64 / 1_000.0));
    }
    let sketch = Sketch::of(figures.latency.iter().map(|(slot, count)| (*slot, *count)));
    for (name, part) in [("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)] {
        all.extend(sketch.quantile(part).map(|micros| (name, micros / 1_000.0)));
    }
    all
}

fn members(of: &Figures) -> HashMap<String, Value> {
    let whole = |count: u64| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    let counts = [("requests".to_owned(), whole(of.requests)), ("errors".to_owned(), whole(of.errors))];
    let rates = figures(of).into_iter().map(|(name, value)| (name.to_owned(), Value::Float(value)));
    counts.into_iter().chain(rates).collect()
}

fn told(both: [&Figures; 2]) -> String {
    let one = |(name, of): (&&str, &Figures)| {
        let rates: Vec<String> = figures(of).iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
        format!("{name} has requests {}, errors {}, {}", of.requests, of.errors, rates.join(", "))
    };
    NAMES.iter().zip(both).map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of some milliseconds each.
    fn answers(requests: u64, errors: u64, millis: u64) -> Figures {
        let mut sketch = Sketch::default();
        (errors..requests).for_each(|_| sketch.add(millis * 1_000));
        Figures { requests, errors, latency: sketch.slots().collect(), micros: (requests - errors) * millis * 1_000 }
    }

    fn judged(text: &str, canary: &Figures, baseline: &Figures) -> Verdict {
        Condition::read(text, 100).unwrap().judge(canary, baseline)
    }

    const NO_WORSE: &str = "canary.error_rate <= baseline.error_rate && canary.p95_ms <= 1.5 * baseline.p95_ms";

    #[test]
    fn no_data_is_never_good_news_and_errors_against_none_are_bad() {
        let (none, good) = (Figures::default(), answers(500, 0, 10));
        for (canary, baseline, what) in
            [(&none, &good, "canary"), (&good, &none, "baseline"), (&answers(99, 0, 10), &good, "canary")]
        {
            let Verdict::Hold(words) = judged(NO_WORSE, canary, baseline) else { panic!("{canary:?}") };
            assert!(words.contains(what) && words.contains("of 100 answers"), "{words}");
        }
        assert_eq!(judged(NO_WORSE, &good, &good), Verdict::Holds);
        let Verdict::Broken(words) = judged(NO_WORSE, &answers(500, 5, 10), &good) else {
            panic!("5 errors against 0")
        };
        assert!(words.contains("does not hold") && words.contains("errors 5"), "{words}");
        assert!(matches!(judged(NO_WORSE, &answers(500, 0, 30), &good), Verdict::Broken(_)));
        // Everything fails, so there is no latency: of that nothing can be said, and nothing is promoted.
        assert!(matches!(judged("canary.p95_ms < 100.0", &answers(500, 500, 10), &none), Verdict::Hold(_)));
        assert!(matches!(judged("canary.error_rate < 0.5", &answers(500, 500, 10), &none), Verdict::Broken(_)));
        // A condition that does not ask about the baseline needs none.
        assert_eq!(judged("canary.p99_ms < 20.0 && canary.errors == 0", &good, &none), Verdict::Holds);
    }

    #[test]
    fn what_can_never_be_judged_is_refused_at_once() {
        let long = format!("canary.errors == 0 && {}", "true && ".repeat(200));
        for (text, why) in [
            ("", "no CEL"),
            ("canary.error_rate <", "no CEL"),
            ("canary.errors", "neither true nor false"),
            ("canary.p96_ms < 1.0", ""),
            ("baseline.errors == 0", "canary"),
            ("true", "canary"),
            ("canary.errors == 0 && tenant == 'acme'", "tenant"),
            ("canary.error_rate < 1 || nobody", "nobody"),
            ("[1, 2].all(n, n > canary.errors)", ""),
            ("canary.errors / 0 == 1", ""),
            (long.as_str(), "the most is 1024"),
        ] {
            let refused = Condition::read(text, 1).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn rates_may_be_compared_with_whole_numbers_or_are_refused() {
        let read = Condition::read("canary.error_rate < 1", 1);
        // Either way it is known when it is given, and not in the middle of a roll-out.
        if let Ok(condition) = read {
            assert_eq!(condition.judge(&answers(10, 0, 1), &Figures::default()), Verdict::Holds);
        }
    }
}
