//! What a process brings to a table: its own settings, and the files that versions name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::{Faults, Loaded, Resources, Source, assemble, load};

/// Reads a file that a configuration names.
pub type ReadFile = Arc<dyn Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync>;

/// Everything of a configuration that does not route.
#[derive(Clone)]
pub struct Frame {
    /// The settings, as the content of a file: [`crate::Split::rest`].
    pub rest: Json,
    /// The folder of that file: its relative paths are below it.
    pub folder: PathBuf,
    /// Reads golden inputs and outputs.
    pub read_file: ReadFile,
}

impl Frame {
    /// The settings alone; no file can be read.
    #[must_use]
    pub fn new(rest: Json) -> Self {
        Self { rest, folder: PathBuf::new(), read_file: Arc::new(|_| Err(io::ErrorKind::Unsupported.into())) }
    }

    /// The configuration of a table in this process.
    ///
    /// # Errors
    /// Every fault, positioned by its path; lines and columns are those of a text that nobody wrote.
    pub fn load(&self, resources: &Resources) -> Result<Loaded, Faults> {
        let text = assemble(&self.rest, resources);
        load(&Source { folder: &self.folder, read_file: &*self.read_file, ..Source::text("table", &text) })
    }
}

impl Default for Frame {
    /// No settings.
    fn default() -> Self {
        Self::new(Json::Object(serde_json::Map::new()))
    }
}

impl std::fmt::Debug for Frame {
    /// The settings may hold what is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame").finish_non_exhaustive()
    }
}
