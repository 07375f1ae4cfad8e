//! A JSON value as YAML for people: keys and lists on lines of their own, strings as JSON writes them, which YAML reads (YAML 1.2, 7.3.1).

use serde_json::Value;

/// Words that a reader may take for something else than a text.
const NO_KEYS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];

/// The text, with a line break at its end.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    match is_nested(value) {
        true => nested(value, 0, &mut out),
        false => out.push_str(&format!("{value}\n")),
    }
    out
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn nested(value: &Value, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                out.push_str(&format!("{pad}{}:", key(name)));
                if is_nested(value) {
                    out.push('\n');
                    nested(value, indent + 2, out);
                } else {
                    out.push_str(&format!(" {value}\n"));
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut inner = String::new();
                match is_nested(item) {
                    true => nested(item, indent + 2, &mut inner),
                    false => inner = format!("{pad}  {item}\n"),
                }
                // The first line of the item begins behind its dash.
                out.push_str(&format!("{pad}- {}", inner.get(indent + 2..).unwrap_or_default()));
            }
        }
        other => out.push_str(&format!("{pad}{other}\n")),
    }
}

/// A key without quotes where nobody can take it for something else.
fn key(name: &str) -> String {
    let is_word = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && !NO_KEYS.iter().any(|word| word.eq_ignore_ascii_case(name));
    if is_word { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_written_as_people_write_it() {
        let value = json!({
            "a": { "b": [1, "x: y", true, null], "e": {}, "l": [] },
            "list": [{ "name": "one", "more": { "k": 0.5 } }, [1, [2]]],
        });
        let expected = "a:\n  b:\n    - 1\n    - \"x: y\"\n    - true\n    - null\n  e: {}\n  l: []\nlist:\n  - more:\n      k: 0.5\n    name: \"one\"\n  - - 1\n    - - 2\n";
        // Members come in the order that the value has them in.
        let written = text(&value);
        let sorted = |text: &str| {
            let mut lines: Vec<String> =
                text.lines().map(|line| line.replace("- ", "  ").trim_start().to_owned()).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&written), sorted(expected), "{written}");
        assert_eq!((text(&json!({})), text(&json!("a\nb"))), ("{}\n".to_owned(), "\"a\\nb\"\n".to_owned()));
    }

    #[test]
    fn keys_that_could_be_something_else_are_in_quotes() {
        for (name, written) in [
            ("screen", "screen"),
            ("a_b-1", "a_b-1"),
            ("no", "\"no\""),
            ("NULL", "\"NULL\""),
            ("1", "\"1\""),
            ("a b", "\"a b\""),
            ("", "\"\""),
        ] {
            assert_eq!(key(name), written);
        }
    }
}
