//! What a run is reported as: counts and percentiles.

use std::time::Duration;

/// One request.
pub(crate) struct Sample {
    pub(crate) good: bool,
    pub(crate) from_due: Duration,
    pub(crate) from_sent: Duration,
}

/// One run. Times are microseconds.
pub(crate) struct Summary {
    requests: usize,
    bad: usize,
    rate: f64,
    from_due: Percentiles,
    from_sent: Percentiles,
}

struct Percentiles {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Summary {
    pub(crate) fn of(samples: &[Sample], elapsed: Duration) -> Self {
        Self {
            requests: samples.len(),
            bad: samples.iter().filter(|sample| !sample.good).count(),
            rate: samples.len() as f64 / elapsed.as_secs_f64(),
            from_due: Percentiles::of(samples.iter().map(|sample| sample.from_due).collect()),
            from_sent: Percentiles::of(samples.iter().map(|sample| sample.from_sent).collect()),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let Self { requests, bad, rate, from_due, from_sent } = self;
        let (due, sent) = (from_due.to_json(), from_sent.to_json());
        format!(r#"{{"requests":{requests},"bad":{bad},"rate":{rate:.1},"due":{due},"sent":{sent}}}"#)
    }
}

impl Percentiles {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share| nearest_rank(&times, share).as_nanos() as f64 / 1e3;
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }

    fn to_json(&self) -> String {
        let Self { p50, p99, p999, max } = self;
        format!(r#"{{"p50":{p50:.1},"p99":{p99:.1},"p999":{p999:.1},"max":{max:.1}}}"#)
    }
}

/// The smallest time that at least this share of the sorted times does not exceed.
fn nearest_rank(sorted: &[Duration], share: f64) -> Duration {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        let at = |share| nearest_rank(&times, share).as_micros();
        assert_eq!((at(0.5), at(0.99), at(0.991), at(1.0)), (50, 99, 100, 100));
        assert_eq!(nearest_rank(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn bad_answers_are_counted() {
        let sample = |good| Sample { good, from_due: Duration::from_micros(10), from_sent: Duration::from_micros(5) };
        let json = Summary::of(&[sample(true), sample(false)], Duration::from_secs(1)).to_json();
        assert_eq!(
            json,
            r#"{"requests":2,"bad":1,"rate":2.0,"due":{"p50":10.0,"p99":10.0,"p999":10.0,"max":10.0},"sent":{"p50":5.0,"p99":5.0,"p999":5.0,"max":5.0}}"#
        );
    }
}
