//! Golden questions that a file names become part of their version, so that no other process needs the file.

use serde_json::Value as Json;

use holdfast_config::{Config, ResourceKind, Resources};

/// Puts the questions and answers of a configuration in place of the names of their files. The resources are those of the configuration. Whoever sends
/// a file's content to a desk does this first, since a desk opens no file for others.
pub fn inline(resources: &mut Resources, config: &Config) {
    for model in &config.models {
        for version in model.versions.iter().filter(|version| !version.golden.is_empty()) {
            let key = (ResourceKind::Version, format!("{}/{}", model.name, version.version));
            let Some(Json::Array(forms)) = resources.get_mut(&key).and_then(|content| content.get_mut("golden")) else {
                continue;
            };
            for (form, golden) in forms.iter_mut().zip(&version.golden) {
                put(form, "input", &golden.input);
                put(form, "output", &golden.output);
            }
        }
    }
}

/// A document that is not a mapping is the name of a file.
fn put(form: &mut Json, field: &str, document: &Json) {
    if let Some(named) = form.get_mut(field).filter(|named| !named.is_object()) {
        *named = document.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::{Source, load, split};

    const TEXT: &str = "
pools:
  - { name: p, protocol: open-inference, residency: repository, replicas: [{ name: r, url: 'http://127.0.0.1:1' }] }
models:
  - name: m
    pool: p
    versions:
      - { version: '1', size: 1, golden: [{ input: in.json, output: { a: 1 } }, { input: { b: '2' }, output: out.json, tolerance: 0.5 }] }
";

    #[test]
    fn files_become_content_and_read_as_the_same_configuration() {
        let awkward = r#"{"text":"a: \"b\" \u0001\n é \ud83d\ude00 ~","n":[1,-2.5e-7,1e300,12345678901234567890,null,true],"0":"null","s":"1.0"}"#;
        let read_file = |_: &std::path::Path| Ok(awkward.as_bytes().to_vec());
        let files = Source { read_file: &read_file, ..Source::text("c.yaml", TEXT) };
        let mut split = split(&files).unwrap();
        inline(&mut split.resources, &split.loaded.config);
        let text = holdfast_config::assemble(&split.rest, &split.resources);
        assert!(!text.contains(".json"), "{text}");
        let again = load(&Source::text("again", &text)).unwrap();
        assert_eq!(again.config.models, split.loaded.config.models);
    }
}
