//! The entries of pinned versions as the state folder keeps them: what a pin in force needs, should its version be gone from the file after a restart.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use holdfast_config::{Config, Digest, Golden, Model, ModelVersion, Pins};
use holdfast_types::{Bytes, ModelName, PoolName, Version};

/// A version of a model in a pool, whole.
#[derive(Serialize, Deserialize)]
pub(super) struct KeptForm {
    model: String,
    pool: String,
    version: String,
    size: Option<u64>,
    digest: Option<DigestForm>,
    golden: Vec<GoldenForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DigestForm {
    Blake3([u8; 32]),
    Sha256([u8; 32]),
}

#[derive(Serialize, Deserialize)]
struct GoldenForm {
    input: serde_json::Value,
    output: serde_json::Value,
    tolerance: f64,
}

/// The models of a configuration, each with only those of its versions that a pin names.
pub(super) fn pinned_models(config: &Config, pins: &Pins) -> Vec<Model> {
    let pinned: BTreeSet<(&str, &str)> = pins.iter().map(|((_, m), v)| (m.as_str(), v.as_str())).collect();
    let models = config.models.iter().map(|model| {
        let named = |v: &&ModelVersion| pinned.contains(&(model.name.as_str(), v.version.as_str()));
        let versions = model.versions.iter().filter(named).cloned().collect();
        Model { name: model.name.clone(), pool: model.pool.clone(), idempotent: model.idempotent, versions }
    });
    models.filter(|model| !model.versions.is_empty()).collect()
}

/// As it is written.
pub(super) fn to_forms(models: &[Model]) -> Vec<KeptForm> {
    let forms = models.iter().flat_map(|model| {
        model.versions.iter().map(|version| KeptForm {
            model: model.name.to_string(),
            pool: model.pool.to_string(),
            version: version.version.to_string(),
            size: version.size.map(|size| size.0),
            digest: version.digest.map(|digest| match digest {
                Digest::Blake3(bytes) => DigestForm::Blake3(bytes),
                Digest::Sha256(bytes) => DigestForm::Sha256(bytes),
            }),
            golden: version.golden.iter().map(golden_form).collect(),
        })
    });
    forms.collect()
}

fn golden_form(golden: &Golden) -> GoldenForm {
    GoldenForm { input: golden.input.clone(), output: golden.output.clone(), tolerance: golden.tolerance }
}

/// As it was written. None: a name in it is not an id.
pub(super) fn to_models(forms: Vec<KeptForm>) -> Option<Vec<Model>> {
    let mut models: Vec<Model> = Vec::new();
    for form in forms {
        let (name, pool) = (ModelName::parse(&form.model).ok()?, PoolName::parse(&form.pool).ok()?);
        let golden = form.golden.into_iter();
        let version = ModelVersion {
            version: Version::parse(&form.version).ok()?,
            size: form.size.map(Bytes),
            digest: form.digest.map(|digest| match digest {
                DigestForm::Blake3(bytes) => Digest::Blake3(bytes),
                DigestForm::Sha256(bytes) => Digest::Sha256(bytes),
            }),
            golden: golden.map(|g| Golden { input: g.input, output: g.output, tolerance: g.tolerance }).collect(),
        };
        match models.iter_mut().find(|m| m.name == name && m.pool == pool) {
            Some(model) => model.versions.push(version),
            None => models.push(Model { name, pool, idempotent: false, versions: vec![version] }),
        }
    }
    Some(models)
}
