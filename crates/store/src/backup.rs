//! Backups: one file format for every backend, written and read as a stream.
//!
//! The file begins with the line `holdfast-backup 1`. Then come frames: a tag (one byte), a length (u32, little endian), that many bytes.
//! `S` the state, `H` the headers by revision, `E` the history of every resource by space, key and revision, `R` the records, and `Z`, the end, with
//! the counts and the BLAKE3 hash of everything before it. Nothing may follow. Numbers in frames are little endian.
//!
//! A file is read twice to be restored: once to prove that it is whole and that its content has the digests that its state names, and once to
//! apply it. Both passes must come to the same hash.

use crate::digest::{self, Buckets, Digest};
use crate::error::{Error, Result};
use crate::files;
use crate::json::Json;
use crate::key::{Key, Place, Space};
use crate::model::{Digests, Header, Record};
use crate::seal::{Leaves, State};
use crate::stored;
use holdfast_types::Revision;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"holdfast-backup 1\n";
/// What every format begins with, before its number.
const FORMAT: &[u8] = b"holdfast-backup ";
/// Longer than any frame: a header's author and reason, a key and a value, the kinds.
const MAX_FRAME: usize = 256 * 1024;
const BUFFER: usize = 256 * 1024;

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The head.
    pub revision: Revision,
    /// The content at the head.
    pub digests: Digests,
    /// Headers.
    pub headers: u64,
    /// Rows of the history of resources.
    pub edits: u64,
    /// Records.
    pub records: u64,
}

/// A value that a resource got at a revision; `None`: it was taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub place: Place,
    pub revision: Revision,
    pub value: Option<Json>,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    State(Box<State>),
    Header(Box<Header>),
    Past(Past),
    Record(Record),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts([u64; 3]);

impl Counts {
    fn add(&mut self, item: &Item) {
        match item {
            Item::State(_) => {}
            Item::Header(_) => self.0[0] += 1,
            Item::Past(_) => self.0[1] += 1,
            Item::Record(_) => self.0[2] += 1,
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        self.0.iter().flat_map(|n| n.to_le_bytes()).collect()
    }
}

/// Writes a backup beside its place and puts it there at the end. Dropped before, it leaves nothing.
pub(crate) struct Writer {
    out: BufWriter<File>,
    part: PathBuf,
    file: PathBuf,
    hash: blake3::Hasher,
    counts: Counts,
    state: Option<State>,
    done: bool,
}

impl Writer {
    pub(crate) fn create(file: &Path) -> Result<Self> {
        if file.exists() {
            return Err(Error::invalid(format!("{} is there already", file.display())));
        }
        let part = files::beside(file);
        let out = File::create_new(&part).map_err(|e| files::io_error("cannot write", &part, &e))?;
        let out = BufWriter::with_capacity(BUFFER, out);
        let (file, hash, counts) = (file.to_owned(), blake3::Hasher::new(), Counts::default());
        let mut writer = Self { out, part, file, hash, counts, state: None, done: false };
        writer.bytes(MAGIC)?;
        Ok(writer)
    }

    pub(crate) fn item(&mut self, item: &Item) -> Result<()> {
        self.counts.add(item);
        match item {
            Item::State(state) => {
                self.state = Some(State::clone(state));
                self.frame(b'S', &[stored::state_text(state)?.as_bytes()])
            }
            Item::Header(header) => self.frame(b'H', &[stored::header_text(header)?.as_bytes()]),
            Item::Past(past) => {
                let key = past.place.key.as_bytes();
                let (space, revision) = ([past.place.space.number()], past.revision.0.to_le_bytes());
                let flag = [u8::from(past.value.is_some())];
                let value = past.value.as_ref().map(Json::as_bytes).unwrap_or_default();
                self.frame(b'E', &[&space, &key_length(key), key, &revision, &flag, value])
            }
            Item::Record(record) => {
                let key = Key::new(&record.kind, &record.id)?;
                let key = key.as_bytes();
                let version = record.version.to_le_bytes();
                self.frame(b'R', &[&key_length(key), key, &version, record.value.as_bytes()])
            }
        }
    }

    pub(crate) fn finish(mut self) -> Result<Summary> {
        let Some(state) = self.state.take() else { return Err(Error::corrupt("a backup without a state")) };
        let hash = *self.hash.finalize().as_bytes();
        let counts = self.counts.to_bytes();
        self.frame(b'Z', &[&counts, &hash])?;
        let written = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        written.map_err(|e| files::io_error("cannot write", &self.part, &e))?;
        self.done = true;
        files::publish(&self.part, &self.file).map_err(|e| files::io_error("cannot write", &self.file, &e))?;
        Ok(summary(&state, self.counts))
    }

