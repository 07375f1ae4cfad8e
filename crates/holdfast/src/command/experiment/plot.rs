//! The difference to the first arm over time, with its interval, as a picture that needs nothing beside itself.

use std::fmt::Write;

use holdfast_assign::stats::Look;

use super::words::signed;
use crate::command::plan::escaped;

/// One arm's looks, with their times.
pub struct Curve<'r> {
    /// The arm.
    pub name: &'r str,
    /// Times in milliseconds, and what was seen.
    pub looks: &'r [(u64, Look)],
}

const LEFT: f64 = 90.0;
const WIDTH: f64 = 660.0;
const HEIGHT: f64 = 180.0;
const PANEL: f64 = 240.0;

/// One panel for each curve, under one another.
pub fn svg(title: &str, curves: &[Curve<'_>], from: &str, to: &str) -> String {
    let height = 50.0 + PANEL * curves.len().max(1) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"10\" y=\"18\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (nth, curve) in curves.iter().enumerate() {
        let top = 60.0 + PANEL * nth as f64;
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">{}</text>", top - 8.0, escaped(curve.name));
        match curve.looks {
            [] => {
                let _ =
                    writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">too little to say anything</text>", top + HEIGHT / 2.0);
            }
            looks => panel(&mut out, looks, top, [from, to]),
        }
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, looks: &[(u64, Look)], top: f64, [from, to]: [&str; 2]) {
    let (first, last) = (looks.first().map_or(0, |l| l.0), looks.last().map_or(0, |l| l.0));
    let long = last.saturating_sub(first).max(1) as f64;
    // Zero is always seen.
    let ends = looks.iter().flat_map(|(_, look)| [look.low, look.high, look.difference]);
    let (low, high) = ends.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let scale = HEIGHT / (high - low).max(f64::MIN_POSITIVE);
    let x = |time: u64| LEFT + WIDTH * time.saturating_sub(first) as f64 / long;
    let y = |value: f64| top + (high - value) * scale;
    let line = |value: &dyn Fn(&Look) -> f64| {
        looks.iter().map(|(time, look)| format!("{:.1},{:.1}", x(*time), y(value(look)))).collect::<Vec<_>>()
    };
    let mut band = line(&|look| look.high);
    band.extend(line(&|look| look.low).into_iter().rev());
    let (right, bottom, zero) = (LEFT + WIDTH, top + HEIGHT, y(0.0));
    let _ = writeln!(
        out,
        "<polygon points=\"{}\" fill=\"#bee3f8\"/>\n<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{zero:.1}\" y2=\"{zero:.1}\" stroke=\"#c53030\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#2b6cb0\" stroke-width=\"1.5\"/>",
        band.join(" "),
        line(&|look| look.difference).join(" ")
    );
    for (value, at) in [(high, top + 10.0), (low, bottom)] {
        let _ = writeln!(out, "<text x=\"{}\" y=\"{at:.0}\" text-anchor=\"end\">{}</text>", LEFT - 6.0, signed(value));
    }
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{0:.0}\">{1}</text>\n<text x=\"{right}\" y=\"{0:.0}\" text-anchor=\"end\">{2}</text>",
        bottom + 16.0,
        escaped(from),
        escaped(to)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_its_interval_and_the_line_of_no_difference() {
        let look = |low, difference, high| Look { difference, p: 1.0, low, high };
        let looks = [(1_000, look(-2.0, 1.0, 4.0)), (3_000, look(-1.0, 1.0, 3.0))];
        let svg = svg("a <b>", &[Curve { name: "new & old", looks: &looks }], "then", "now");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("new &amp; old"));
        // 30 dots for one: the highest end is at the top, the lowest at the bottom.
        assert!(svg.contains("<polygon points=\"90.0,60.0 750.0,90.0 750.0,210.0 90.0,240.0\""), "{svg}");
        assert!(svg.contains("<polyline points=\"90.0,150.0 750.0,150.0\"") && svg.contains("y1=\"180.0\""), "{svg}");
    }

    #[test]
    fn too_little_is_said_to_be_so() {
        let svg = svg("t", &[Curve { name: "new", looks: &[] }], "", "");
        assert!(svg.contains("too little") && !svg.contains("polyline"));
    }
}
