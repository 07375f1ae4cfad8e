//! `holdfast audit find` and `holdfast audit verify`: they read the log's folder and need no gateway.

use std::path::PathBuf;

use holdfast_config::Config;
use holdfast_telemetry::{AuditFiles, AuditQuery, Found, Report};
use serde_json::{Value, json};

use super::Failure;
use crate::cli::{AuditFindArgs, AuditPlace, Output};
use crate::config_file;
use crate::output::{self, counted};

/// The folder that is meant: named, or that of a configuration, or that of an empty one.
fn files(place: &AuditPlace) -> Result<(AuditFiles, PathBuf), Failure> {
    let folder = match (&place.folder, &place.config) {
        (Some(folder), _) => folder.clone(),
        (None, Some(file)) => {
            config_file::read(file).map_err(|e| Failure::wrong(e.to_string()))?.split.loaded.config.audit_folder()
        }
        (None, None) => Config::default().audit_folder(),
    };
    Ok((AuditFiles::new(&folder), folder))
}

fn unreadable(folder: &std::path::Path, error: &std::io::Error) -> Failure {
    let folder = folder.display();
    Failure::wrong(format!(
        "the audit log in {folder} cannot be read: {error}\ngive its folder by --folder or --config"
    ))
}

/// Prints the records that match.
pub fn find(args: &AuditFindArgs) -> Result<(), Failure> {
    let (files, folder) = files(&args.place)?;
    let query = AuditQuery {
        request_id: args.request_id.clone(),
        tenant: args.tenant.clone(),
        model: args.model.clone(),
        version: args.version.clone(),
        since: args.since.clone(),
        until: args.until.clone(),
    };
    let found = files.find(&query).map_err(|e| unreadable(&folder, &e))?;
    match args.place.output {
        Output::Json => {
            let Found { records, gaps, unreadable } = found;
            output::say(&json!({ "records": records, "gaps": gaps, "unreadable_lines": unreadable }).to_string());
        }
        Output::Table => print_found(&found),
    }
    Ok(())
}

const COLUMNS: [&str; 9] =
    ["time", "request_id", "tenant", "model", "version", "revision", "reason", "status", "replica"];

fn print_found(found: &Found) {
    if found.records.is_empty() {
        output::say("no record matches");
    } else {
        let row = |record: &Value| COLUMNS.iter().map(|column| text(record, column)).collect();
        output::say(&output::table(&COLUMNS, found.records.iter().map(row)));
    }
    if !found.gaps.is_empty() {
        let gaps = counted(found.gaps.len(), "gap");
        output::complain(&format!("the log says that records are missing: {gaps} in these times"));
    }
    if found.unreadable > 0 {
        let lines = counted(usize::try_from(found.unreadable).unwrap_or(usize::MAX), "line");
        output::complain(&format!("{lines} are no whole record; `holdfast audit verify` says where"));
    }
}

fn text(record: &Value, member: &str) -> String {
    match record.get(member) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    }
}

/// Checks the chain. Broken: exit code 1.
pub fn verify(place: &AuditPlace) -> Result<(), Failure> {
    let (files, folder) = files(place)?;
    let report = files.verify().map_err(|e| unreadable(&folder, &e))?;
    match place.output {
        Output::Json => output::say(&as_json(&report).to_string()),
        Output::Table => print_report(&report),
    }
    if report.is_whole() {
        return Ok(());
    }
    let total = usize::try_from(report.breaks_total).unwrap_or(usize::MAX);
    Err(Failure::failed(format!("{}: the chain is broken, {}", folder.display(), counted(total, "break"))))
}

fn as_json(report: &Report) -> Value {
    let breaks = report
        .breaks
        .iter()
        .map(|b| json!({ "file": b.file, "line": b.line, "expected": b.expected, "found": b.found }));
    let gaps = report
        .gaps
        .iter()
        .map(|g| json!({ "time": g.time, "why": g.why, "count": g.count, "torn_bytes": g.torn_bytes }));
    let removed = report
        .removed
        .iter()
        .map(|r| json!({ "time": r.time, "why": r.why, "files": r.files, "from": r.from, "to": r.to }));
    json!({
        "whole": report.is_whole(),
        "records": report.records, "answers": report.answers, "first": report.first,
        "head": report.last.map(|tip| json!({ "seq": tip.seq, "hash": tip.hash.hex().as_str() })),
        "breaks_total": report.breaks_total, "breaks": breaks.collect::<Vec<_>>(),
        "gaps_total": report.gaps_total, "gaps": gaps.collect::<Vec<_>>(),
        "removed": removed.collect::<Vec<_>>(),
        "unfinished_bytes": report.unfinished_bytes,
    })
}

fn print_report(report: &Report) {
    for found in &report.breaks {
        output::say(&format!("{}:{}: expected {}, found {}", found.file, found.line, found.expected, found.found));
    }
    for removed in &report.removed {
        let (why, from, to) = (&removed.why, removed.from, removed.to);
        output::say(&format!("{}  retention by {why} removed the records {from} to {to}", removed.time));
    }
    for gap in &report.gaps {
        let count = gap.count.map_or("an unknown number of records".to_owned(), |n| format!("{n} records"));
        let torn =
            if gap.torn_bytes > 0 { format!(", {} bytes of a torn line", gap.torn_bytes) } else { String::new() };
        output::say(&format!("{}  a gap of {count} ({}{torn})", gap.time, gap.why));
    }
    let head = report.last.map_or("no record".to_owned(), |tip| format!("head {} {}", tip.seq, tip.hash.hex()));
    let word = if report.is_whole() { "whole" } else { "BROKEN" };
    let records = usize::try_from(report.records).unwrap_or(usize::MAX);
    let records = output::counted(records, "record");
    output::say(&format!("{word}: {records}, {} of them of answers; {head}", report.answers));
}
