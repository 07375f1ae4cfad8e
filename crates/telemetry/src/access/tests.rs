use std::collections::VecDeque;
use std::fs;

use super::*;
use crate::record::tests::record;

const LONG: Duration = Duration::from_secs(60);

/// A directory of one test, removed when it is done.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("holdfast-telemetry-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn to_file(path: &Path, policy: AccessPolicy) -> (AccessLog, AccessWriter, Counter) {
    let dropped = Counter::default();
    let options = AccessOptions { policy, sink: AccessSink::File(path.to_owned()), queue: 100, workers: 1 };
    let (log, writer) = AccessLog::start(options, dropped.clone()).unwrap();
    (log, writer, dropped)
}

fn ids(text: &str) -> Vec<String> {
    let id = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["request_id"].as_str().unwrap().to_owned();
    text.lines().map(id).collect()
}

#[test]
fn a_file_is_appended_to_and_flushed_at_shutdown() {
    let scratch = Scratch::new("append");
    let path = scratch.path("access.log");
    for round in ["a", "b"] {
        let (log, writer, dropped) = to_file(&path, AccessPolicy::All);
        log.record(record(round, 200));
        assert_eq!((writer.shutdown(LONG), dropped.get()), (Flushed::All, 0));
        log.record(record("late", 200));
        assert_eq!(dropped.get(), 1, "after the shutdown a record is dropped and counted");
    }
    assert_eq!(ids(&fs::read_to_string(&path).unwrap()), ["a", "b"]);
}

#[test]
fn the_policy_decides_what_is_recorded() {
    let scratch = Scratch::new("policy");
    let path = scratch.path("access.log");
    let (log, writer, _) = to_file(&path, AccessPolicy::Errors);
    for (id, status) in [("fine", 200), ("denied", 403), ("left", 499)] {
        assert_eq!(log.wants(&record(id, status).outcome), status >= 400);
        log.record(record(id, status));
    }
    assert_eq!(writer.shutdown(LONG), Flushed::All);
    assert_eq!(ids(&fs::read_to_string(&path).unwrap()), ["denied", "left"]);

    let (log, writer, dropped) = to_file(&scratch.path("never-made"), AccessPolicy::Off);
    log.record(record("x", 500));
    assert_eq!((writer.shutdown(LONG), dropped.get()), (Flushed::All, 0));
    assert!(!scratch.path("never-made").exists());
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_start() {
    let scratch = Scratch::new("unopened");
    let options = AccessOptions { sink: AccessSink::File(scratch.path("no/such/dir")), ..AccessOptions::default() };
    assert!(AccessLog::start(options, Counter::default()).is_err());
}

/// The writer's side alone, so that the order of batches and pokes is the test's.
fn lines(path: &Path) -> Lines<Target> {
    Lines::new(Target::File { file: open(path).unwrap(), path: path.to_owned() }, Counter::default())
}

#[test]
fn after_a_rotation_records_go_to_the_new_file() {
    let scratch = Scratch::new("rotate");
    let (path, moved) = (scratch.path("access.log"), scratch.path("access.log.1"));
    let mut lines = lines(&path);
    lines.write(&mut vec![record("before", 200)]);
    fs::rename(&path, &moved).unwrap();
    lines.write(&mut vec![record("between", 200)]);
    lines.poked();
    lines.write(&mut vec![record("after", 200)]);
    assert_eq!(ids(&fs::read_to_string(&moved).unwrap()), ["before", "between"]);
    assert_eq!(ids(&fs::read_to_string(&path).unwrap()), ["after"]);
}

#[test]
fn a_failed_rotation_keeps_the_old_file() {
    let scratch = Scratch::new("failed-rotation");
    let (dir, moved) = (scratch.path("logs"), scratch.path("moved"));
    fs::create_dir_all(&dir).unwrap();
    let mut lines = lines(&dir.join("access.log"));
    fs::rename(&dir, &moved).unwrap();
    lines.poked();
    lines.write(&mut vec![record("kept", 200)]);
    assert_eq!(ids(&fs::read_to_string(moved.join("access.log")).unwrap()), ["kept"]);
}

#[test]
fn a_reopen_reaches_the_writer_without_a_record() {
    let scratch = Scratch::new("poke");
    let path = scratch.path("access.log");
    let (log, writer, _) = to_file(&path, AccessPolicy::All);
    fs::remove_file(&path).unwrap();
    log.reopen();
    assert_eq!(writer.shutdown(LONG), Flushed::All);
    assert!(path.exists());
}

/// Takes as many bytes as each step says; None is a full disk.
struct Disk {
    steps: VecDeque<Option<usize>>,
    text: Vec<u8>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(room) = self.steps.pop_front().unwrap_or(Some(usize::MAX)) else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        let taken = bytes.len().min(room);
        self.text.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_costs_counted_records_and_no_line_runs_into_another() {
    let disk = Disk { steps: [Some(10), None].into(), text: Vec::new() };
    let mut lines = Lines::new(disk, Counter::default());
    lines.write_batch(&mut vec![record("a", 200), record("b", 200)]);
    assert_eq!(lines.dropped.get(), 2);
    lines.write_batch(&mut vec![record("c", 200)]);
    let text = String::from_utf8(lines.output.target.text).unwrap();
    let (torn, whole) = text.split_once('\n').unwrap();
    assert_eq!((torn.len(), ids(whole)), (10, vec!["c".to_owned()]));
    assert_eq!(lines.dropped.get(), 2);
}

#[test]
fn a_short_write_is_carried_on() {
    let disk = Disk { steps: [Some(1), Some(100), Some(7)].into(), text: Vec::new() };
    let mut lines = Lines::new(disk, Counter::default());
    lines.write_batch(&mut vec![record("a", 200), record("b", 200)]);
    assert_eq!(ids(&String::from_utf8(lines.output.target.text).unwrap()), ["a", "b"]);
    assert!(!lines.output.torn && lines.dropped.get() == 0);
}
