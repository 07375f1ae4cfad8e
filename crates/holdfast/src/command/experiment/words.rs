//! Numbers of a report, as people read them.

/// Four digits that count.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    let whole = if size >= 1.0 { size.log10().floor() as usize + 1 } else { 0 };
    let lead = if size < 1.0 { (-size.log10()).floor() as usize } else { 0 };
    format!("{value:.*}", (4 + lead).saturating_sub(whole))
}

/// With its sign.
pub fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}

/// A probability.
pub fn p(p: Option<f64>) -> String {
    match p {
        None => "-".to_owned(),
        Some(p) if p < 0.0001 => "below 0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
    }
}

/// A span of time, in its two largest units.
pub fn span(millis: f64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut left = (millis / 1_000.0).round() as u64;
    let mut told = Vec::new();
    for (unit, seconds) in UNITS {
        let count = left / seconds;
        left %= seconds;
        if count > 0 && told.len() < 2 {
            told.push(format!("{count}{unit}"));
        }
    }
    if told.is_empty() { "0s".to_owned() } else { told.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1.000"),
            (-12.3456, "-12.35"),
            (1_234.5, "1234"),
            (999_999.0, "999999"),
            (0.012_341, "0.01234"),
            (0.000_01, "1.000e-5"),
            (2e7, "2.000e7"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!((signed(0.5), signed(-0.5), signed(0.0)), ("+0.5000".into(), "-0.5000".into(), "0".into()));
        assert_eq!((p(None), p(Some(1e-9)), p(Some(0.5))), ("-".into(), "below 0.0001".into(), "0.5000".into()));
        assert_eq!((span(0.0), span(5_040_000.0), span(90_061_000.0)), ("0s".into(), "1h 24m".into(), "1d 1h".into()));
    }
}
