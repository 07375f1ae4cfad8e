//! Whatever is changed, removed, moved or cut is found; what retention removed, and says so, is not a fault.

use proptest::prelude::*;

use super::*;
use crate::audit::digest::Hash;
use crate::audit::record::tests::entry;
use crate::audit::record::{GapWhy, Line, Missing, Removal, seal};

type Files = Vec<(String, Vec<u8>)>;

/// A log of these files with so many records each, and its head.
fn log(sizes: &[usize]) -> (Files, Tip) {
    let mut tip = Tip::START;
    let mut files = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        let mut text = String::new();
        for record in 0..*size {
            let id = format!("id-{number}-{record}");
            let millis = 1_700_000_000_000 + tip.seq;
            seal(&mut tip, millis, &Line::Answer(&entry(&id)), &mut text);
        }
        files.push((format!("audit-{number:020}.jsonl"), text.into_bytes()));
    }
    (files, tip)
}

fn verify(files: &Files, head: Head) -> Report {
    let mut verifier = Verifier::new(head);
    for (name, bytes) in files {
        for (number, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
            let (line, ended) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
            verifier.line(name, number as u64 + 1, line, ended);
        }
    }
    verifier.finish()
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

#[test]
fn what_is_whole_is_whole() {
    for sizes in [&[][..], &[0], &[1], &[3, 1, 4]] {
        let (files, tip) = log(sizes);
        let report = verify(&files, if tip == Tip::START { Head::Absent } else { Head::At(tip) });
        assert!(report.is_whole(), "{report:?}");
        assert_eq!((report.answers, report.last.unwrap_or(Tip::START)), (sizes.iter().sum::<usize>() as u64, tip));
    }
}

#[test]
fn a_break_says_where_and_what() {
    let (mut files, tip) = log(&[3, 3]);
    let mut second = lines(&files[1].1);
    second.remove(1);
    files[1].1 = second.concat();
    let report = verify(&files, Head::At(tip));
    let [found] = report.breaks.as_slice() else { panic!("{report:?}") };
    assert_eq!((found.file.as_str(), found.line), (files[1].0.as_str(), 2));
    assert!(found.expected.starts_with("record 5 after ") && found.found.starts_with("record 6 after "), "{found:?}");
}

#[test]
fn gaps_and_retention_are_shown_and_are_no_breaks() {
    let (mut files, mut tip) = log(&[2, 2, 2]);
    let (kept, last) = (files.split_off(2), files.concat_tip());
    let mut text = String::from_utf8(kept[0].1.clone()).unwrap();
    let gap = Missing { why: GapWhy::QueueFull, count: Some(3), torn: 0 };
    seal(&mut tip, 1_700_000_000_100, &Line::Gap(gap), &mut text);
    let without_anchor = vec![(kept[0].0.clone(), text.clone().into_bytes())];
    let head = tip;
    let removal = Removal { from: 1, to: last, files: 2, why: "age" };
    seal(&mut tip, 1_700_000_000_101, &Line::Removed(removal), &mut text);
    let report = verify(&vec![(kept[0].0.clone(), text.into_bytes())], Head::At(tip));
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.first, report.gaps[0].count, report.gaps[0].why.as_str()), (5, Some(3), "queue_full"));
    assert_eq!((report.removed[0].from, report.removed[0].to, report.removed[0].files), (1, 4, 2));
    // The same without the word of retention is a loss that somebody else made.
    assert!(!verify(&without_anchor, Head::At(head)).is_whole());
}

trait ConcatTip {
    fn concat_tip(&self) -> Tip;
}

impl ConcatTip for Files {
    /// The last record of these files.
    fn concat_tip(&self) -> Tip {
        let last = lines(&self.last().unwrap().1).pop().unwrap();
        unseal(last.strip_suffix(b"\n").unwrap()).unwrap().tip
    }
}

#[test]
fn a_head_that_is_gone_or_lies_is_a_break() {
    let (files, tip) = log(&[3]);
    for head in [Head::Absent, Head::Unreadable, Head::At(Tip { hash: Hash::of(b"x"), ..tip })] {
        assert!(!verify(&files, head).is_whole(), "{head:?}");
    }
    // A crash between the log and its head leaves the head behind.
    let before = log(&[2]).1;
    assert!(verify(&files, Head::At(before)).is_whole());
}

#[test]
fn a_line_that_is_being_written_is_no_break_and_one_in_the_middle_is() {
    let (mut files, tip) = log(&[2, 2]);
    files[1].1.extend_from_slice(b"{\"seq\":5,");
    let report = verify(&files, Head::At(tip));
    assert_eq!((report.is_whole(), report.unfinished_bytes), (true, 9));
    files[0].1.extend_from_slice(b"{\"seq\":3,");
    assert_eq!(verify(&files, Head::At(tip)).breaks_total, 1);
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..5, 1..5)
}

proptest! {
    #[test]
    fn any_changed_byte_is_found(sizes in sizes(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (mut files, tip) = log(&sizes);
        let all: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut at = at.index(all);
        for (_, bytes) in &mut files {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
                break;
            }
            at -= bytes.len();
        }
        prop_assert!(!verify(&files, Head::At(tip)).is_whole());
    }

    #[test]
    fn any_removed_or_doubled_line_is_found(sizes in sizes(), file in any::<prop::sample::Index>(), line in any::<prop::sample::Index>(), twice: bool) {
        let (mut files, tip) = log(&sizes);
        let file = file.index(files.len());
        let mut all = lines(&files[file].1);
        let line = line.index(all.len());
        if twice {
            all.insert(line, all[line].clone());
        } else {
            all.remove(line);
        }
        files[file].1 = all.concat();
        prop_assert!(!verify(&files, Head::At(tip)).is_whole());
    }

    #[test]
    fn any_two_swapped_lines_are_found(sizes in sizes(), one in any::<prop::sample::Index>(), other in any::<prop::sample::Index>()) {
        let (mut files, tip) = log(&sizes);
        let places: Vec<usize> = files.iter().map(|(_, bytes)| lines(bytes).len()).collect();
        let mut all: Vec<Vec<u8>> = files.iter().flat_map(|(_, bytes)| lines(bytes)).collect();
        let (one, other) = (one.index(all.len()), other.index(all.len()));
        prop_assume!(one != other);
        all.swap(one, other);
        for ((_, bytes), count) in files.iter_mut().zip(places) {
            *bytes = all.drain(..count).flatten().collect();
        }
        prop_assert!(!verify(&files, Head::At(tip)).is_whole());
    }

    #[test]
    fn any_removed_or_renamed_file_is_found(sizes in proptest::collection::vec(1usize..5, 2..6), one in any::<prop::sample::Index>(), other in any::<prop::sample::Index>()) {
        let (files, tip) = log(&sizes);
        let (one, other) = (one.index(files.len()), other.index(files.len()));
        let mut fewer = files.clone();
        fewer.remove(one);
        prop_assert!(!verify(&fewer, Head::At(tip)).is_whole(), "without {one} of {}", files.len());
        prop_assume!(one != other);
        let mut moved = files;
        moved.swap(one, other);
        prop_assert!(!verify(&moved, Head::At(tip)).is_whole());
    }

    #[test]
    fn any_cut_tail_is_found(sizes in sizes(), at in any::<prop::sample::Index>()) {
        let (files, tip) = log(&sizes);
        let all: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut left = at.index(all);
        let mut cut = Vec::new();
        for (name, bytes) in files {
            let keep = left.min(bytes.len());
            cut.push((name, bytes[..keep].to_vec()));
            left -= keep;
        }
        prop_assert!(!verify(&cut, Head::At(tip)).is_whole());
    }
}
