//! Records and their seal. A line is JSON whose last two members are `prev`, the hash of the record before it, and `hash`, BLAKE3 over the line's
//! own bytes up to `,"hash"`. So a line is checked as it is written, byte by byte, and needs no canonical form.

use bytes::Bytes;
use holdfast_types::{ModelName, Mono, ReplicaName, Revision, TenantId, Version};

use super::digest::Hash;
use crate::text::{cut, push_json_string, push_time};

/// Between what is hashed and the hash.
pub(super) const SEAL: &str = ",\"hash\":\"";

/// The end of a chain: the number and the hash of its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The number of the record. The first record has 1.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Tip {
    /// Before the first record.
    pub const START: Self = Self { seq: 0, hash: Hash::ZERO };
}

/// One answer of a model server, as the request path hands it over.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    /// When the answer ended.
    pub ended: Mono,
    /// The request's id.
    pub request_id: Bytes,
    /// Whose request it was.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// The version that answered.
    pub version: Version,
    /// The table's revision under which it was resolved.
    pub revision: Revision,
    /// Why that version.
    pub reason: &'static str,
    /// The status that the client was sent.
    pub status: u16,
    /// The replica that answered.
    pub replica: Option<ReplicaName>,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the answer's body that were given out.
    pub bytes_out: u64,
    /// Of the request body, as far as it was read.
    pub input: Hash,
    /// Of the answer's body, as far as it was given out.
    pub verdict: Hash,
    /// Whether the answer was given out to its end.
    pub whole: bool,
}

/// Why records are missing, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapWhy {
    /// They came faster than they could be written.
    QueueFull,
    /// The disk did not take them.
    WriteFailed,
    /// The disk took them, and did not confirm it.
    SyncFailed,
    /// The process before ended without a word; what it had not written yet is lost.
    UncleanStop,
    /// The log ends before its head does.
    Missing,
    /// The log's last record cannot be read.
    Unreadable,
}

impl GapWhy {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WriteFailed => "write_failed",
            Self::SyncFailed => "sync_failed",
            Self::UncleanStop => "unclean_stop",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Records that are missing. `count` is None where nobody can know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) why: GapWhy,
    pub(super) count: Option<u64>,
    /// Bytes of a torn last line that were cut off.
    pub(super) torn: u64,
}

/// Files that retention removes: the oldest, up to the record `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) from: u64,
    pub(super) to: Tip,
    pub(super) files: usize,
    pub(super) why: &'static str,
}

/// What a line may be.
pub(super) enum Line<'a> {
    Answer(&'a AuditEntry),
    Gap(Missing),
    Removed(Removal),
    /// The process ended in order: what comes next is of another one.
    Stop,
}

/// Appends a line to `out`, and moves the tip.
pub(super) fn seal(tip: &mut Tip, millis: u64, line: &Line<'_>, out: &mut String) {
    let from = out.len();
    out.reserve(1024);
    tip.seq += 1;
    out.push_str("{\"seq\":");
    push_u64(out, tip.seq);
    out.push_str(",\"time\":\"");
    push_time(out, millis);
    out.push('"');
    match line {
        Line::Answer(entry) => push_answer(out, entry),
        Line::Gap(gap) => push_gap(out, *gap),
        Line::Removed(removal) => push_removal(out, *removal),
        Line::Stop => out.push_str(",\"kind\":\"stop\""),
    }
    push_hash(out, "prev", tip.hash);
    tip.hash = Hash::of(out.get(from..).unwrap_or_default().as_bytes());
    push_hash(out, "hash", tip.hash);
    out.push_str("}\n");
}

fn push_answer(out: &mut String, entry: &AuditEntry) {
    out.push_str(",\"kind\":\"answer\"");
    push_text(out, "request_id", cut(std::str::from_utf8(&entry.request_id).unwrap_or_default()));
    push_text(out, "tenant", entry.tenant.as_str());
    push_text(out, "model", entry.model.as_str());
    push_text(out, "version", entry.version.as_str());
    push_number(out, "revision", entry.revision.0);
    push_text(out, "reason", entry.reason);
    push_number(out, "status", u64::from(entry.status));
    if let Some(replica) = &entry.replica {
        push_text(out, "replica", replica.as_str());
    }
    push_number(out, "bytes_in", entry.bytes_in);
    push_hash(out, "input", entry.input);
    push_number(out, "bytes_out", entry.bytes_out);
    push_hash(out, "verdict", entry.verdict);
    push_key(out, "whole");
    out.push_str(if entry.whole { "true" } else { "false" });
}

fn push_gap(out: &mut String, gap: Missing) {
    out.push_str(",\"kind\":\"gap\"");
    push_text(out, "why", gap.why.as_str());
    if let Some(count) = gap.count {
        push_number(out, "count", count);
    }
    if gap.torn > 0 {
        push_number(out, "torn_bytes", gap.torn);
    }
}

fn push_removal(out: &mut String, removal: Removal) {
    out.push_str(",\"kind\":\"removed\"");
    push_text(out, "why", removal.why);
    push_number(out, "files", removal.files as u64);
    push_number(out, "from", removal.from);
    push_number(out, "to", removal.to.seq);
    push_hash(out, "last", removal.to.hash);
}

fn push_key(out: &mut String, key: &str) {
    out.push_str(",\"");
    out.push_str(key);
    out.push_str("\":");
}

fn push_text(out: &mut String, key: &str, text: &str) {
    push_key(out, key);
    push_json_string(out, text);
}

fn push_hash(out: &mut String, key: &str, hash: Hash) {
    push_key(out, key);
    out.push('"');
    out.push_str(hash.hex().as_str());
    out.push('"');
}

fn push_number(out: &mut String, key: &str, number: u64) {
    push_key(out, key);
    push_u64(out, number);
}

fn push_u64(out: &mut String, number: u64) {
    out.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    pub(in crate::audit) fn entry(id: &str) -> AuditEntry {
        AuditEntry {
            ended: Mono::ZERO.after(Duration::from_secs(7)),
            request_id: id.to_owned().into(),
            tenant: TenantId::parse("acme").unwrap(),
            model: ModelName::parse("screen").unwrap(),
            version: Version::parse("1").unwrap(),
            revision: Revision(7),
            reason: "pin",
            status: 200,
            replica: ReplicaName::parse("r1").ok(),
            bytes_in: 5,
            bytes_out: 7,
            input: Hash::of(b"hello"),
            verdict: Hash::of(b"goodbye"),
            whole: true,
        }
    }

    #[test]
    fn a_whole_record_to_the_letter() {
        let (mut tip, mut out) = (Tip::START, String::new());
        seal(&mut tip, 1_704_067_199_001, &Line::Answer(&entry("id-1")), &mut out);
        let body = format!(
            concat!(
                r#"{{"seq":1,"time":"2023-12-31T23:59:59.001Z","kind":"answer","request_id":"id-1","tenant":"acme","#,
                r#""model":"screen","version":"1","revision":7,"reason":"pin","status":200,"replica":"r1","bytes_in":5,"#,
                r#""input":"{}","bytes_out":7,"verdict":"{}","whole":true,"prev":"{}""#
            ),
            // As b3sum prints it.
            "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f",
            Hash::of(b"goodbye").hex(),
            "0".repeat(64)
        );
        assert_eq!(out, format!("{body},\"hash\":\"{}\"}}\n", Hash::of(body.as_bytes()).hex()));
        assert_eq!((tip.seq, tip.hash), (1, Hash::of(body.as_bytes())));
    }
}
