//! The writer over real files: rotation, retention, restarts, crashes, disks that take nothing.

use std::path::{Path, PathBuf};

use super::*;
use crate::audit::record::tests::entry;
use crate::audit::verify::Report;

/// A folder of one test, removed when it is done.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("holdfast-audit-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(folder: &Path) -> AuditOptions {
    AuditOptions {
        folder: folder.to_owned(),
        max_file_size: 4_000,
        retention: Duration::from_secs(1 << 32),
        max_total_size: 1 << 30,
        queue: 100,
        workers: 1,
    }
}

/// A writer in the test's own hands, so that the order of what happens is the test's.
fn writer(folder: &Path) -> Writer {
    let mut writer = Writer::new(options(folder), AuditLosses::default(), Arc::new(AtomicBool::new(true)));
    writer.poked();
    writer
}

fn write(writer: &mut Writer, from: usize, count: usize) {
    writer.write(&mut (from..from + count).map(|n| entry(&format!("id-{n}"))).collect());
    writer.rounded(false);
}

fn report(folder: &Path) -> Report {
    AuditFiles::new(folder).verify().unwrap()
}

fn whole(folder: &Path) -> Report {
    let report = report(folder);
    assert!(report.is_whole(), "{report:?}");
    report
}

fn names(folder: &Path) -> Vec<PathBuf> {
    AuditFiles::new(folder).list().unwrap().into_iter().map(|(_, path)| path).collect()
}

