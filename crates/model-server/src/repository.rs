//! The models on disk: which there are, and reading them.
//!
//! The folder is the only truth about what may be loaded. A load reads its files afresh; the index remembers a file's entry by its
//! modification time and length, since gateways poll it. Nothing is written here. Sizes are bounded: files by [`MAX_FILE`], a
//! repository by [`MAX_ENTRIES`].

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use holdfast_types::{ModelName, Version};
use parking_lot::Mutex;

use crate::model::{Model, Place};

/// The name of the file that makes a folder a model.
pub const MODEL_FILE: &str = "model.json";
/// The largest model file that is read, in bytes.
pub const MAX_FILE: u64 = 16 << 20;
/// The most models that a repository may have; more are an error rather than a silent cut.
pub const MAX_ENTRIES: usize = 10_000;

/// How the folders of a repository give models their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// Each folder is a model name of one version, such as `screen-1/model.json`: versions are loaded one by one, by name.
    #[default]
    Names,
    /// A folder per model with a folder per version, such as `screen/2/model.json`: a load takes all versions of the name.
    Versions,
}

/// One line of what is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The model's name.
    pub name: String,
    /// The version; empty when the file cannot tell it.
    pub version: String,
    /// Why it cannot be loaded, if the file is faulty.
    pub fault: Option<String>,
}

/// Why the repository gave no models.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// No such model on disk.
    #[error("no model {0:?} in the repository")]
    Unknown(String),
    /// The file of a version is faulty.
    #[error("{name:?} {why}")]
    Faulty {
        /// The folder, relative to the repository.
        name: String,
        /// What is wrong with the file.
        why: String,
    },
    /// More than [`MAX_ENTRIES`].
    #[error("the repository has more than {MAX_ENTRIES} models")]
    TooMany,
    /// The folder cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A folder of models.
#[derive(Debug)]
pub struct Repository {
    root: PathBuf,
    layout: Layout,
    seen: Mutex<BTreeMap<PathBuf, Seen>>,
}

#[derive(Clone, Debug)]
struct Seen {
    modified: Option<SystemTime>,
    length: u64,
    entry: Entry,
}

/// Where one model file is and what its place says.
struct Slot {
    path: PathBuf,
    name: String,
    version: Option<String>,
}

impl Repository {
    /// A repository at `root`, which must be a folder.
    ///
    /// # Errors
    /// [`RepositoryError::Io`] if it cannot be listed.
    pub fn open(root: &Path, layout: Layout) -> Result<Self, RepositoryError> {
        list(root)?;
        Ok(Self { root: root.to_owned(), layout, seen: Mutex::default() })
    }

    /// How names are laid out.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Everything on disk, sorted by name and version. Blocks on the file system.
    ///
    /// # Errors
    /// [`RepositoryError`]; a single faulty model is an entry with a fault, not an error.
    pub fn index(&self) -> Result<Vec<Entry>, RepositoryError> {
        let known = self.seen.lock().clone();
        let mut seen = BTreeMap::new();
        for slot in self.slots()? {
            let meta = fs::metadata(&slot.path).ok();
            let modified = meta.as_ref().and_then(|meta| meta.modified().ok());
            let length = meta.map_or(0, |meta| meta.len());
            let same = known.get(&slot.path).filter(|old| old.modified == modified && old.length == length);
            let entry = same.map_or_else(|| describe(&slot), |old| old.entry.clone());
            seen.insert(slot.path, Seen { modified, length, entry });
        }
        let mut entries: Vec<Entry> = seen.values().map(|seen| seen.entry.clone()).collect();
        entries.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        *self.seen.lock() = seen;
        Ok(entries)
    }

    /// Reads every version of a name. Blocks on the file system.
    ///
    /// # Errors
    /// [`RepositoryError`]; one faulty version fails the whole, as with the servers that this one stands for.
    pub fn read(&self, name: &str) -> Result<Vec<Model>, RepositoryError> {
        if ModelName::check(name).is_err() {
            return Err(RepositoryError::Unknown(name.to_owned()));
        }
        let slots = match self.layout {
            Layout::Names => self.slot(name, None).into_iter().collect(),
            Layout::Versions => self.versions(name).unwrap_or_default(),
        };
        if slots.is_empty() {
            return Err(RepositoryError::Unknown(name.to_owned()));
        }
        slots.iter().map(read).collect()
    }

    fn slots(&self) -> Result<Vec<Slot>, RepositoryError> {
        let mut slots = Vec::new();
        for name in list(&self.root)?.into_iter().filter(|name| ModelName::check(name).is_ok()) {
            match self.layout {
                Layout::Names => slots.extend(self.slot(&name, None)),
                Layout::Versions => slots.extend(self.versions(&name)?),
            }
            if slots.len() > MAX_ENTRIES {
                return Err(RepositoryError::TooMany);
            }
        }
        Ok(slots)
    }

    fn versions(&self, name: &str) -> Result<Vec<Slot>, RepositoryError> {
        let found = list(&self.root.join(name))?;
        let versions = found.iter().filter(|version| Version::check(version).is_ok());
        Ok(versions.filter_map(|version| self.slot(name, Some(version))).collect())
    }

    fn slot(&self, name: &str, version: Option<&str>) -> Option<Slot> {
        let folder = self.root.join(name);
        let path = version.map_or(folder.clone(), |version| folder.join(version)).join(MODEL_FILE);
        path.is_file().then(|| Slot { path, name: name.to_owned(), version: version.map(str::to_owned) })
    }
}

/// The names of the folders in a folder, sorted; names that are not UTF-8 are no ids and are left out.
fn list(folder: &Path) -> Result<Vec<String>, RepositoryError> {
    let failed = |source| RepositoryError::Io { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.path().is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn read(slot: &Slot) -> Result<Model, RepositoryError> {
    let failed = |source| RepositoryError::Io { path: slot.path.clone(), source };
    let faulty = |why: String| RepositoryError::Faulty {
        name: slot.version.as_ref().map_or_else(|| slot.name.clone(), |version| format!("{}/{version}", slot.name)),
        why,
    };
    let mut bytes = Vec::new();
    let file = fs::File::open(&slot.path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(faulty(format!("has more than {MAX_FILE} bytes")));
    }
    let place = Place { name: &slot.name, version: slot.version.as_deref() };
    Model::parse(&bytes, place).map_err(|why| faulty(why.to_string()))
}

fn describe(slot: &Slot) -> Entry {
    match read(slot) {
        Ok(model) => {
            Entry { name: model.name.as_str().to_owned(), version: model.version.as_str().to_owned(), fault: None }
        }
        Err(why) => Entry {
            name: slot.name.clone(),
            version: slot.version.clone().unwrap_or_default(),
            fault: Some(why.to_string()),
        },
    }
}
