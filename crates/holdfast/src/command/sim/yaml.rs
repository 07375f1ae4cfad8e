//! A scenario from YAML: one document of mappings, lists and scalars.

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value as Json};

use holdfast_sim::scenario::{Fault, Scenario};

/// The most bytes of a scenario, and the deepest nesting.
const MAX_TEXT: usize = 1 << 20;
const MAX_DEPTH: usize = 16;

/// What is open.
enum Open {
    List(Vec<Json>),
    Map(Map<String, Json>, Option<String>),
}

fn wrong(field: &str, why: impl Into<String>) -> Fault {
    Fault { field: field.to_owned(), why: why.into() }
}

/// Reads a scenario.
///
/// # Errors
/// All that is wrong with it, or, of a text that is no YAML or a world that is none, that.
pub fn scenario(text: &str) -> Result<Scenario, Vec<Fault>> {
    let Json::Object(mut top) = value(text).map_err(|fault| vec![fault])? else {
        return Err(vec![wrong("", "a scenario is a mapping with name, about, world, set and expect")]);
    };
    let mut faults = Vec::new();
    let mut words = |field: &str| told(word(top.remove(field), field), &mut faults).unwrap_or_default();
    let (name, about, world) = (words("name"), words("about"), words("world"));
    let set = told(mapping(top.remove("set"), "set"), &mut faults).unwrap_or_default();
    let expect = told(mapping(top.remove("expect"), "expect"), &mut faults).unwrap_or_default();
    faults.extend(top.keys().map(|field| wrong(field, "is no field of a scenario")));
    // Of a world that is none it cannot be said which knobs and figures it has.
    let Some(mut scenario) = told(Scenario::new(&name, &about, &world), &mut faults) else { return Err(faults) };
    let before = faults.len();
    for (knob, value) in set {
        let number = value.as_u64().ok_or_else(|| wrong(&format!("set.{knob}"), format!("{value} is no whole number")));
        told(number.and_then(|number| scenario.set(&knob, number)), &mut faults);
    }
    if faults.len() == before {
        faults.extend(scenario.at_odds());
    }
    expected(&mut scenario, expect, &mut faults);
    if faults.is_empty() { Ok(scenario) } else { Err(faults) }
}

/// What is right, or the fault noted.
fn told<T>(read: Result<T, Fault>, faults: &mut Vec<Fault>) -> Option<T> {
    read.map_err(|fault| faults.push(fault)).ok()
}

fn word(value: Option<Json>, field: &str) -> Result<String, Fault> {
    match value {
        Some(Json::String(text)) => Ok(text),
        Some(Json::Number(number)) => Ok(number.to_string()),
        Some(other) => Err(wrong(field, format!("{other} is no text"))),
        None => Err(wrong(field, "is missing")),
    }
}

fn expected(scenario: &mut Scenario, mut expect: Map<String, Json>, faults: &mut Vec<Fault>) {
    let promises = match expect.remove("promises") {
        None => Vec::new(),
        Some(Json::Array(all)) => all,
        Some(other) => {
            faults.push(wrong("expect.promises", format!("{other} is no list")));
            Vec::new()
        }
    };
    for promise in promises {
        let name = promise.as_str().ok_or_else(|| wrong("expect.promises", format!("{promise} is no name")));
        told(name.and_then(|name| scenario.expect(name)), faults);
    }
    let figures = told(mapping(expect.remove("figures"), "expect.figures"), faults).unwrap_or_default();
    for (figure, value) in figures {
        let numbers: Option<Vec<f64>> = value.as_array().and_then(|all| all.iter().map(Json::as_f64).collect());
        let read = match numbers.as_deref() {
            Some([least, most]) => scenario.within(&figure, *least, *most),
            _ => Err(wrong(&format!("expect.figures.{figure}"), format!("{value} is not a list of two numbers"))),
        };
        told(read, faults);
    }
    faults.extend(expect.keys().map(|field| wrong(&format!("expect.{field}"), "is no field of a scenario")));
}

fn mapping(value: Option<Json>, field: &str) -> Result<Map<String, Json>, Fault> {
    match value {
        None | Some(Json::Null) => Ok(Map::new()),
        Some(Json::Object(map)) => Ok(map),
        Some(other) => Err(wrong(field, format!("{other} is no mapping"))),
    }
}

