//! The log's folder: files named by the number of their first record, and the head, which says where the log ended when it was last on disk.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::digest::Hash;
use super::record::Tip;
use super::verify::{Head, Report, Verifier};

/// A line is a few hundred bytes; what is longer is none.
const LONGEST: u64 = 64 * 1024;
const BEFORE: &str = "audit-";
const AFTER: &str = ".jsonl";
const HEAD: &str = "head";
const LOCK: &str = "lock";

/// A folder with a log.
#[derive(Clone, Debug)]
pub struct AuditFiles {
    folder: PathBuf,
}

impl AuditFiles {
    /// Looks at nothing yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The file whose first record has this number. The digits are as many as a number may have, so that the order of names is that of records.
    pub(super) fn path(&self, first: u64) -> PathBuf {
        self.folder.join(format!("{BEFORE}{first:020}{AFTER}"))
    }

    /// The files in their order, each with the number in its name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let digits = name.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER));
            if let Some(first) = digits.filter(|d| d.len() == 20).and_then(|digits| digits.parse().ok()) {
                files.push((first, path));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// The folder, made if it is missing, for this process alone for as long as the file is held.
    pub(super) fn lock(&self) -> io::Result<File> {
        fs::create_dir_all(&self.folder)?;
        let file = File::options().create(true).truncate(false).write(true).open(self.folder.join(LOCK))?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::Error(error) => error,
            fs::TryLockError::WouldBlock => io::Error::other("another process writes the audit log in this folder"),
        })?;
        Ok(file)
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> Head {
        #[derive(Deserialize)]
        struct Text {
            seq: u64,
            hash: String,
        }
        let text = match fs::read(self.folder.join(HEAD)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Head::Absent,
            Err(_) => return Head::Unreadable,
        };
        let tip = serde_json::from_slice(&text)
            .ok()
            .and_then(|t: Text| Some(Tip { seq: t.seq, hash: Hash::parse(&t.hash)? }));
        tip.map_or(Head::Unreadable, Head::At)
    }

    /// Replaces the head in one step.
    pub(super) fn write_head(&self, tip: Tip) -> io::Result<()> {
        let beside = self.folder.join("head.new");
        let mut file = File::create(&beside)?;
        file.write_all(format!("{{\"seq\":{},\"hash\":\"{}\"}}\n", tip.seq, tip.hash.hex()).as_bytes())?;
        file.sync_data()?;
        fs::rename(beside, self.folder.join(HEAD))
    }

    /// Checks the whole log, also one that is being written.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn verify(&self) -> io::Result<Report> {
        for _ in 0..3 {
            match self.verify_once() {
                // Retention has removed a file since the folder was listed: what is left begins at another place.
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.folder.is_dir() => {}
                other => return other,
            }
        }
        self.verify_once()
    }

    fn verify_once(&self) -> io::Result<Report> {
        // First: a running writer moves the log, and then the head.
        let mut verifier = Verifier::new(self.head());
        for (_, path) in self.list()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            read_lines(&path, |number, line, ended| verifier.line(name, number, line, ended))?;
        }
        Ok(verifier.finish())
    }
}

/// Hands over each line of a file: its number, its bytes without the line feed, and whether it had one.
///
/// # Errors
/// The file cannot be read.
pub fn read_lines(path: &Path, mut each: impl FnMut(u64, &[u8], bool)) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(256 * 1024, File::open(path)?);
    let (mut line, mut number) = (Vec::new(), 0);
    while reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? > 0 {
        number += 1;
        match line.strip_suffix(b"\n") {
            Some(line) => each(number, line, true),
            None => each(number, &line, false),
        }
        line.clear();
    }
    Ok(())
}