    fn frame(&mut self, tag: u8, parts: &[&[u8]]) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).map_err(|_| Error::too_large("bytes of a frame", length, MAX_FRAME))?;
        self.bytes(&[tag])?;
        self.bytes(&length.to_le_bytes())?;
        parts.iter().try_for_each(|part| self.bytes(part))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes).map_err(|e| files::io_error("cannot write", &self.part, &e))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.done {
            // Nothing can be done about a part that cannot be removed; its name says what it is.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

fn key_length(key: &[u8]) -> [u8; 2] {
    u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes()
}

fn summary(state: &State, counts: Counts) -> Summary {
    let [headers, edits, records] = counts.0;
    Summary { revision: state.head.revision, digests: state.head.digests, headers, edits, records }
}

/// Reads a backup frame by frame. The end is checked before `None` is given.
pub(crate) struct Reader {
    input: BufReader<File>,
    hash: blake3::Hasher,
    counts: Counts,
    /// The hash of the whole, once the end was seen.
    pub(crate) seen: Option<[u8; 32]>,
}

impl Reader {
    pub(crate) fn open(file: &Path) -> Result<Self> {
        let input = File::open(file).map_err(|e| files::io_error("cannot read", file, &e))?;
        let input = BufReader::with_capacity(BUFFER, input);
        let mut reader = Self { input, hash: blake3::Hasher::new(), counts: Counts::default(), seen: None };
        let mut magic = [0; MAGIC.len()];
        if reader.input.read_exact(&mut magic).is_err() || magic != *MAGIC {
            return Err(other_format(&magic));
        }
        reader.hash.update(&magic);
        Ok(reader)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Item>> {
        if self.seen.is_some() {
            return Ok(None);
        }
        let mut head = [0; 5];
        self.exact(&mut head)?;
        let [tag, length @ ..] = head;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(Error::corrupt("the backup has a frame that is longer than any"));
        }
        let mut body = vec![0; length];
        self.exact(&mut body)?;
        if tag == b'Z' {
            self.end(&body)?;
            return Ok(None);
        }
        self.hash.update(&head);
        self.hash.update(&body);
        let item = decode(tag, &body)?;
        self.counts.add(&item);
        Ok(Some(item))
    }

    fn end(&mut self, body: &[u8]) -> Result<()> {
        let hash = *self.hash.finalize().as_bytes();
        let expected = [self.counts.to_bytes(), hash.to_vec()].concat();
        if body != expected {
            return Err(Error::corrupt("the backup's checksum or counts do not match its content"));
        }
        let mut more = [0; 1];
        if !matches!(self.input.read(&mut more), Ok(0)) {
            return Err(Error::corrupt("the backup goes on behind its end"));
        }
        self.seen = Some(hash);
        Ok(())
    }

    fn exact(&mut self, into: &mut [u8]) -> Result<()> {
        self.input.read_exact(into).map_err(|_| Error::corrupt("the backup ends too early"))
    }
}

/// What a file is that does not begin as a backup of this release does.
fn other_format(begin: &[u8]) -> Error {
    let number = begin.strip_prefix(FORMAT).map(|rest| rest.split(|b| *b == b'\n').next().unwrap_or_default());
    match number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u32>().ok()) {
        Some(found) if found != 1 => {
            Error::invalid(format!("the backup has format {found}, this release reads format 1: use a newer release"))
        }
        _ => Error::corrupt("the file is no backup"),
    }
}

fn decode(tag: u8, body: &[u8]) -> Result<Item> {
    match tag {
        b'S' => Ok(Item::State(Box::new(stored::state(body)?))),
        b'H' => Ok(Item::Header(Box::new(stored::header(body)?))),
        b'E' => past(body).ok_or_else(|| Error::corrupt("the backup has an edit that cannot be read"))?,
        b'R' => record(body).ok_or_else(|| Error::corrupt("the backup has a record that cannot be read"))?,
        _ => Err(Error::corrupt("the backup has a frame of an unknown kind")),
    }
}

fn keyed(body: &[u8]) -> Option<(Result<Key>, u64, &[u8])> {
    let (length, rest) = body.split_first_chunk::<2>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    Some((Key::from_bytes(key), u64::from_le_bytes(*number), rest))
}

fn past(body: &[u8]) -> Option<Result<Item>> {
    let (space, rest) = body.split_first()?;
    let space = Space::from_number(*space)?;
    let (key, revision, rest) = keyed(rest)?;
    let (flag, value) = rest.split_first()?;
    let value = match (flag, value) {
        (0, []) => None,
        (1, value) => Some(value),
        _ => return None,
    };
    Some(key.and_then(|key| {
        // A value may have been changed on disk before it was backed up: it has to be JSON in canonical form still.
        let value = value.map(canonical).transpose()?;
        Ok(Item::Past(Past { place: Place { space, key }, revision: Revision(revision), value }))
    }))
}

