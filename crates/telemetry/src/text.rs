//! Text forms: label values and numbers of the exposition, JSON strings, UTC time.

use std::fmt::Write;

/// The most bytes of a label value or of a client's text in a log line.
pub(crate) const MAX_TEXT: usize = 128;

/// The first [`MAX_TEXT`] bytes, cut at a character.
pub(crate) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text)
}

/// Writes a label value as the exposition wants it (Prometheus text 0.0.4: backslash, double quote and line feed are escaped).
pub(crate) fn push_label_value(out: &mut String, value: &str) {
    for c in cut(value).chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

/// Writes `name="value"`, with a comma before it unless it is the first.
pub(crate) fn push_label(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() && !out.ends_with('{') {
        out.push(',');
    }
    out.push_str(name);
    out.push_str("=\"");
    push_label_value(out, value);
    out.push('"');
}

/// Writes a help text (backslash and line feed are escaped).
pub(crate) fn push_help(out: &mut String, help: &str) {
    for c in help.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

/// Writes a sample's value.
pub(crate) fn push_float(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        // Writing to a String does not fail.
        let _ = write!(out, "{value}");
    }
}

/// Writes nanoseconds as seconds, exactly.
pub(crate) fn push_seconds(out: &mut String, nanos: u64) {
    let _ = write!(out, "{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
}

/// Writes a JSON string, quotes included. Control characters, DEL and the C1 range are escaped too: a log line is often read in a terminal,
/// which they could steer.
pub(crate) fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    if text.bytes().all(|byte| PLAIN[usize::from(byte)]) {
        out.push_str(text);
    } else {
        push_json_escaped(out, text);
    }
    out.push('"');
}

/// Bytes that stand for themselves in a JSON string.
static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        table[byte as usize] = byte != b'"' && byte != b'\\';
        byte += 1;
    }
    table
};

fn push_json_escaped(out: &mut String, text: &str) {
    let mut clean_from = 0;
    for (at, c) in text.char_indices() {
        if c != '"' && c != '\\' && !c.is_control() {
            continue;
        }
        out.push_str(text.get(clean_from..at).unwrap_or_default());
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
        }
        clean_from = at + c.len_utf8();
    }
    out.push_str(text.get(clean_from..).unwrap_or_default());
}

/// Milliseconds since 1970 as `2026-11-30T12:00:00.123Z`.
#[must_use]
pub fn utc(millis: u64) -> String {
    let mut out = String::new();
    push_time(&mut out, millis);
    out
}

/// Milliseconds since 1970 of a time as [`push_time`] writes it.
pub(crate) fn parse_time(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, milli) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 23)?);
    // Years that begin on 1 March, as below; the days from there to 1970 are 719,468.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day.checked_sub(1)?;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(seconds * 1000 + milli)
}

/// Writes a number below 100 with two digits.
fn put_two(text: &mut [u8; 24], at: usize, value: u64) {
    let value = u8::try_from(value % 100).unwrap_or(0);
    text[at] = b'0' + value / 10;
    text[at + 1] = b'0' + value % 10;
}

/// Writes milliseconds since 1970 as `2026-11-30T12:00:00.123Z` (RFC 3339). Years up to 9999.
pub(crate) fn push_time(out: &mut String, millis: u64) {
    const LAST: u64 = 253_402_300_799_999; // 9999-12-31T23:59:59.999Z
    let millis = millis.min(LAST);
    let (seconds, milli) = (millis / 1000, millis % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to a civil date in eras of 400 years that begin on 1 March, so that the leap day is the last of its year
    // (H. Hinnant, "chrono-compatible low-level date algorithms", civil_from_days).
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    put_two(&mut text, 0, year / 100);
    let parts = [(2, year), (5, month), (8, day), (11, second / 3600), (14, second / 60 % 60), (17, second % 60)];
    for (at, value) in parts {
        put_two(&mut text, at, value);
    }
    put_two(&mut text, 20, milli / 10);
    text[22] = b'0' + u8::try_from(milli % 10).unwrap_or(0);
    // Digits and punctuation only.
    out.push_str(std::str::from_utf8(&text).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn label_values_are_escaped_and_cut_at_a_character() {
        assert_eq!(written(|o| push_label(o, "a", "q\"b\\s\nn\r\u{1f600}")), "a=\"q\\\"b\\\\s\\nn\r\u{1f600}\"");
        assert_eq!(cut(&"x".repeat(129)).len(), 128);
        assert_eq!(cut(&format!("{}\u{e9}", "x".repeat(127))).len(), 127, "no half character");
        assert_eq!(written(|o| push_label_value(o, &"\"".repeat(200))).len(), 256, "cut before it is escaped");
    }

    #[test]
    fn json_strings_are_read_back() {
        for text in ["", "plain", "\"\\\n\r\t\0\u{7f}\u{9b}", "caf\u{e9} \u{1f600} \u{2028}", "a\"", "\\"] {
            let json = written(|o| push_json_string(o, text));
            assert_eq!(serde_json::from_str::<String>(&json).ok().as_deref(), Some(text), "{json}");
            assert!(!json.contains(char::is_control), "{json:?}");
        }
    }

    #[test]
    fn times_at_the_edges_of_the_calendar() {
        // Checked with `date -u -d @SECONDS`.
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199_001, "2023-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(written(|o| push_time(o, millis)), text);
            assert_eq!(parse_time(text), Some(millis.min(253_402_300_799_999)));
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "2026", "1969-12-31T23:59:59.999Z", "2026-11-00T00:00:00.000Z", "x026-11-30T00:00:00.000Z"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_of_the_exposition() {
        let float = |v| written(|o| push_float(o, v));
        assert_eq!([float(1.0), float(0.25), float(f64::NAN), float(f64::NEG_INFINITY)], ["1", "0.25", "NaN", "-Inf"]);
        assert_eq!(written(|o| push_seconds(o, 1_000_000_050)), "1.000000050");
    }
}
