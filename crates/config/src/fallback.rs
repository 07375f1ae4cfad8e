//! What a tenant's clients are answered in place of a refusal: an inference's answer that no model has given, and that says so.

use serde_json::{Map, Value as Json, json};

use crate::fault::Sink;
use crate::kind::{Kind, mapping};
use crate::path::Path;
use crate::special::to_json;
use crate::tree::Node;

/// Largest of them, as JSON.
const MOST: usize = 64 * 1024;

/// The members of an inference's answer that only the gateway can say.
const OWN: [&str; 3] = ["id", "model_name", "model_version"];

/// An answer: `outputs`, and `parameters` if need be.
pub(crate) struct FallbackKind;

impl Kind for FallbackKind {
    type Out = Map<String, Json>;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out> {
        mapping(node, path, sink)?;
        let Json::Object(answer) = to_json(node, path, sink)? else { return None };
        for own in OWN.iter().filter(|own| answer.contains_key(**own)) {
            sink.add(node.place, &path.field(own), "is not for a fallback to say: no version has given it");
        }
        if !answer.get("outputs").is_some_and(Json::is_array) {
            sink.add(node.place, path, "has no list `outputs`, as an inference's answer has");
        }
        if answer.get("parameters").is_some_and(|parameters| !parameters.is_object()) {
            sink.add(node.place, &path.field("parameters"), "is no mapping");
        }
        if json!(answer).to_string().len() > MOST {
            sink.add(node.place, path, format!("is larger than {MOST} bytes"));
        }
        Some(answer)
    }

    fn schema(&self) -> Json {
        json!({ "type": "object", "required": ["outputs"], "properties": {
            "outputs": { "type": "array" }, "parameters": { "type": "object" } } })
    }

    fn show(&self, _: &Self::Out) -> Json {
        Json::Null
    }
}

/// The whole answer for clients of this model. It is marked also for who looks at nothing but the body.
pub(crate) fn written(model: &str, answer: &Map<String, Json>) -> String {
    let mut answer = answer.clone();
    answer.insert("model_name".to_owned(), json!(model));
    let parameters = answer.entry("parameters").or_insert_with(|| json!({}));
    if let Some(parameters) = parameters.as_object_mut() {
        parameters.insert("fallback".to_owned(), json!(true));
    }
    json!(answer).to_string()
}
