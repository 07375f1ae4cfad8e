//! The list of metrics, and their exposition as Prometheus text (format 0.0.4).
//!
//! Metrics are shown in the order in which they were registered. A name is registered once; a second metric of the same name works but is
//! not shown, since an exposition with a name twice is refused whole by scrapers.

use std::fmt;

use parking_lot::RwLock;

use crate::family::{Family, Label};
use crate::histogram::{Histogram, Scale};
use crate::metric::{Counter, Gauge, Metric};
use crate::text::{push_float, push_help, push_label, push_seconds};

/// A metric's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Something with a name that can be shown.
pub(crate) trait Render: Send + Sync {
    fn name(&self) -> &'static str;
    fn help(&self) -> &'static str;
    fn kind(&self) -> Kind;
    fn render(&self, sink: &mut Sink<'_>);
}

/// Where a metric's samples are written.
pub struct Sink<'a> {
    out: &'a mut String,
    name: &'static str,
    labels: &'a [&'static str],
    /// How many more samples a collector may write.
    room: usize,
    dropped: u64,
}

impl Sink<'_> {
    /// Writes one sample of a collector: the label values in the order of the labels, and the value. The same values must not be written
    /// twice. Samples over the bound on series are dropped and counted.
    pub fn sample(&mut self, values: &[&str], value: f64) {
        let Some(room) = self.room.checked_sub(1) else {
            self.dropped = self.dropped.saturating_add(1);
            return;
        };
        self.room = room;
        self.out.push_str(self.name);
        if !self.labels.is_empty() {
            self.out.push('{');
            for (i, name) in self.labels.iter().enumerate() {
                push_label(self.out, name, values.get(i).copied().unwrap_or_default());
            }
            self.out.push('}');
        }
        self.out.push(' ');
        push_float(self.out, value);
        self.out.push('\n');
    }

    /// Writes `name<suffix>{labels,le="bound"} value`; an empty bound is left out.
    pub(crate) fn integer(&mut self, suffix: &str, labels: &str, bound: &str, value: i128) {
        self.head(suffix, labels, bound);
        self.out.push_str(itoa::Buffer::new().format(value));
        self.out.push('\n');
    }

    /// The same for a value in nanoseconds, shown in seconds.
    pub(crate) fn seconds(&mut self, suffix: &str, labels: &str, nanos: u64) {
        self.head(suffix, labels, "");
        push_seconds(self.out, nanos);
        self.out.push('\n');
    }

    fn head(&mut self, suffix: &str, labels: &str, bound: &str) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        if !labels.is_empty() || !bound.is_empty() {
            self.out.push('{');
            self.out.push_str(labels);
            if !bound.is_empty() {
                push_label_after(self.out, labels, bound);
            }
            self.out.push('}');
        }
        self.out.push(' ');
    }
}

fn push_label_after(out: &mut String, labels: &str, bound: &str) {
    out.push_str(if labels.is_empty() { "le=\"" } else { ",le=\"" });
    out.push_str(bound);
    out.push('"');
}

/// What reads a collector's values.
pub(crate) type Read = Box<dyn Fn(&mut Sink<'_>) + Send + Sync>;

struct Plain<M> {
    name: &'static str,
    help: &'static str,
    metric: M,
}

impl<M: Metric> Render for Plain<M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn kind(&self) -> Kind {
        M::KIND
    }

    fn render(&self, sink: &mut Sink<'_>) {
        self.metric.write(sink, "");
    }
}

struct Collector {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    most: usize,
    dropped: Counter,
    read: Read,
}

impl Render for Collector {
    fn name(&self) -> &'static str {
        self.name
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn render(&self, sink: &mut Sink<'_>) {
        let mut mine = Sink { out: &mut *sink.out, name: self.name, labels: self.labels, room: self.most, dropped: 0 };
        (self.read)(&mut mine);
        self.dropped.add(mine.dropped);
    }
}

/// The list of metrics.
pub struct Registry {
    series: usize,
    dropped: Family<Counter, 1>,
    metrics: RwLock<Vec<Box<dyn Render>>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("metrics", &self.metrics.read().len()).finish_non_exhaustive()
    }
}

impl Registry {
    /// The content type of [`Registry::render`].
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// An empty list. `series` is the most series that one metric may have.
    #[must_use]
    pub fn new(series: usize) -> Self {
        let dropped = Family::new(
            "holdfast_metric_series_dropped_total",
            "Label sets that got no series of their own because the metric was at its bound.",
            [Label::closed("metric")],
            (),
            usize::MAX,
            Counter::default(),
        );
        let metrics: Vec<Box<dyn Render>> = vec![Box::new(dropped.clone())];
        Self { series, dropped, metrics: RwLock::new(metrics) }
    }

    /// Registers a metric that exists already.
    pub fn register<M: Metric>(&self, name: &'static str, help: &'static str, metric: M) {
        self.add(Box::new(Plain { name, help, metric }));
    }