#[test]
fn the_chain_goes_on_over_files_and_orderly_restarts() {
    let scratch = Scratch::new("restarts");
    for round in 0..3 {
        let mut writer = writer(&scratch.0);
        write(&mut writer, round * 20, 20);
        writer.rounded(true);
        assert_eq!(writer.losses.written.get(), 20);
    }
    let report = whole(&scratch.0);
    assert_eq!((report.answers, report.gaps_total, report.records), (60, 0, 63), "each end is a record");
    assert!(names(&scratch.0).len() >= 5, "{:?}", names(&scratch.0));
    let found = AuditFiles::new(&scratch.0).find(&crate::AuditQuery::default()).unwrap();
    let ids: Vec<_> = found.records.iter().map(|r| r["request_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (0..60).map(|n| format!("id-{n}")).collect::<Vec<_>>());
}

#[test]
fn an_end_that_left_requests_is_not_called_orderly() {
    let scratch = Scratch::new("hurried");
    for orderly in [false, true] {
        let losses = AuditLosses::default();
        let (log, owner) = crate::AuditLog::start(options(&scratch.0), losses).unwrap();
        log.record(entry("a"));
        assert_eq!(owner.shutdown(Duration::from_secs(60), orderly), crate::Flushed::All);
        log.record(entry("late"));
    }
    let mut writer = writer(&scratch.0);
    write(&mut writer, 0, 1);
    let report = whole(&scratch.0);
    assert_eq!((report.answers, report.gaps_total), (3, 1), "{report:?}");
}

#[test]
fn a_log_has_a_head_before_its_first_record() {
    let scratch = Scratch::new("head");
    let mut writer = writer(&scratch.0);
    writer.write(&mut vec![entry("a")]);
    // Written and not synced yet.
    assert_eq!(whole(&scratch.0).answers, 1);
}

#[test]
fn a_crash_is_told_and_a_torn_line_is_cut() {
    let scratch = Scratch::new("crash");
    for torn in [0, 1, 100] {
        let mut before = writer(&scratch.0);
        write(&mut before, 0, 3);
        drop(before);
        let last = names(&scratch.0).pop().unwrap();
        let mut text = fs::read(&last).unwrap();
        text.extend_from_slice(&vec![b'{'; torn]);
        fs::write(&last, text).unwrap();
        let mut after = writer(&scratch.0);
        write(&mut after, 3, 3);
        let report = whole(&scratch.0);
        let gap = report.gaps.last().unwrap();
        assert_eq!((gap.why.as_str(), gap.count, gap.torn_bytes), ("unclean_stop", None, torn as u64));
        after.rounded(true);
    }
    assert_eq!(whole(&scratch.0).answers, 18);
}

#[test]
fn a_crash_in_the_first_line_of_a_file_leaves_no_hole() {
    let scratch = Scratch::new("first-line");
    let mut before = writer(&scratch.0);
    write(&mut before, 0, 3);
    drop(before);
    fs::write(scratch.0.join(format!("audit-{:020}.jsonl", 4)), b"{\"seq\":4").unwrap();
    let mut after = writer(&scratch.0);
    write(&mut after, 3, 1);
    let report = whole(&scratch.0);
    assert_eq!((report.answers, report.gaps[0].torn_bytes), (4, 8));
}

#[test]
fn records_cut_off_before_a_restart_stay_missing_after_it() {
    let scratch = Scratch::new("cut");
    let mut before = writer(&scratch.0);
    write(&mut before, 0, 5);
    before.rounded(true);
    let last = names(&scratch.0).pop().unwrap();
    let text = fs::read_to_string(&last).unwrap();
    let kept: Vec<&str> = text.split_inclusive('\n').take(3).collect();
    fs::write(&last, kept.concat()).unwrap();
    drop(before);
    let mut after = writer(&scratch.0);
    write(&mut after, 5, 1);
    after.rounded(true);
    let report = report(&scratch.0);
    assert_eq!((report.breaks_total, report.gaps[0].why.as_str(), report.gaps[0].count), (1, "missing", Some(3)));
}

#[test]
fn a_last_record_that_was_changed_is_kept_as_it_is() {
    let scratch = Scratch::new("changed");
    let mut before = writer(&scratch.0);
    write(&mut before, 0, 2);
    drop(before);
    let last = names(&scratch.0).pop().unwrap();
    let text = fs::read_to_string(&last).unwrap().replacen("id-1", "id-9", 1);
    fs::write(&last, &text).unwrap();
    let mut after = writer(&scratch.0);
    write(&mut after, 2, 2);
    assert_eq!(fs::read_to_string(&last).unwrap(), text);
    let report = report(&scratch.0);
    assert!(!report.is_whole() && report.gaps.iter().any(|gap| gap.why == "unreadable"), "{report:?}");
    assert_eq!(report.answers, 3);
}

#[test]
fn retention_says_what_it_removes() {
    let scratch = Scratch::new("retention");
    let mut writer = writer(&scratch.0);
    writer.options.max_total_size = 10_000;
    for round in 0..20 {
        write(&mut writer, round * 5, 5);
    }
    let report = whole(&scratch.0);
    assert!(report.first > 1 && report.answers < 100 && !report.removed.is_empty(), "{report:?}");
    assert_eq!(report.removed.last().map(|r| (r.to + 1, r.why.as_str())), Some((report.first, "size")));
    let total: u64 = names(&scratch.0).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(total < 15_000, "{total}");
    // By age as well, and without a record.
    writer.options.retention = Duration::ZERO;
    std::thread::sleep(Duration::from_millis(5));
    writer.poked();
    assert_eq!(names(&scratch.0).len(), 1);
    writer.rounded(true);
    assert!(report_after_restart(&scratch.0).is_whole());
}

fn report_after_restart(folder: &Path) -> Report {
    let mut writer = writer(folder);
    write(&mut writer, 900, 1);
    writer.rounded(true);
    report(folder)
}

#[test]
fn a_removed_file_is_no_retention() {
    let scratch = Scratch::new("removed");
    let mut writer = writer(&scratch.0);
    write(&mut writer, 0, 40);
    let all = names(&scratch.0);
    for path in [&all[0], &all[1]] {
        let kept = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!(report(&scratch.0).breaks_total, 1, "{}", path.display());
        fs::write(path, kept).unwrap();
    }
    whole(&scratch.0);
}

#[test]
fn a_file_that_vanishes_under_the_writer_is_noticed_and_missed() {
    let scratch = Scratch::new("vanishes");
    let mut writer = writer(&scratch.0);
    write(&mut writer, 0, 2);
    fs::remove_dir_all(&scratch.0).unwrap();
    write(&mut writer, 2, 2);
    let report = report(&scratch.0);
    assert_eq!((report.answers, report.breaks_total), (2, 1), "{report:?}");
}

#[test]
fn records_without_a_disk_are_counted_and_told() {
    let scratch = Scratch::new("no-disk");
    // A file where the folder should be.
    fs::write(&scratch.0, b"").unwrap();
    let mut writer = writer(&scratch.0);
    write(&mut writer, 0, 3);
    write(&mut writer, 3, 2);
    assert_eq!((writer.losses.write_failed.get(), writer.losses.written.get()), (5, 0));
    fs::remove_file(&scratch.0).unwrap();
    writer.losses.queue_full.add(4);
    write(&mut writer, 5, 1);
    let report = whole(&scratch.0);
    let gaps: Vec<_> = report.gaps.iter().map(|gap| (gap.why.as_str(), gap.count)).collect();
    assert_eq!((report.answers, gaps), (1, vec![("write_failed", Some(5)), ("queue_full", Some(4))]));
    fs::remove_dir_all(&scratch.0).unwrap();
}

#[test]
fn two_processes_do_not_write_one_log() {
    let scratch = Scratch::new("two");
    let mut first = writer(&scratch.0);
    write(&mut first, 0, 1);
    let mut second = writer(&scratch.0);
    write(&mut second, 1, 1);
    assert_eq!(second.losses.write_failed.get(), 1);
    drop(first);
    write(&mut second, 2, 1);
    let report = whole(&scratch.0);
    assert_eq!((report.answers, report.gaps.len()), (2, 2), "{report:?}");
}

#[test]
fn a_piece_that_the_disk_does_not_take_is_taken_back() {
    let scratch = Scratch::new("piece");
    let mut writer = writer(&scratch.0);
    write(&mut writer, 0, 1);
    let good = fs::read(&names(&scratch.0)[0]).unwrap();
    // A file that was opened for reading takes nothing.
    let open = writer.open.as_mut().unwrap();
    open.tail.replace_file(File::open(&names(&scratch.0)[0]).unwrap());
    write(&mut writer, 1, 2);
    assert_eq!((writer.losses.write_failed.get(), fs::read(&names(&scratch.0)[0]).unwrap()), (2, good));
    let file = File::options().append(true).open(&names(&scratch.0)[0]).unwrap();
    writer.open.as_mut().unwrap().tail.replace_file(file);
    write(&mut writer, 3, 1);
    let report = whole(&scratch.0);
    assert_eq!((report.answers, report.gaps[0].count), (2, Some(2)));
}
