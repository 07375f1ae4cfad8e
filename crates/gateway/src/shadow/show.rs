//! What copied traffic has shown, as JSON. Values of requests and answers are in none of it.

use serde_json::{Value, json};

use super::difference::{Difference, Kind};
use super::order::ShadowReport;

/// Pin by pin.
pub(crate) fn told(reports: &[ShadowReport]) -> Value {
    reports.iter().map(pin).collect()
}

fn pin(report: &ShadowReport) -> Value {
    let differences = report.differences.iter().map(|noted| {
        let mut told = difference(&noted.difference);
        told["request_id"] = noted.request.as_str().into();
        told
    });
    json!({
        "pin": report.pin, "agreed": report.agreed, "differed": report.differed, "failed": report.failed,
        "dropped": report.dropped, "not_comparable": report.not_comparable, "differences": differences.collect::<Vec<_>>(),
    })
}

fn difference(difference: &Difference) -> Value {
    let status = if let Kind::Status(status) = difference.kind { Some(status) } else { None };
    let facts = [
        ("kind", Some(difference.kind.as_str().into())),
        ("status", status.map(Value::from)),
        ("output", difference.output.as_deref().map(Value::from)),
        ("datatype", difference.datatype.map(Value::from)),
        ("index", difference.index.map(Value::from)),
        ("apart", difference.magnitude.map(|apart| apart.as_str().into())),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
