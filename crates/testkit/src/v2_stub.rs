//! A handler for [`crate::Stub`] that behaves like an Open Inference V2 server, to be overridden request by request.
//!
//! It holds models by name in a table, answers health, ready, metadata, index, load and unload, and echoes on `infer` which model and
//! version it is. A fault test wraps it: its own script for the request of interest, this one for all others.

use crate::script::Script;
use crate::stub::StubRequest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A repository of model names; each has a version and is loaded or not.
#[derive(Debug, Default)]
pub struct V2 {
    models: Mutex<BTreeMap<String, Model>>,
}

#[derive(Debug, Clone)]
struct Model {
    version: String,
    loaded: bool,
}

impl V2 {
    /// A server that knows `(name, version)` pairs, all of them loaded.
    #[must_use]
    pub fn loaded(models: &[(&str, &str)]) -> Self {
        Self::with(models, true)
    }

    /// A server that knows `(name, version)` pairs, none of them loaded.
    #[must_use]
    pub fn unloaded(models: &[(&str, &str)]) -> Self {
        Self::with(models, false)
    }

    fn with(models: &[(&str, &str)], loaded: bool) -> Self {
        let models =
            models.iter().map(|(n, v)| ((*n).to_owned(), Model { version: (*v).to_owned(), loaded })).collect();
        Self { models: Mutex::new(models) }
    }

    /// Names loaded now.
    #[must_use]
    pub fn names_loaded(&self) -> Vec<String> {
        self.lock().iter().filter(|(_, m)| m.loaded).map(|(n, _)| n.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Model>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The correct answer to a request.
    #[must_use]
    pub fn answer(&self, request: &StubRequest) -> Script {
        let path = request.path.split('?').next().unwrap_or("");
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        match parts.as_slice() {
            ["v2"] => Script::json(200, &json!({"name": "stub", "version": "0", "extensions": []})),
            ["v2", "health", "live" | "ready"] => Script::json(200, &json!({})),
            ["v2", "repository", "index"] => Script::json(200, &self.index()),
            ["v2", "repository", "models", name, "load"] => self.set(name, true),
            ["v2", "repository", "models", name, "unload"] => self.set(name, false),
            ["v2", "models", name, rest @ ..] => self.model(request, name, rest),
            _ => Script::json(404, &json!({"error": "no such path"})),
        }
    }

    fn index(&self) -> Value {
        let entry = |(name, model): (&String, &Model)| {
            let state = if model.loaded { "READY" } else { "UNAVAILABLE" };
            json!({"name": name, "version": model.version, "state": state, "reason": ""})
        };
        Value::Array(self.lock().iter().map(entry).collect())
    }

    fn set(&self, name: &str, loaded: bool) -> Script {
        match self.lock().get_mut(name) {
            Some(model) => {
                model.loaded = loaded;
                Script::json(200, &json!({}))
            }
            None => not_found(name),
        }
    }

    fn model(&self, request: &StubRequest, name: &str, rest: &[&str]) -> Script {
        let found = self.lock().get(name).filter(|m| m.loaded).cloned();
        let Some(model) = found else { return not_found(name) };
        let (version, rest) = match rest {
            ["versions", version, rest @ ..] => (*version, rest),
            _ => (model.version.as_str(), rest),
        };
        if version != model.version {
            return not_found(name);
        }
        match rest {
            [] => Script::json(200, &json!({"name": name, "versions": [version], "inputs": [], "outputs": []})),
            ["ready"] => Script::json(200, &json!({"name": name, "ready": true})),
            ["infer"] => Script::json(200, &infer_answer(request, name, version)),
            _ => Script::json(404, &json!({"error": "no such path"})),
        }
    }
}

/// The answer of a model that echoes its name and version; `id` is the request's.
#[must_use]
pub fn infer_answer(request: &StubRequest, name: &str, version: &str) -> Value {
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let mut answer = json!({
        "model_name": name,
        "model_version": version,
        "outputs": [{"name": "served", "datatype": "BYTES", "shape": [1], "data": [format!("{name}/{version}")]}],
    });
    if let (Some(id), Some(fields)) = (asked.get("id"), answer.as_object_mut()) {
        fields.insert("id".into(), id.clone());
    }
    answer
}

fn not_found(name: &str) -> Script {
    Script::json(404, &json!({"error": format!("Model {name} not found")}))
}
