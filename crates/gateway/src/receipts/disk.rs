//! Receipts on disk: what the rings in memory hold too, for longer and over restarts.
//!
//! A request only puts its receipt into a bounded queue; a thread of its own makes words of it and appends them to the newest of some files, a line each.
//! What finds no place in the queue, or cannot be written, is lost and counted: a receipt is help for a person, and no disk may slow a request down.
//! The oldest files go when all are too large together, or too old. Who asks looks through the files, newest first: that is seldom, so there is no index
//! that every request would have to keep.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use memchr::memmem;
use parking_lot::Mutex;
use serde_json::Value;

use holdfast_telemetry::lines::{create, numbered, tend};
use holdfast_telemetry::{Clock, Counter, Wall};

use super::packed::Packed;
use super::show::told;

/// What is in the queue is on disk, or at least with the operating system, by then.
const BATCH: Duration = Duration::from_millis(200);
/// How often old files are looked for.
const TEND: Duration = Duration::from_secs(60);
/// The most files: each has an equal part of the room.
const FILES: u64 = 8;
/// A line that is longer is not read.
const LONGEST: usize = 1 << 20;

/// Where receipts are kept, and how many.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// A folder for this process alone. It is made if it is not there.
    pub folder: PathBuf,
    /// The most bytes of all files.
    pub max_size: u64,
    /// How long they are kept, if there is room.
    pub retention: Duration,
    /// The most that wait to be written.
    pub queue: usize,
}

enum Word {
    Receipt(Box<Packed>),
    /// Everything before it is to be written; then this is answered.
    Flush(SyncSender<()>),
}

/// See the module.
#[derive(Debug)]
pub struct Disk {
    queue: SyncSender<Word>,
    lost: Counter,
    folder: PathBuf,
    /// Who looks through files does it alone.
    looking: Mutex<()>,
}

impl Disk {
    /// Opens the folder and begins to write. `lost` counts what is not written.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn open(options: DiskOptions, lost: Counter) -> io::Result<Self> {
        fs::create_dir_all(&options.folder)?;
        let folder = options.folder.clone();
        let (queue, words) = sync_channel(options.queue.max(1));
        let writer = Writer::begin(options, lost.clone())?;
        std::thread::Builder::new().name("receipts".to_owned()).spawn(move || writer.run(&words))?;
        Ok(Self { queue, lost, folder, looking: Mutex::default() })
    }

    /// Keeps it, if there is room in the queue.
    pub(super) fn offer(&self, receipt: Packed) {
        if self.queue.try_send(Word::Receipt(Box::new(receipt))).is_err() {
            self.lost.inc();
        }
    }

    /// Writes what waits. False: it was not done in time.
    #[must_use]
    pub fn flush(&self, within: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        let begun = Clock::now();
        let mut word = Word::Flush(done);
        loop {
            match self.queue.try_send(word) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Clock::now().since(begun) < within => word = back,
                Err(_) => return false,
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        is_done.recv_timeout(within.saturating_sub(Clock::now().since(begun))).is_ok()
    }

    /// The receipt of a request. Reads files: not for a thread that others wait for.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<Value> {
        let _alone = self.looking.lock();
        let wanted = format!("\"request_id\":{}", Value::from(id));
        let finder = memmem::Finder::new(wanted.as_bytes());
        let files = numbered(&self.folder).ok()?;
        files.iter().rev().find_map(|(_, path)| look(path, id, &finder))
    }
}

/// The last line of the file that is this request's receipt.
fn look(path: &Path, id: &str, finder: &memmem::Finder<'_>) -> Option<Value> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).ok()?);
    let (mut line, mut found) = (Vec::new(), None);
    loop {
        line.clear();
        if io::Read::take(&mut file, LONGEST as u64).read_until(b'\n', &mut line).ok()? == 0 {
            return found;
        }
        // A line that a crash cut off, and words that only look like the id, are no receipt of it.
        let told = finder.find(&line).and_then(|_| serde_json::from_slice::<Value>(&line).ok());
        found = told.filter(|told| told["request_id"] == id).or(found);
    }
}

struct Writer {
    options: DiskOptions,
    lost: Counter,
    number: u64,
    /// The newest file. None: the next receipt makes one.
    file: Option<BufWriter<File>>,
    /// Bytes of it, the buffer included; and those of them that were given to the operating system.
    size: u64,
    flushed: u64,
    /// Receipts in the buffer.
    waiting: u64,
    /// It is told once when it begins to fail, and once when that ends.
    failing: bool,
}

impl Writer {
    fn begin(options: DiskOptions, lost: Counter) -> io::Result<Self> {
        let number = numbered(&options.folder)?.last().map_or(1, |(number, _)| number + 1);
        let file = Some(buffered(create(&options.folder, number)?));
        let writer = Self { options, lost, number, file, size: 0, flushed: 0, waiting: 0, failing: false };
        writer.tend();
        Ok(writer)
    }

