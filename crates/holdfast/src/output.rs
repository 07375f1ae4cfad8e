//! The only place that prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::{IsTerminal, Write};

/// Prints a line to standard output. A reader that has gone away (`| head`) is no error.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a line to standard error.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows on a terminal how far something is, in the place of what was shown before.
pub fn progress(text: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
}

/// Whether what is printed is drawn by a terminal.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// A number and what it counts, the plural with an `s`.
pub fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A text that somebody may have left out or empty, for a cell of a table.
pub fn said(text: &serde_json::Value) -> String {
    text.as_str().filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

/// A table without lines around it, for terminals and pipes alike. The last column is not padded.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut lines: Vec<Vec<String>> = vec![head.iter().map(|h| h.to_uppercase()).collect()];
    lines.extend(rows);
    let width = |column: usize| lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let written = lines.iter().map(|line| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    written.collect::<Vec<_>>().join("\n")
}

/// A moment as `2026-11-30 04:11:23`, UTC, from milliseconds since 1970.
pub fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date: Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days, for days from 1970 on.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, turn) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + turn;
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (1_796_011_883_515, "2026-11-30 04:11:23"),
            (4_107_542_399_999, "2100-02-28 23:59:59"),
            (4_107_542_400_000, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time(ms), text);
        }
    }
}
