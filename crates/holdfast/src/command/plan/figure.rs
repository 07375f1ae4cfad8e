//! How figures are written: thousands with a comma, halves rounded up.

/// A figure that is not negative, with so many digits after the point.
pub fn number(value: f64, digits: u32) -> String {
    let scale = 10u64.saturating_pow(digits);
    let whole = rounded(value, scale);
    let (before, after) = (whole / scale, whole % scale);
    let point = if digits == 0 { String::new() } else { format!(".{after:0width$}", width = digits as usize) };
    format!("{}{point}", thousands(before))
}

/// A share in percent.
pub fn percent(share: f64, digits: u32) -> String {
    format!("{} %", number(share * 100.0, digits))
}

/// A number of things, the plural with an `s`.
pub fn things(many: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(many), if many == 1 { "" } else { "s" })
}

/// An amount of memory in GB (10^9 bytes): to the whole where it is one.
pub fn gigabytes(bytes: u64) -> String {
    let digits = if bytes.is_multiple_of(1_000_000_000) { 0 } else { 2 };
    format!("{} GB", number(bytes as f64 / 1e9, digits))
}

/// To so many digits after the point, for programs.
pub fn round(value: f64, digits: u32) -> f64 {
    let scale = 10u64.saturating_pow(digits);
    rounded(value, scale) as f64 / scale as f64
}

/// To the next hundred, as round figures are told.
pub fn about(value: f64) -> f64 {
    rounded(value / 100.0, 1) as f64 * 100.0
}

fn rounded(value: f64, scale: u64) -> u64 {
    // A half that binary floating point holds a hair too low is still a half.
    (value * scale as f64 + 0.5 + 1e-9) as u64
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_up_and_thousands_have_commas() {
        assert_eq!([number(0.5, 0), number(2.5, 0), number(1_440.0, 0)], ["1", "3", "1,440"]);
        assert_eq!([number(1.005, 2), number(1_234_567.891, 1), number(0.0, 2)], ["1.01", "1,234,567.9", "0.00"]);
        assert_eq!([about(7_482.0), about(14_920.5), about(14_950.0)], [7_500.0, 14_900.0, 15_000.0]);
        assert_eq!(percent(0.000_030, 4), "0.0030 %");
        assert_eq!([things(0, "run"), things(1, "run"), things(1_000, "run")], ["0 runs", "1 run", "1,000 runs"]);
        assert_eq!([gigabytes(2_000_000_000), gigabytes(1_500_000_000)], ["2 GB", "1.50 GB"]);
    }
}
