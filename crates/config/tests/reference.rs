//! The reference in docs/configuration.md names every field of the schema, with its description.

use std::path::Path;

use serde_json::Value;

fn fields(schema: &Value, path: &str, out: &mut Vec<(String, String)>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{path}{name}");
        out.push((at.clone(), field["description"].as_str().unwrap_or_default().to_owned()));
        let forms = field["anyOf"].as_array().into_iter().chain(field["oneOf"].as_array()).flatten();
        for form in std::iter::once(field).chain(forms) {
            fields(form, &format!("{at}."), out);
            fields(&form["items"], &format!("{at}[]."), out);
        }
    }
}

#[test]
fn every_field_is_in_the_reference() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(page).expect("the reference is there");
    let mut all = Vec::new();
    fields(&holdfast_config::schema(), "", &mut all);
    assert!(all.len() > 80, "{}", all.len());
    for (path, description) in all {
        let named = page.contains(&format!("| `{path}` |")) || page.contains(&format!("\n## {path}\n"));
        assert!(named, "{path} is not in docs/configuration.md");
        assert!(page.contains(&description), "{path}: {description}");
    }
}
