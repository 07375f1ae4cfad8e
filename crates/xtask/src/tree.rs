//! The files of the repository: what git tracks, and what it would track.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// One file. Binary files have no text.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) text: Option<String>,
    /// Where a symbolic link points.
    pub(crate) link: Option<String>,
}

/// Files by path from the root, with `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, File>);

impl Tree {
    /// Reads the repository that the working folder belongs to.
    pub(crate) fn read() -> Result<Self, String> {
        let root = git(&["rev-parse", "--show-toplevel"])?;
        let root = Path::new(root.trim());
        let listed = Command::new("git")
            .current_dir(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(|e| format!("cannot run git: {e}"))?;
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|p| !p.is_empty()) {
            // A tracked file that is deleted in the working folder is simply not there.
            if let Some(file) = read_file(&root.join(path))? {
                files.insert(path.to_owned(), file);
            }
        }
        Ok(Self(files))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.0.get(path)
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.text.as_deref()
    }

    /// Text files, with their paths.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(path, file)| Some((path.as_str(), file.text.as_deref()?)))
    }

    /// Whether a file or a folder of this path exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.0.contains_key(path)
            || path.is_empty()
            || self.0.range(folder.clone()..).next().is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// Short names of the crates: the folders under `crates/`.
    pub(crate) fn crates(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .0
            .keys()
            .filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
            .filter(|name| !name.contains('/'))
            .collect();
        names.dedup();
        names
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |text: &str| match text.strip_prefix("-> ") {
            Some(target) => File { text: None, link: Some(target.to_owned()) },
            None => File { text: Some(text.to_owned()), link: None },
        };
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect())
    }
}

fn read_file(path: &Path) -> Result<Option<File>, String> {
    let Ok(meta) = path.symlink_metadata() else { return Ok(None) };
    if meta.is_symlink() {
        let target = path.read_link().map_err(|e| format!("{}: {e}", path.display()))?;
        return Ok(Some(File { text: None, link: Some(target.to_string_lossy().into_owned()) }));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    Ok(Some(File { text, link: None }))
}

fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).output().map_err(|e| format!("cannot run git: {e}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
