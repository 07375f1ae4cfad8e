//! The catalogue of models.

use std::collections::HashMap;

use holdfast_types::{ModelName, Version};
use serde_json::Value as Json;

use crate::check::Checker;
use crate::fault::quoted;
use crate::forms::{GoldenForm, ModelForm, PoolForm, VersionForm};
use crate::model::{Golden, Model, ModelVersion};
use crate::path::Path;
use crate::pool::Residency;
use crate::special::Document;
use crate::tree::Place;

/// The most bytes of a file with a golden input or output.
const MAX_DOCUMENT: usize = 16 << 20;

/// The good names of models and versions, to follow references and to share their memory.
pub(crate) struct Catalogue<'f> {
    models: HashMap<&'f str, Entry<'f>>,
    pub(crate) model_names: Vec<&'f str>,
}

/// One model.
pub(crate) struct Entry<'f> {
    pub(crate) name: &'f ModelName,
    pub(crate) pool: Option<&'f PoolForm>,
    versions: HashMap<&'f str, &'f Version>,
    pub(crate) version_names: Vec<&'f str>,
    /// The list of versions is missing or no list: a version that is not found is a consequence of that.
    has_no_list: bool,
}

impl<'f> Catalogue<'f> {
    pub(crate) fn new(models: &'f [ModelForm], pools: &'f [PoolForm]) -> Self {
        let pools: HashMap<&str, &PoolForm> =
            pools.iter().rev().filter_map(|pool| Some((pool.name.as_ref()?.as_str(), pool))).collect();
        let mut catalogue = Self { models: HashMap::new(), model_names: Vec::new() };
        for model in models {
            let Some(name) = &model.name else { continue };
            let versions = || model.versions.iter().flatten().filter_map(|form| form.version.as_ref());
            let entry = Entry {
                name,
                pool: model.pool.as_ref().and_then(|pool| pools.get(pool.as_str()).copied()),
                versions: versions().map(|version| (version.as_str(), version)).collect(),
                version_names: versions().map(Version::as_str).collect(),
                has_no_list: model.versions.is_none(),
            };
            catalogue.model_names.push(name.as_str());
            catalogue.models.entry(name.as_str()).or_insert(entry);
        }
        catalogue
    }

    pub(crate) fn model(&self, name: &str) -> Option<&Entry<'f>> {
        self.models.get(name)
    }

    /// Follows a model's name, or reports that it leads nowhere.
    pub(crate) fn find(
        &self,
        checker: &mut Checker<'_, '_>,
        path: &Path<'_>,
        place: Option<Place>,
        name: &str,
    ) -> Option<&Entry<'f>> {
        let found = self.models.get(name);
        if found.is_none() {
            let reason = format!("there is no model {}", quoted(name));
            checker.fault_unknown(path, place, reason, name, self.model_names.iter().copied());
        }
        found
    }
}

impl<'f> Entry<'f> {
    /// Follows a version's name, or reports that it leads nowhere.
    pub(crate) fn find(
        &self,
        checker: &mut Checker<'_, '_>,
        path: &Path<'_>,
        place: Option<Place>,
        version: &str,
    ) -> Option<&'f Version> {
        let found = self.versions.get(version).copied();
        if found.is_none() && !self.has_no_list {
            let reason = format!("model {:?} has no version {}", self.name, quoted(version));
            checker.fault_unknown(path, place, reason, version, self.version_names.iter().copied());
        }
        found
    }
}

pub(crate) fn check(checker: &mut Checker<'_, '_>, forms: &[ModelForm], pools: &[PoolForm]) -> Vec<Model> {
    let path = Path::Root.field("models");
    checker.check_unique(&path, "name", forms.iter().map(|form| form.name.as_ref().map(ModelName::as_str)));
    let by_name: HashMap<&str, &PoolForm> =
        pools.iter().filter_map(|pool| Some((pool.name.as_ref()?.as_str(), pool))).collect();
    let check_one = |(index, form)| check_model(checker, &path.item(index), form, &by_name);
    forms.iter().enumerate().filter_map(check_one).collect()
}

fn check_model(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &ModelForm,
    pools: &HashMap<&str, &PoolForm>,
) -> Option<Model> {
    let pool = form.pool.as_ref().and_then(|name| pools.get(name.as_str()).copied());
    if let (Some(name), None) = (&form.pool, pool) {
        let reason = format!("there is no pool {name:?}");
        let mut known: Vec<&str> = pools.keys().copied().collect();
        known.sort_unstable();
        checker.fault_unknown(&path.field("pool"), None, reason, name.as_str(), known);
    }
    let versions_path = path.field("versions");
    let forms = form.versions.as_deref().unwrap_or_default();
    checker.check_unique(
        &versions_path,
        "version",
        forms.iter().map(|form| form.version.as_ref().map(Version::as_str)),
    );
    let check_one = |(index, form)| check_version(checker, &versions_path.item(index), form, pool);
    let versions = forms.iter().enumerate().filter_map(check_one).collect();
    Some(Model { name: form.name.clone()?, pool: form.pool.clone()?, idempotent: form.idempotent, versions })
}

fn check_version(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &VersionForm,
    pool: Option<&PoolForm>,
) -> Option<ModelVersion> {
    let size_path = path.field("size");
    let is_repository = pool.is_some_and(|pool| pool.residency == Some(Residency::Repository));
    if is_repository && form.size.is_none() && !checker.tree.has(&size_path) {
        checker.fault(&size_path, "is missing; loads are planned by it, so a pool with residency repository needs it");
    }
    let replicas = pool.and_then(|pool| pool.replicas.as_deref()).unwrap_or_default();
    // None: one replica at least is unlimited, or there is none to compare with.
    let largest =
        replicas.iter().map(|replica| replica.memory).max_by_key(|memory| memory.map_or(u64::MAX, |m| m.0)).flatten();
    if let (true, Some(size), Some(largest)) = (is_repository, form.size, largest)
        && size > largest
    {
        checker.warn(&size_path, format!("{size} fits on no replica of its pool; the largest has {largest}"));
    }
    let golden_path = path.field("golden");
    let check_one = |(index, form)| check_golden(checker, &golden_path.item(index), form);
    let golden = form.golden.iter().enumerate().filter_map(check_one).collect();
    let version = form.version.clone()?;
    Some(ModelVersion { version, size: form.size, digest: form.digest, golden })
}

fn check_golden(checker: &mut Checker<'_, '_>, path: &Path<'_>, form: &GoldenForm) -> Option<Golden> {
    let input = form.input.as_ref().and_then(|document| resolve(checker, &path.field("input"), document));
    let output = form.output.as_ref().and_then(|document| resolve(checker, &path.field("output"), document));
    Some(Golden { input: input?, output: output?, tolerance: form.tolerance })
}

fn resolve(checker: &mut Checker<'_, '_>, path: &Path<'_>, document: &Document) -> Option<Json> {
    let file = match document {
        Document::Inline(json) => return Some(json.clone()),
        Document::File(file) => file,
    };
    let reason = match (checker.read_file)(file) {
        Err(error) => format!("cannot be read: {error}"),
        Ok(bytes) if bytes.len() > MAX_DOCUMENT => format!("has {} bytes; the most is {MAX_DOCUMENT}", bytes.len()),
        Ok(bytes) => match serde_json::from_slice::<Json>(&bytes) {
            Ok(json) if json.is_object() => return Some(json),
            Ok(_) => "is JSON, but not an object".to_owned(),
            Err(error) => format!("is not JSON: {error}"),
        },
    };
    checker.fault(path, format!("{} {reason}", quoted(&file.to_string_lossy())));
    None
}
