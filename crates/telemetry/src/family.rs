//! A metric with labels: one series for each set of label values, with a bound on how many there may be.
//!
//! A handle is made on first use and meant to be kept; looking one up takes a lock and writes the labels out. When the bound is reached, a
//! new label set shares the series in which its open labels (those whose values users choose) read `other`; closed labels (those of a fixed
//! list) keep their value there, so that for instance the status of an overflowing tenant's requests is still told apart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::metric::{Counter, Metric};
use crate::registry::{Kind, Render, Sink};
use crate::text::push_label;

/// The value of a label that stands for all that are not shown.
pub(crate) const OTHER: &str = "other";
/// How many overflow series there may be above the bound. Beyond them even closed labels read `other`.
const OVERFLOW_ROOM: usize = 256;

/// The name of a label, and whether its values are an open set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub(crate) name: &'static str,
    open: bool,
}

impl Label {
    /// A label whose values users choose: tenants, models, replicas.
    #[must_use]
    pub const fn open(name: &'static str) -> Self {
        Self { name, open: true }
    }

    /// A label with a fixed list of values: statuses, kinds.
    #[must_use]
    pub const fn closed(name: &'static str) -> Self {
        Self { name, open: false }
    }
}

struct Series<M> {
    metric: M,
    /// Nobody held it at the last call of `release_unheld`.
    unheld: AtomicBool,
}

struct Inner<M: Metric, const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [Label; N],
    setup: M::Setup,
    most: usize,
    dropped: Counter,
    /// By the labels as the exposition writes them: unambiguous, since values are escaped, and written once for all scrapes.
    series: RwLock<BTreeMap<Arc<str>, Series<M>>>,
}

/// A metric with `N` labels. Cheap to clone.
pub struct Family<M: Metric, const N: usize>(Arc<Inner<M, N>>);

impl<M: Metric, const N: usize> Clone for Family<M, N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Metric, const N: usize> fmt::Debug for Family<M, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("name", &self.0.name).field("series", &self.len()).finish_non_exhaustive()
    }
}

impl<M: Metric, const N: usize> Family<M, N> {
    /// `dropped` counts the look-ups that got the overflow series.
    pub(crate) fn new(
        name: &'static str,
        help: &'static str,
        labels: [Label; N],
        setup: M::Setup,
        most: usize,
        dropped: Counter,
    ) -> Self {
        Self(Arc::new(Inner { name, help, labels, setup, most, dropped, series: RwLock::default() }))
    }

    /// The handle for these label values, in the order of the labels. Values over 128 bytes are cut. Takes a lock: keep the handle.
    #[must_use]
    pub fn get(&self, values: [&str; N]) -> M {
        let key = self.key(&values);
        if let Some(found) = self.find(&key) {
            return found;
        }
        if self.len() < self.0.most {
            return self.insert(key);
        }
        self.0.dropped.inc();
        let key = self.key(&self.overflow(values));
        if let Some(found) = self.find(&key) {
            return found;
        }
        let room = self.len() < self.0.most.saturating_add(OVERFLOW_ROOM);
        self.insert(if room { key } else { self.key(&[OTHER; N]) })
    }

    /// How many series there are. At most the bound, and a fixed room for overflow series.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.series.read().len()
    }

    /// Whether there are no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees the series that nobody holds a handle of, at the second call that finds them so: between the two their last value is scraped.
    /// Only for families whose handles are kept; a handle that is looked up for each use would lose its count.
    pub fn release_unheld(&self) {
        self.0.series.write().retain(|_, series| {
            let held = series.metric.is_held();
            held || !series.unheld.swap(true, Relaxed)
        });
    }

    fn overflow<'a>(&self, values: [&'a str; N]) -> [&'a str; N] {
        let mut shown = values;
        for (value, label) in shown.iter_mut().zip(self.0.labels) {
            if label.open {
                *value = OTHER;
            }
        }
        shown
    }

    fn key(&self, values: &[&str; N]) -> String {
        let mut key = String::with_capacity(32 * N);
        for (label, value) in self.0.labels.iter().zip(values) {
            push_label(&mut key, label.name, value);
        }
        key
    }

    fn find(&self, key: &str) -> Option<M> {
        let series = self.0.series.read();
        let found = series.get(key)?;
        found.unheld.store(false, Relaxed);
        Some(found.metric.clone())
    }

    fn insert(&self, key: String) -> M {
        let mut series = self.0.series.write();
        let fresh = || Series { metric: M::make(self.0.setup), unheld: AtomicBool::new(false) };
        series.entry(key.into()).or_insert_with(fresh).metric.clone()
    }
}

