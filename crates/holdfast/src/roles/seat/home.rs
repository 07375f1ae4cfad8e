//! What a gateway's state folder knows of its seat: a number of its own, how many processes have had it, and what they have promised.
//!
//! One process at a time has the folder (the saved table's lock). The file appears whole or not at all: it is written beside, synced, and renamed.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

const FILE: &str = "seat.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Saved {
    form: u32,
    /// In hexadecimal digits.
    home: String,
    life: u64,
    promised: u64,
    /// The processes before left no load in flight.
    clean: bool,
}

/// See the module.
pub struct Home {
    path: PathBuf,
    saved: Mutex<Saved>,
    clean: bool,
}

impl Home {
    /// Begins another life in the folder, which is locked by this process.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let mut saved = read(&path)?.unwrap_or_else(|| Saved {
            form: 1,
            home: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            life: 0,
            promised: 0,
            clean: true,
        });
        let clean = std::mem::replace(&mut saved.clean, false);
        saved.life = saved.life.saturating_add(1);
        write(&path, &saved)?;
        Ok(Self { path, saved: Mutex::new(saved), clean })
    }

    /// The folder's number.
    pub fn number(&self) -> u64 {
        u64::from_str_radix(&self.saved.lock().home, 16).unwrap_or(0)
    }

    /// Which process of the folder this is.
    pub fn life(&self) -> u64 {
        self.saved.lock().life
    }

    /// What is on disk.
    pub fn promised(&self) -> u64 {
        self.saved.lock().promised
    }

    /// Whether the processes before this one left no load in flight.
    pub const fn clean(&self) -> bool {
        self.clean
    }

    /// Saves a promise.
    ///
    /// # Errors
    /// What the file system said; the promise is not made.
    pub async fn promise(&self, promised: u64) -> io::Result<()> {
        self.save(|saved| saved.promised = saved.promised.max(promised)).await
    }

    /// This process leaves no load in flight.
    ///
    /// # Errors
    /// What the file system said.
    pub async fn end(&self) -> io::Result<()> {
        self.save(|saved| saved.clean = true).await
    }

    async fn save(&self, change: impl FnOnce(&mut Saved)) -> io::Result<()> {
        let (mut next, path) = (self.saved.lock().clone(), self.path.clone());
        change(&mut next);
        let saved = next.clone();
        let written = tokio::task::spawn_blocking(move || write(&path, &next)).await;
        written.map_err(io::Error::other)??;
        *self.saved.lock() = saved;
        Ok(())
    }
}

/// None: there is none yet. One that is damaged is an error: with it all promises would be forgotten.
fn read(path: &Path) -> io::Result<Option<Saved>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = |why: String| io::Error::other(format!("{} is damaged: {why}", path.display()));
    let saved: Saved = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
    if saved.form != 1 || u64::from_str_radix(&saved.home, 16).is_err() {
        return Err(damaged("it is of another form".to_owned()));
    }
    Ok(Some(saved))
}

fn write(path: &Path, saved: &Saved) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(serde_json::to_string(saved).map_err(io::Error::other)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_testkit::TempDir;

    #[tokio::test]
    async fn a_promise_outlives_its_process() {
        let dir = TempDir::new();
        let first = Home::open(dir.path()).unwrap();
        assert_eq!((first.life(), first.promised(), first.clean()), (1, 0, true));
        first.promise(7).await.unwrap();
        first.promise(5).await.unwrap();
        let number = first.number();
        drop(first);
        let second = Home::open(dir.path()).unwrap();
        assert_eq!((second.number(), second.life(), second.promised()), (number, 2, 7));
        assert!(!second.clean(), "the first did not say that it had ended well");
        second.end().await.unwrap();
        drop(second);
        assert!(Home::open(dir.path()).unwrap().clean());
        assert_ne!(Home::open(TempDir::new().path()).unwrap().number(), number);
    }

    #[test]
    fn a_damaged_file_is_no_new_beginning() {
        let dir = TempDir::new();
        fs::write(dir.join(FILE), "{").unwrap();
        assert!(Home::open(dir.path()).is_err());
    }
}