fn value(text: &str) -> Result<Json, Fault> {
    if text.len() > MAX_TEXT {
        return Err(wrong("", format!("it has {} bytes; the most is {MAX_TEXT}", text.len())));
    }
    let (mut open, mut root): (Vec<Open>, Option<Json>) = (Vec::new(), None);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| wrong("", format!("it is not YAML: {error}")))?;
        let line = span.start.line();
        let done = match event {
            Event::Scalar(text, style, ..) => Some(scalar(&text, style == ScalarStyle::Plain)),
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Map::new(), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(items)) => Some(Json::Array(items)),
                Some(Open::Map(map, _)) => Some(Json::Object(map)),
                None => None,
            },
            Event::DocumentStart(..) if root.is_some() => {
                return Err(wrong("", format!("line {line} begins a second document; a scenario is one")));
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                return Err(wrong("", format!("line {line} has an alias; write the value out")));
            }
            _ => None,
        };
        if open.len() > MAX_DEPTH {
            return Err(wrong("", format!("line {line} is nested too deeply")));
        }
        let Some(done) = done else { continue };
        match open.last_mut() {
            None => root = Some(done),
            Some(Open::List(items)) => items.push(done),
            Some(Open::Map(map, key)) => match (key.take(), done) {
                (Some(key), value) => {
                    if map.insert(key.clone(), value).is_some() {
                        return Err(wrong(&key, format!("is given twice, the second time in line {line}")));
                    }
                }
                (None, Json::String(text)) => *key = Some(text),
                (None, other) => *key = Some(other.to_string()),
            },
        }
    }
    root.ok_or_else(|| wrong("", "it is empty"))
}

fn scalar(text: &str, plain: bool) -> Json {
    if !plain {
        return Json::String(text.to_owned());
    }
    let whole = || text.replace('_', "").parse::<u64>().ok().map(Json::from);
    let number = || text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Json::from);
    match text {
        "" | "~" | "null" => Json::Null,
        "true" => Json::from(1),
        "false" => Json::from(0),
        _ => whole().or_else(number).unwrap_or_else(|| Json::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name: a\nabout: b\nworld: lease\nset: { gateways: 4 }\nexpect: { promises: [RATE-1], figures: { over: [0, 100] } }\n";

    #[test]
    fn a_scenario_is_read() {
        let scenario = scenario(GOOD).unwrap();
        assert_eq!((scenario.name.as_str(), scenario.set.get("gateways")), ("a", 4));
        assert_eq!((scenario.promises, scenario.ranges.len()), (vec!["RATE-1"], 1));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        for (from, to, field) in [
            ("world: lease", "world: leese", &["world"][..]),
            ("gateways: 4", "gateway: 4", &["set.gateway"]),
            ("gateways: 4", "gateways: 0", &["set.gateways"]),
            ("gateways: 4", "gateways: many", &["set.gateways"]),
            ("RATE-1", "PIN-1", &["expect.promises"]),
            ("over: [0, 100]", "under: [0, 100]", &["expect.figures.under"]),
            ("over: [0, 100]", "over: [100, 0]", &["expect.figures.over"]),
            ("over: [0, 100]", "over: 7", &["expect.figures.over"]),
            ("about: b", "abuot: b", &["about", "abuot"]),
            ("about: b", "about: b\nseeds: 3", &["seeds"]),
            ("about: b", "about: b\nabout: c", &["about"]),
            ("about: b", "about: [b", &[""]),
        ] {
            let faults = scenario(&GOOD.replace(from, to)).unwrap_err();
            let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
            assert_eq!(fields, field, "{to}: {faults:?}");
        }
    }

    #[test]
    fn a_second_document_is_refused_and_not_run_in_the_place_of_the_first() {
        let faults = scenario(&format!("{GOOD}---\n{GOOD}")).unwrap_err();
        assert_eq!(faults, [wrong("", "line 6 begins a second document; a scenario is one")]);
        assert!(scenario(&format!("---\n{GOOD}...\n")).is_ok());
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let text = GOOD
            .replace("gateways: 4", "gateways: 0, seconds: x")
            .replace("over: [0", "under: [0")
            .replace("about: b", "seeds: 3");
        let faults = scenario(&text).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["about", "seeds", "set.gateways", "set.seconds", "expect.figures.under"]);
    }

    #[test]
    fn knobs_that_are_at_odds_are_refused() {
        let text = "name: a\nabout: b\nworld: quorum\nset: { replicas: 5, w: 6 }\n";
        let faults = scenario(text).unwrap_err();
        assert_eq!(faults, [wrong("set.w", "6 is more than replicas, which is 5")]);
        assert!(scenario(&text.replace('6', "5")).is_ok());
    }
}
