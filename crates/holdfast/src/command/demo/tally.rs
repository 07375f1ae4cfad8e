//! What the demo's traffic saw: requests and latencies by tenant, version and replica, failures by kind, and answers by the wrong version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::calls::Verdict;
use crate::output;

/// Latencies kept of one row; later ones replace the oldest.
const KEPT: usize = 20_000;

/// Tenant, version, replica.
type Row = (&'static str, String, String);

#[derive(Default)]
struct Latencies {
    count: usize,
    micros: Vec<u32>,
}

impl Latencies {
    fn add(&mut self, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if self.micros.len() < KEPT {
            self.micros.push(micros);
        } else if let Some(oldest) = self.micros.get_mut(self.count % KEPT) {
            *oldest = micros;
        }
        self.count += 1;
    }

    /// The latency that `percent` of the requests did not pass, by nearest rank.
    fn percentile(&self, percent: usize) -> String {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        let micros = sorted.get(rank - 1).copied().unwrap_or(0);
        format!("{:.1} ms", f64::from(micros) / 1000.0)
    }
}

#[derive(Default)]
struct Counts {
    requests: u64,
    rows: BTreeMap<Row, Latencies>,
    /// By kind, with the status.
    errors: BTreeMap<String, u64>,
    /// The one version of each tenant under each revision.
    versions: BTreeMap<(&'static str, u64), String>,
    wrong: u64,
    first_wrong: Option<String>,
}

/// Where things stand at one moment, to see what a scene adds.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    /// Requests so far.
    pub requests: u64,
    /// Failures so far.
    pub errors: BTreeMap<String, u64>,
    /// Answers so far by tenant and version.
    pub answers: BTreeMap<(&'static str, String), u64>,
}

impl Mark {
    /// Failures since an earlier moment.
    pub fn errors_since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let before = |kind: &String| earlier.errors.get(kind).copied().unwrap_or(0);
        let added = self.errors.iter().map(|(kind, count)| (kind.clone(), count - before(kind)));
        added.filter(|(_, count)| *count > 0).collect()
    }

    /// Answers of a tenant by a version since an earlier moment.
    pub fn answers_since(&self, earlier: &Self, tenant: &'static str, version: &str) -> u64 {
        let key = (tenant, version.to_owned());
        let count = |mark: &Self| mark.answers.get(&key).copied().unwrap_or(0);
        count(self) - count(earlier)
    }
}

/// See the module. Cheap to clone; all clones count together.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what became of a request. `named` is the version that the request named itself, which no revision decides.
    pub fn count(&self, tenant: &'static str, verdict: &Verdict, named: Option<&str>) {
        let mut counts = self.lock();
        counts.requests += 1;
        if verdict.status != 200 {
            *counts.errors.entry(format!("{} {}", verdict.status, verdict.error)).or_default() += 1;
            return;
        }
        if let Some(why) = wrong(&mut counts.versions, tenant, verdict, named) {
            counts.wrong += 1;
            counts.first_wrong.get_or_insert(why);
        }
        let row = (tenant, verdict.version.clone(), verdict.replica.clone());
        counts.rows.entry(row).or_default().add(verdict.took);
    }

    /// Where things stand.
    pub fn mark(&self) -> Mark {
        let counts = self.lock();
        let mut answers = BTreeMap::new();
        for ((tenant, version, _), latencies) in &counts.rows {
            *answers.entry((*tenant, version.clone())).or_insert(0) += latencies.count as u64;
        }
        Mark { requests: counts.requests, errors: counts.errors.clone(), answers }
    }

    /// The table of rows.
    pub fn table(&self) -> String {
        let counts = self.lock();
        let rows = counts.rows.iter().map(|((tenant, version, replica), latencies)| {
            let cells = [tenant, version.as_str(), replica.as_str()].map(str::to_owned);
            let figures = [latencies.count.to_string(), latencies.percentile(50), latencies.percentile(99)];
            cells.into_iter().chain(figures).collect()
        });
        output::table(&["tenant", "version", "replica", "requests", "p50", "p99"], rows)
    }

    /// All of it in a few words.
    pub fn line(&self) -> String {
        let counts = self.lock();
        format!("{} requests, {}, wrong versions: {}", counts.requests, told(&counts.errors), counts.wrong)
    }

    /// The first answer by a wrong version, if there was one.
    pub fn first_wrong(&self) -> Option<String> {
        self.lock().first_wrong.clone()
    }

    /// What is said at the end.
    pub fn summary(&self, took: Duration) -> String {
        format!("{}\n\nIn {:.0} s: {}", self.table(), took.as_secs_f64(), self.line())
    }
}

