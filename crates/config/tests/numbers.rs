//! Every number of the file, found by the schema: what is none, not finite or out of range is a fault at its place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use holdfast_config::{Fault, Faults, Source, load, schema};
use serde_json::Value;

/// Never a number in any field.
const NEVER: [&str; 11] = ["NaN", ".nan", "inf", ".inf", "-.inf", "-inf", "1e400", "-1e308", "0x1F", "1_000", "--1"];
/// A fault at its place, or a legal value: what a field makes of these is its own business, as long as it says so.
const EITHER: [&str; 10] =
    ["-0", "1e308", "-1", "\"10\"", "1.5", "0", "1e3", "18446744073709551615", "4294967296", "99999999999999999999999"];

/// A field that holds a number: how it is reached in the file, as a fault tells it, and its schema.
struct Leaf {
    before: String,
    after: String,
    path: String,
    schema: Value,
}

impl Leaf {
    fn faults(&self, value: &str) -> Option<Faults> {
        let text = format!("{}{value}{}\n", self.before, self.after);
        let faults = load(&Source::text("t.yaml", &text)).err()?;
        assert!(faults.listed.iter().all(|fault| fault.line >= 1 && fault.column >= 1), "{}: {faults}", self.path);
        assert!(faults.total == faults.listed.len(), "few enough to list: {faults}");
        Some(faults)
    }

    /// The fault of this very field.
    fn fault(&self, value: &str) -> Option<Fault> {
        self.faults(value)?.listed.into_iter().find(|fault| fault.path == self.path)
    }

    /// Its place.
    fn place(&self, value: &str) -> Option<(u32, u32)> {
        self.fault(value).map(|fault| (fault.line, fault.column))
    }
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    std::iter::once(schema).chain(["anyOf", "oneOf"].into_iter().filter_map(|of| schema[of].as_array()).flatten())
}

/// Whole numbers, others, sizes and times: what is written with digits.
fn is_number(schema: &Value) -> bool {
    alternatives(schema).any(|one| {
        let written =
            one["pattern"].as_str().is_some_and(|p| p.trim_start_matches(['^', '\\', 's', '*']).starts_with("[0-9]"));
        matches!(one["type"].as_str(), Some("integer" | "number")) || written
    })
}

fn walk(schema: &Value, (before, after): (&str, &str), path: &str, found: &mut Vec<Leaf>) {
    if is_number(schema) {
        let (before, after) = (before.to_owned(), after.to_owned());
        found.push(Leaf { before, after, path: path.to_owned(), schema: schema.clone() });
    }
    for one in alternatives(schema) {
        for (name, field) in one["properties"].as_object().into_iter().flatten() {
            let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            // The outermost mapping stands in lines, the others in braces.
            let (open, close) = if path.is_empty() { ("", "") } else { ("{ ", " }") };
            walk(field, (&format!("{before}{open}{name}: "), &format!("{close}{after}")), &inner, found);
        }
        if one["additionalProperties"].is_object() {
            let around = (format!("{before}{{ one: "), format!(" }}{after}"));
            walk(&one["additionalProperties"], (&around.0, &around.1), &format!("{path}.one"), found);
        }
        if one["items"].is_object() {
            walk(&one["items"], (&format!("{before}["), &format!("]{after}")), &format!("{path}[0]"), found);
        }
    }
}

fn leaves() -> Vec<Leaf> {
    let mut found = Vec::new();
    walk(&schema(), ("", ""), "", &mut found);
    found
}

#[test]
fn what_is_no_number_is_a_fault_at_its_place_in_every_field() {
    let leaves = leaves();
    assert!(leaves.len() > 120, "{} fields", leaves.len());
    for leaf in &leaves {
        let column = u32::try_from(leaf.before.chars().count() + 1).unwrap();
        for value in NEVER {
            assert_eq!(leaf.place(value), Some((1, column)), "{}: {value}", leaf.path);
        }
        for value in EITHER {
            let place = leaf.place(value);
            assert!(place.is_none_or(|place| place == (1, column)), "{}: {value}", leaf.path);
        }
    }
}

/// The ranges that the schema states are those that hold: one past either end is a fault, and the ends themselves are none.
#[test]
fn the_ends_of_ranges_are_legal_and_what_is_past_them_is_not() {
    let mut checked = 0;
    for leaf in leaves() {
        for one in alternatives(&leaf.schema) {
            for (end, past) in [("minimum", -1), ("maximum", 1)] {
                let Some(limit) = one[end].as_i64() else { continue };
                // A field may be at odds with its neighbours, but not with its own range.
                let told = leaf.fault(&limit.to_string()).map(|fault| fault.reason).unwrap_or_default();
                assert!(!told.contains("must be from"), "{}: {end} {limit}: {told}", leaf.path);
                let past = i128::from(limit) + past;
                assert!(leaf.place(&past.to_string()).is_some(), "{}: past the {end}: {past}", leaf.path);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked} ends");
}