fn record(body: &[u8]) -> Option<Result<Item>> {
    let (key, version, value) = keyed(body)?;
    Some(key.and_then(|key| {
        let (kind, id) = (key.kind().to_owned(), key.name().to_owned());
        Ok(Item::Record(Record { kind, id, version, value: canonical(value)? }))
    }))
}

fn canonical(bytes: &[u8]) -> Result<Json> {
    match Json::parse(bytes) {
        Ok(json) if json.as_bytes() == bytes => Ok(json),
        _ => Err(Error::corrupt("the backup has a value that is no canonical JSON")),
    }
}

/// A backup that was read to its end and found whole.
pub(crate) struct Verified {
    pub state: State,
    pub summary: Summary,
    pub hash: [u8; 32],
    /// The digests of the buckets that are not empty.
    pub buckets: Vec<(Space, u16, Digest)>,
}

impl Verified {
    /// The state after the restore: terms never go backwards, so those that were given out here stay given out.
    pub(crate) fn state_over(&self, here: &State) -> State {
        let mut state = self.state.clone();
        state.head.term = state.head.term.max(here.head.term);
        state
    }

    /// Whether a second reader came to the same end.
    pub(crate) fn same(&self, second: &Reader) -> Result<()> {
        if second.seen == Some(self.hash) {
            return Ok(());
        }
        Err(Error::corrupt("the backup changed while it was restored"))
    }
}

/// Whether a store has never held anything. An election does not count.
pub(crate) fn empty(state: &State) -> bool {
    let mut bare = state.clone();
    bare.head.term = 0;
    bare == State::default()
}

/// Reads a backup to its end and says whether a store would take it. Blocks while it reads.
///
/// # Errors
/// It cannot be read, is cut or damaged, or of a newer format.
pub fn check(file: &Path) -> Result<Summary> {
    verify(file).map(|verified| verified.summary)
}

/// Reads a backup to its end and checks that its parts agree with one another.
pub(crate) fn verify(file: &Path) -> Result<Verified> {
    let mut reader = Reader::open(file)?;
    let Some(Item::State(state)) = reader.next()? else { return Err(Error::corrupt("the backup has no state")) };
    let mut check = Check { state: *state, revision: None, place: None, leaves: Leaves::new() };
    while let Some(item) = reader.next()? {
        check.item(item)?;
    }
    let hash = reader.seen.ok_or_else(|| Error::corrupt("the backup has no end"))?;
    let (counts, state) = (reader.counts, check.state.clone());
    Ok(Verified { summary: summary(&state, counts), hash, buckets: check.buckets()?, state })
}

struct Check {
    state: State,
    revision: Option<Revision>,
    place: Option<(Place, Revision)>,
    leaves: Leaves,
}

impl Check {
    fn item(&mut self, item: Item) -> Result<()> {
        let head = self.state.head.revision;
        match item {
            Item::State(_) => Err(Error::corrupt("the backup has two states")),
            Item::Header(header) => {
                let expected = self.revision.map_or(header.revision.0, |last| last.0 + 1);
                if header.revision.0 != expected || header.revision > head {
                    return Err(Error::corrupt("the backup's headers have a gap"));
                }
                self.revision = Some(header.revision);
                Ok(())
            }
            Item::Past(past) => {
                let at = (past.place.clone(), past.revision);
                if self.place.as_ref().is_some_and(|last| *last >= at) || past.revision > head {
                    return Err(Error::corrupt("the backup's edits are out of order"));
                }
                self.place = Some(at);
                self.current(past);
                Ok(())
            }
            Item::Record(record) if record.version > self.state.records => {
                Err(Error::corrupt("the backup has a record from the future"))
            }
            Item::Record(_) => Ok(()),
        }
    }

    /// The last row of a place is its value at the head.
    fn current(&mut self, past: Past) {
        let Place { space, key } = past.place;
        let entries = self.leaves.entry((space, digest::bucket(&key))).or_default();
        match past.value {
            Some(value) => entries.insert(key, digest::leaf(value.as_bytes())),
            None => entries.remove(&key),
        };
    }

    fn buckets(self) -> Result<Vec<(Space, u16, Digest)>> {
        let head = &self.state.head;
        if self.revision.unwrap_or_default() != head.revision {
            return Err(Error::corrupt("the backup lacks its last headers"));
        }
        let filled = self.leaves.iter().filter(|(_, entries)| !entries.is_empty());
        let digests: Vec<_> = filled.map(|((space, bucket), e)| (*space, *bucket, digest::of_bucket(e))).collect();
        for space in Space::ALL {
            let mut buckets = Buckets::default();
            digests
                .iter()
                .filter(|(of, ..)| *of == space)
                .for_each(|(_, bucket, digest)| buckets.set(*bucket, *digest));
            if buckets.root() != head.digests.of(space) {
                return Err(Error::corrupt("the backup's content does not have the digest that it names"));
            }
        }
        Ok(digests)
    }
}

#[cfg(test)]
mod tests;
