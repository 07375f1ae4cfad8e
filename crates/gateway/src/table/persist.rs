//! The state folder: the last revision, the pins in force and what they need, so that none goes backwards over a restart.
//!
//! One JSON file, written beside its place and renamed over it, so that it is the old one or the new one and never half of either.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use holdfast_config::{Model, Pins};
use holdfast_types::{ModelName, Revision, TenantId, Version};

use super::kept::{self, KeptForm};

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Persisted {
    /// The last revision that was in force.
    pub revision: Revision,
    /// The highest revision that may have been in force without having been saved. Not below `revision`.
    pub reserved: Revision,
    /// The pins that were in force.
    pub(super) pins: Pins,
    /// The versions that those pins name, by their models: the file may not have them any more.
    pub(super) kept: Vec<Model>,
}

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// The file system says no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Two gateways on one folder would give one revision to two tables.
    #[error("{0} is locked: another process uses this state folder")]
    Locked(PathBuf),
    /// The file is not what was written.
    #[error("{path} cannot be read as a saved table: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Form {
    format: u32,
    revision: u64,
    /// Since format 2.
    #[serde(default)]
    reserved: u64,
    /// Tenant, model, version.
    pins: Vec<(String, String, String)>,
    /// Since format 2.
    #[serde(default)]
    kept: Vec<KeptForm>,
}

const FORMAT: u32 = 2;
/// Has no kept versions.
const OLDEST: u32 = 1;
/// What readers of JSON in other languages still count exactly.
const MOST: u64 = 1 << 53;

/// The file of one gateway. While it lives, its folder is locked against other processes.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Ends with the process, however that ends.
    _lock: File,
}

impl StateFile {
    /// In this folder, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made, or is another process's.
    pub fn in_folder(folder: &Path) -> Result<Self, PersistError> {
        let path = folder.join("table.json");
        std::fs::create_dir_all(folder).map_err(|source| PersistError::Io { path: folder.into(), source })?;
        Ok(Self { path, _lock: lock(folder.join("lock"))? })
    }

    /// What was saved last. None: nothing yet.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn read(&self) -> Result<Option<Persisted>, PersistError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(PersistError::Io { path: self.path.clone(), source }),
        };
        let malformed = |why: String| PersistError::Malformed { path: self.path.clone(), why };
        let form: Form = serde_json::from_slice(&bytes).map_err(|e| malformed(e.to_string()))?;
        if !(OLDEST..=FORMAT).contains(&form.format) {
            let known = format!("format {} is not known here; known are {OLDEST} to {FORMAT}", form.format);
            return Err(malformed(known));
        }
        let reserved = form.reserved.max(form.revision);
        if reserved > MOST {
            return Err(malformed(format!("revision {reserved} is higher than any that can have been counted")));
        }
        let pins = form.pins.iter().map(|(tenant, model, version)| {
            let key = (TenantId::parse(tenant).ok()?, ModelName::parse(model).ok()?);
            Some((key, Version::parse(version).ok()?))
        });
        let no_id = || malformed("a name in it is not an id".to_owned());
        let pins = pins.collect::<Option<Pins>>().ok_or_else(no_id)?;
        let kept = kept::to_models(form.kept).ok_or_else(no_id)?;
        Ok(Some(Persisted { revision: Revision(form.revision), reserved: Revision(reserved), pins, kept }))
    }

    /// Saves.
    ///
    /// # Errors
    /// The file system says no; the old file is as it was.
    pub fn write(&self, state: &Persisted) -> Result<(), PersistError> {
        let pins = state.pins.iter();
        let pins = pins.map(|((t, m), v)| (t.to_string(), m.to_string(), v.to_string())).collect();
        let (revision, reserved) = (state.revision.0, state.reserved.0);
        let form = Form { format: FORMAT, revision, reserved, pins, kept: kept::to_forms(&state.kept) };
        let bytes = serde_json::to_vec(&form)
            .map_err(|e| PersistError::Malformed { path: self.path.clone(), why: e.to_string() })?;
        self.replace(&bytes).map_err(|source| PersistError::Io { path: self.path.clone(), source })
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        use io::Write;
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let beside = self.path.with_extension("json.new");
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        // The new name is on the disk only once its folder is.
        match self.path.parent() {
            Some(folder) => std::fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

fn lock(path: PathBuf) -> Result<File, PersistError> {
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    match opened.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file)) {
        Ok(file) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(PersistError::Locked(path)),
        Err(TryLockError::Error(source)) => Err(PersistError::Io { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::{Digest, Golden, ModelVersion};
    use holdfast_testkit::TempDir;
    use holdfast_types::{Bytes, PoolName};
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_and_the_form_before_it_too() {
        let dir = TempDir::new();
        let file = StateFile::in_folder(dir.path()).unwrap();
        assert_eq!(file.read().unwrap(), None);
        let (model, version) = (ModelName::parse("m").unwrap(), Version::parse("1").unwrap());
        let pins = Pins::from([((TenantId::parse("a").unwrap(), model.clone()), version.clone())]);
        let golden = vec![Golden { input: json!({"q": 1}), output: json!({"r": [2.5]}), tolerance: 0.125 }];
        let digest = Some(Digest::Sha256([7; 32]));
        let versions = vec![ModelVersion { version, size: Some(Bytes(5 << 30)), digest, golden }];
        let kept = vec![Model { name: model, pool: PoolName::parse("p").unwrap(), idempotent: false, versions }];
        let state = Persisted { revision: Revision(3), reserved: Revision(67), pins: pins.clone(), kept };
        file.write(&state).unwrap();
        assert_eq!(file.read().unwrap(), Some(state));

        std::fs::write(dir.join("table.json"), r#"{"format":1,"revision":9,"pins":[["a","m","1"]]}"#).unwrap();
        assert_eq!(
            file.read().unwrap(),
            Some(Persisted { revision: Revision(9), reserved: Revision(9), pins, kept: Vec::new() })
        );
        std::fs::write(dir.join("table.json"), r#"{"format":3,"revision":9,"pins":[]}"#).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("format 3 is not known"));
    }
}