    /// A new counter.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        let metric = Counter::default();
        self.register(name, help, metric.clone());
        metric
    }

    /// A new gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        let metric = Gauge::default();
        self.register(name, help, metric.clone());
        metric
    }

    /// A new histogram.
    pub fn histogram(&self, name: &'static str, help: &'static str, scale: &'static Scale) -> Histogram {
        let metric = Histogram::new(scale);
        self.register(name, help, metric.clone());
        metric
    }

    /// A new metric with labels. `setup` is `()`, or the scale of a histogram.
    pub fn family<M: Metric, const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [Label; N],
        setup: M::Setup,
    ) -> Family<M, N> {
        let family = Family::new(name, help, labels, setup, self.series, self.dropped.get([name]));
        self.add(Box::new(family.clone()));
        family
    }

    /// A metric whose values live elsewhere: `read` is called at each scrape. It must not block for long, nor register metrics.
    pub fn collector(
        &self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
        read: Box<dyn Fn(&mut Sink<'_>) + Send + Sync>,
    ) {
        let dropped = if labels.is_empty() { Counter::default() } else { self.dropped.get([name]) };
        self.add(Box::new(Collector { name, help, kind, labels, most: self.series, dropped, read }));
    }

    /// Appends the whole exposition to `out`. Takes milliseconds with tens of thousands of series: not for a thread that serves requests.
    pub fn render(&self, out: &mut String) {
        for metric in &*self.metrics.read() {
            render_one(&**metric, out);
        }
    }

    fn add(&self, metric: Box<dyn Render>) {
        let mut metrics = self.metrics.write();
        if metrics.iter().any(|known| known.name() == metric.name()) {
            tracing::error!(
                metric = metric.name(),
                "a metric of this name is registered already; this one is not shown"
            );
            return;
        }
        metrics.push(metric);
    }
}

/// Appends one metric: its two comment lines, then its samples.
pub(crate) fn render_one(metric: &dyn Render, out: &mut String) {
    let (name, kind) = (metric.name(), metric.kind().as_str());
    for part in ["# HELP ", name, " "] {
        out.push_str(part);
    }
    push_help(out, metric.help());
    for part in ["\n# TYPE ", name, " ", kind, "\n"] {
        out.push_str(part);
    }
    metric.render(&mut Sink { out, name, labels: &[], room: 0, dropped: 0 });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::LATENCY;
    use std::time::Duration;

    fn shown(registry: &Registry) -> String {
        let mut out = String::new();
        registry.render(&mut out);
        out
    }

    #[test]
    fn the_exposition_to_the_letter() {
        let registry = Registry::new(10);
        registry.counter("a_total", "Back\\slash\nand line.").add(3);
        registry.gauge("b", "A gauge.").set(-2);
        registry.collector("c", "Read.", Kind::Gauge, &["x"], Box::new(|sink| sink.sample(&["q\""], 0.5)));
        let expected = "\
# HELP holdfast_metric_series_dropped_total Label sets that got no series of their own because the metric was at its bound.
# TYPE holdfast_metric_series_dropped_total counter
holdfast_metric_series_dropped_total{metric=\"c\"} 0
# HELP a_total Back\\\\slash\\nand line.
# TYPE a_total counter
a_total 3
# HELP b A gauge.
# TYPE b gauge
b -2
# HELP c Read.
# TYPE c gauge
c{x=\"q\\\"\"} 0.5
";
        assert_eq!(shown(&registry), expected);
    }

    #[test]
    fn a_histogram_is_cumulative_and_its_count_is_its_last_bucket() {
        let registry = Registry::new(10);
        let family = registry.family("h_seconds", "H.", [Label::open("m")], &LATENCY);
        let histogram: Histogram = family.get(["x"]);
        for micros in [10, 20, 21, 90_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let out = shown(&registry);
        for line in [
            "h_seconds_bucket{m=\"x\",le=\"0.00002\"} 2\n",
            "h_seconds_bucket{m=\"x\",le=\"0.00005\"} 3\n",
            "h_seconds_bucket{m=\"x\",le=\"60\"} 3\n",
            "h_seconds_bucket{m=\"x\",le=\"+Inf\"} 4\n",
            "h_seconds_sum{m=\"x\"} 90.000051000\n",
            "h_seconds_count{m=\"x\"} 4\n",
        ] {
            assert!(out.contains(line), "{line} in {out}");
        }
        assert_eq!(out.matches("_bucket").count(), 21);
    }

    #[test]
    fn a_second_metric_of_one_name_is_not_shown() {
        let registry = Registry::new(10);
        registry.counter("a_total", "First.").add(1);
        registry.counter("a_total", "Second.").add(2);
        let out = shown(&registry);
        assert!(out.contains("a_total 1\n") && !out.contains("Second"), "{out}");
    }

    #[test]
    fn a_collector_is_bounded_and_its_drops_are_counted() {
        let registry = Registry::new(3);
        let many = |sink: &mut Sink<'_>| (0..10).for_each(|i| sink.sample(&[&i.to_string()], 1.0));
        registry.collector("many", "Many.", Kind::Gauge, &["i"], Box::new(many));
        let out = shown(&registry);
        assert_eq!(out.matches("\nmany{").count(), 3);
        assert!(shown(&registry).contains("dropped_total{metric=\"many\"} 7\n"));
    }
}