impl<M: Metric, const N: usize> Render for Family<M, N> {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn help(&self) -> &'static str {
        self.0.help
    }

    fn kind(&self) -> Kind {
        M::KIND
    }

    fn render(&self, sink: &mut Sink<'_>) {
        // Handles are copied out first: writing out thousands of series must not keep a request from making its handle.
        let series: Vec<(Arc<str>, M)> =
            self.0.series.read().iter().map(|(key, series)| (Arc::clone(key), series.metric.clone())).collect();
        for (labels, metric) in series {
            metric.write(sink, &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(most: usize) -> (Family<Counter, 2>, Counter) {
        let dropped = Counter::default();
        let labels = [Label::open("tenant"), Label::closed("status")];
        (Family::new("t", "help", labels, (), most, dropped.clone()), dropped)
    }

    fn shown(family: &Family<Counter, 2>) -> String {
        let mut out = String::new();
        crate::registry::render_one(family, &mut out);
        out
    }

    #[test]
    fn the_same_labels_share_a_series_and_others_do_not() {
        let (family, _) = family(10);
        family.get(["a", "200"]).inc();
        family.get(["a", "200"]).inc();
        // Without escaping these two would be written alike.
        family.get(["a\",status=\"500", "x"]).inc();
        family.get(["a", "500"]).inc();
        assert_eq!((family.get(["a", "200"]).get(), family.len()), (2, 3));
    }

    #[test]
    fn over_the_bound_open_labels_read_other_and_closed_ones_stay() {
        let (family, dropped) = family(2);
        for tenant in ["a", "b", "c", "d"] {
            family.get([tenant, "200"]).inc();
        }
        family.get(["e", "500"]).add(5);
        family.get(["a", "200"]).inc();
        let out = shown(&family);
        assert!(out.contains("t{tenant=\"a\",status=\"200\"} 2\n"), "{out}");
        assert!(out.contains("t{tenant=\"other\",status=\"200\"} 2\n"), "{out}");
        assert!(out.contains("t{tenant=\"other\",status=\"500\"} 5\n"), "{out}");
        assert_eq!(dropped.get(), 3);
    }

    #[test]
    fn a_hundred_thousand_names_leave_the_series_flat() {
        let (family, dropped) = family(100);
        for i in 0..100_000 {
            // The closed label is abused as an open one: the hard bound still holds.
            family.get([&format!("t{i}"), &format!("s{i}")]).inc();
        }
        assert_eq!(family.len(), 100 + OVERFLOW_ROOM + 1);
        assert_eq!(dropped.get(), 99_900);
        let total: u64 = family.0.series.read().values().map(|s| s.metric.get()).sum();
        assert_eq!(total, 100_000, "nothing is lost, only its name");
    }

    #[test]
    fn an_unheld_series_goes_at_the_second_call() {
        let (family, _) = family(10);
        let kept = family.get(["kept", "200"]);
        family.get(["gone", "200"]).inc();
        family.get(["back", "200"]).inc();
        family.release_unheld();
        assert_eq!(family.len(), 3);
        assert_eq!(family.get(["back", "200"]).get(), 1);
        family.release_unheld();
        assert_eq!(family.len(), 2);
        drop(kept);
        family.release_unheld();
        family.release_unheld();
        assert!(family.is_empty());
    }

    #[test]
    fn threads_that_race_for_one_series_lose_no_count() {
        let (family, _) = family(1_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..4_000).for_each(|i| family.get([&format!("{}", i % 100), "200"]).inc()));
            }
        });
        let total: u64 = family.0.series.read().values().map(|s| s.metric.get()).sum();
        assert_eq!((total, family.len()), (16_000, 100));
    }
}
