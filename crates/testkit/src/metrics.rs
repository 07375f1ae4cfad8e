//! A scrape of `/metrics`, parsed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

/// One sample line.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Metric name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

/// All samples of one scrape.
#[derive(Debug, Clone, Default)]
pub struct Metrics(pub Vec<Sample>);

impl Metrics {
    /// Parses the Prometheus text format (also OpenMetrics; exemplars and timestamps are dropped).
    ///
    /// # Errors
    /// The line that does not parse.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
        lines
            .map(|line| sample(line).ok_or_else(|| format!("not a sample: {line}")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The samples of a name whose labels contain all of `labels`.
    pub fn matching<'a>(&'a self, name: &'a str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |s| {
            s.name == name && labels.iter().all(|(k, v)| s.labels.get(*k).is_some_and(|have| have == v))
        })
    }

    /// The sum of the samples that match; 0 when there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|s| s.value).sum()
    }

    /// The value of the only sample that matches.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.matching(name, labels);
        let value = found.next()?.value;
        found.next().is_none().then_some(value)
    }

    /// Every series, by name and labels.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.0.iter().map(|sample| format!("{}{:?}", sample.name, sample.labels)).collect()
    }

    /// Number of different label sets of a name: its cardinality.
    #[must_use]
    pub fn series(&self, name: &str) -> usize {
        self.matching(name, &[]).count()
    }
}

/// Lets `promtool check metrics` judge a scrape: names, types, help texts, units.
///
/// # Errors
/// What promtool has to say.
///
/// # Panics
/// When promtool is not installed.
pub fn promtool_check(text: &str) -> Result<(), String> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("promtool ({e}): `make test` installs it"));
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() && said.is_empty() && matches!(written, Some(Ok(()))) {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&said)))
}

fn sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (BTreeMap::new(), rest),
    };
    let value = match rest.split_whitespace().next()? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().ok()?,
    };
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Labels up to the closing brace, and what follows it.
fn labels(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = quoted.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, c) => value.push(c),
            }
        };
        labels.insert(name.to_owned(), value);
        text = quoted.get(end + 1..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a b\n# TYPE a counter\na_total{x=\"1\",y=\"q\\\"}\\n\\\\\"} 3 1700000000\na_total{x=\"2\",y=\"z\"} 4 # {id=\"e\"} 1\nplain 1.5e3\nh_bucket{le=\"+Inf\"} +Inf\n";

    #[test]
    fn parses_labels_escapes_timestamps_and_exemplars() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert_eq!(metrics.sum("a_total", &[]), 7.0);
        assert_eq!(metrics.value("a_total", &[("y", "q\"}\n\\")]), Some(3.0));
        assert_eq!(metrics.value("a_total", &[]), None, "two match");
        assert_eq!(metrics.value("plain", &[]), Some(1500.0));
        assert_eq!(metrics.value("h_bucket", &[("le", "+Inf")]), Some(f64::INFINITY));
        assert_eq!(metrics.series("a_total"), 2);
        assert_eq!(metrics.names().len(), 4);
    }

    #[test]
    fn promtool_accepts_a_clean_scrape_and_names_a_fault() {
        let clean = "# HELP up_total Times up.\n# TYPE up_total counter\nup_total 1\n";
        assert_eq!(promtool_check(clean), Ok(()));
        let fault = promtool_check(&clean.replace("up_total", "up")).unwrap_err();
        assert!(fault.contains("_total"), "{fault}");
        assert!(promtool_check("up{ 1\n").is_err());
    }

    #[test]
    fn names_the_line_that_does_not_parse() {
        assert_eq!(Metrics::parse("ok 1\nbad{x=\"1} 2\n").unwrap_err(), "not a sample: bad{x=\"1} 2");
    }
}