    fn run(mut self, words: &Receiver<Word>) {
        let (mut tended, mut flushed) = (Clock::now(), Clock::now());
        loop {
            match words.recv_timeout(BATCH) {
                Ok(Word::Receipt(receipt)) => self.take(&receipt),
                Ok(Word::Flush(done)) => {
                    self.flush();
                    // Who asked may have ceased to wait.
                    let _ = done.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
            if Clock::now().since(flushed) >= BATCH {
                self.flush();
                flushed = Clock::now();
            }
            if Clock::now().since(tended) >= TEND {
                self.tend();
                tended = Clock::now();
            }
        }
    }

    fn take(&mut self, receipt: &Packed) {
        let mut line = told(&receipt.unpack(), Wall::read()).to_string();
        line.push('\n');
        self.waiting += 1;
        if let Err(error) = self.append(line.as_bytes()) {
            self.fail(&error);
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let is_full = self.size > 0 && self.size + line.len() as u64 > self.options.max_size / FILES;
        if let Some(file) = self.file.as_mut().filter(|_| is_full) {
            file.flush()?;
            self.file = None;
        }
        if self.file.is_none() {
            self.file = Some(buffered(create(&self.options.folder, self.number + 1)?));
            (self.number, self.size, self.flushed) = (self.number + 1, 0, 0);
            self.tend();
        }
        self.size += line.len() as u64;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(line))
    }

    fn flush(&mut self) {
        if self.waiting == 0 {
            return;
        }
        if let Err(error) = self.file.as_mut().map_or(Ok(()), BufWriter::flush) {
            return self.fail(&error);
        }
        (self.flushed, self.waiting) = (self.size, 0);
        if std::mem::take(&mut self.failing) {
            tracing::info!("receipts are written again");
        }
    }

    /// What was not written is lost. The file is cut where it was last known to be whole; if that fails too, another one is begun.
    fn fail(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, folder = %self.options.folder.display(), "receipts cannot be written, and are lost");
        }
        self.lost.add(self.waiting);
        (self.waiting, self.size) = (0, self.flushed);
        // Without its buffer, which a drop would write.
        let file = self.file.take().map(|file| file.into_parts().0);
        self.file = file.filter(|file| file.set_len(self.flushed).is_ok()).map(buffered);
    }

    fn tend(&self) {
        // The newest file has its part.
        let room = self.options.max_size - self.options.max_size / FILES;
        tend(&self.options.folder, self.number, room, self.options.retention);
    }
}

fn buffered(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(1 << 16, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use holdfast_testkit::TempDir;

    use super::super::store::tests::receipt;

    fn packed(number: u64) -> Packed {
        Packed::new(receipt(number))
    }

    const LONG: Duration = Duration::from_secs(20);
    const DAY: Duration = Duration::from_secs(86_400);

    fn options(dir: &TempDir, max_size: u64) -> DiskOptions {
        DiskOptions { folder: dir.join("receipts"), max_size, retention: DAY, queue: 10_000 }
    }

    fn open(options: DiskOptions) -> (Disk, Counter) {
        let lost = Counter::default();
        (Disk::open(options, lost.clone()).unwrap(), lost)
    }

    fn sizes(folder: &Path) -> Vec<u64> {
        numbered(folder).unwrap().iter().map(|(_, path)| path.metadata().unwrap().len()).collect()
    }

    #[test]
    fn a_receipt_is_found_by_its_id_and_by_the_next_process_too() {
        let dir = TempDir::new();
        let (disk, lost) = open(options(&dir, 1 << 20));
        (0..500).for_each(|number| disk.offer(packed(number)));
        assert!(disk.flush(LONG) && lost.get() == 0);
        assert_eq!(disk.find("7").unwrap()["bytes_in"], 7);
        assert!(disk.find("500").is_none() && disk.find("").is_none() && disk.find("\"").is_none());
        drop(disk);
        let (disk, _) = open(options(&dir, 1 << 20));
        disk.offer(packed(500));
        assert!(disk.flush(LONG));
        for number in [0, 499, 500u64] {
            assert_eq!(disk.find(&number.to_string()).unwrap()["bytes_in"], number);
        }
    }

    #[test]
    fn a_line_that_a_crash_cut_off_is_passed_over() {
        let dir = TempDir::new();
        let (disk, _) = open(options(&dir, 1 << 20));
        (0..3).for_each(|number| disk.offer(packed(number)));
        assert!(disk.flush(LONG));
        drop(disk);
        let (_, path) = numbered(&dir.join("receipts")).unwrap().remove(0);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 20]).unwrap();
        let (disk, _) = open(options(&dir, 1 << 20));
        assert!(disk.find("1").is_some() && disk.find("2").is_none());
    }

    #[test]
    fn the_oldest_go_when_there_is_no_more_room() {
        let dir = TempDir::new();
        let most = 64 * 1024;
        let (disk, lost) = open(options(&dir, most));
        (0..2_000).for_each(|number| disk.offer(packed(number)));
        assert!(disk.flush(LONG) && lost.get() == 0);
        let folder = dir.join("receipts");
        let sizes = sizes(&folder);
        assert!(sizes.iter().sum::<u64>() <= most && sizes.len() <= FILES as usize && sizes.len() > 2, "{sizes:?}");
        assert!(disk.find("0").is_none() && disk.find("1999").is_some());
    }

    #[test]
    fn the_old_go_whatever_room_there_is() {
        let dir = TempDir::new();
        let (disk, _) = open(options(&dir, 1 << 20));
        disk.offer(packed(1));
        assert!(disk.flush(LONG));
        drop(disk);
        std::thread::sleep(Duration::from_millis(20));
        let (disk, _) = open(DiskOptions { retention: Duration::from_millis(5), ..options(&dir, 1 << 20) });
        assert!(disk.find("1").is_none());
        assert_eq!(sizes(&dir.join("receipts")).len(), 1, "the one that is written");
    }

    #[test]
    fn what_finds_no_place_is_lost_and_counted() {
        let dir = TempDir::new();
        let (disk, lost) = open(DiskOptions { queue: 1, ..options(&dir, 1 << 30) });
        let offered = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        disk.offer(packed(u64::from(offered.fetch_add(1, Relaxed))));
                    }
                });
            }
        });
        assert!(disk.flush(LONG));
        let files = numbered(&dir.join("receipts")).unwrap();
        let lines = |path: &PathBuf| fs::read_to_string(path).unwrap().lines().count() as u64;
        let written: u64 = files.iter().map(|(_, path)| lines(path)).sum();
        assert_eq!((written + lost.get(), written > 0), (20_000, true), "none is forgotten");
    }
}