/// Failures in words.
pub fn told(errors: &BTreeMap<String, u64>) -> String {
    if errors.is_empty() {
        return "no errors".to_owned();
    }
    let all: Vec<String> = errors.iter().map(|(kind, count)| format!("{count} x {kind}")).collect();
    format!("errors: {}", all.join(", "))
}

/// What is wrong with an answer: it was not judged by the version that it names, or its tenant got two versions under one revision.
fn wrong(
    versions: &mut BTreeMap<(&'static str, u64), String>,
    tenant: &'static str,
    verdict: &Verdict,
    named: Option<&str>,
) -> Option<String> {
    let Verdict { version, revision, replica, judged_by, .. } = verdict;
    if !judged_by.contains(&version.as_str()) {
        return Some(format!("{replica} answered {tenant} as version {version}, with the scores of {judged_by:?}"));
    }
    if let Some(named) = named {
        return (version != named).then(|| format!("{tenant} named version {named} and got {version}"));
    }
    let first = versions.entry((tenant, *revision)).or_insert_with(|| version.clone());
    (first != version).then(|| format!("{tenant} got versions {first} and {version} under revision {revision}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(version: &str, judged_by: &'static str, revision: u64) -> Verdict {
        Verdict {
            status: 200,
            error: String::new(),
            version: version.to_owned(),
            revision,
            replica: "r1".to_owned(),
            retry_after: None,
            judged_by: vec![judged_by],
            took: Duration::from_millis(2),
        }
    }

    #[test]
    fn an_answer_is_wrong_by_its_scores_or_by_a_second_version_under_one_revision() {
        let wrongs = |verdicts: &[(&str, &'static str, u64, Option<&str>)]| {
            let tally = Tally::default();
            for (version, judged_by, revision, named) in verdicts {
                tally.count("acme", &verdict(version, judged_by, *revision), *named);
            }
            tally.lock().wrong
        };
        assert_eq!(wrongs(&[("1", "1", 1, None), ("1", "1", 1, None), ("2", "2", 2, None)]), 0);
        assert_eq!(wrongs(&[("1", "2", 1, None)]), 1, "the label lies");
        assert_eq!(wrongs(&[("1", "1", 1, None), ("2", "2", 1, None)]), 1, "two under one revision");
        assert_eq!(wrongs(&[("1", "1", 1, None), ("5", "5", 1, Some("5"))]), 0, "named by the request");
        assert_eq!(wrongs(&[("1", "1", 1, Some("5"))]), 1);
    }

    #[test]
    fn a_scene_sees_only_what_it_adds() {
        let tally = Tally::default();
        tally.count("acme", &verdict("1", "1", 1), None);
        let before = tally.mark();
        tally.count("acme", &verdict("1", "1", 1), None);
        tally.count("acme", &Verdict { status: 503, error: "no_holder".to_owned(), ..verdict("1", "1", 1) }, None);
        let after = tally.mark();
        assert_eq!(after.answers_since(&before, "acme", "1"), 1);
        assert_eq!(told(&after.errors_since(&before)), "errors: 1 x 503 no_holder");
        assert_eq!(told(&before.errors_since(&Mark::default())), "no errors");
    }
}
