//! A run over time: lines of blocks in the terminal, and panels in an SVG picture.

use std::fmt::Write;

use holdfast_sim::scenario::Series;

/// Eighths of a line's height.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The most columns of a line.
const COLUMNS: usize = 72;

/// Values as at most so many means of neighbours.
fn columns(values: &[f64]) -> Vec<f64> {
    let part = values.len().div_ceil(COLUMNS).max(1);
    values.chunks(part).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

/// One line for each series.
pub fn lines(series: &[Series]) -> String {
    let wide = series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0);
    let line = |series: &Series| {
        let most = series.values.iter().copied().fold(0.0, f64::max);
        let height = |value: f64| if most > 0.0 { ((value / most * 8.0).round() as usize).min(8) } else { 0 };
        let drawn: String = columns(&series.values).into_iter().map(|value| BLOCKS[height(value)]).collect();
        format!("{:<wide$}  {drawn}  up to {most:.0}", series.name)
    };
    series.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One panel for each series, under one another.
pub fn svg(title: &str, series: &[Series]) -> String {
    const LEFT: f64 = 60.0;
    const WIDTH: f64 = 700.0;
    const HEIGHT: f64 = 90.0;
    const PANEL: f64 = 130.0;
    let height = 40.0 + PANEL * series.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"10\" y=\"18\" font-weight=\"bold\">{}</text>\n",
        super::escaped(title)
    );
    for (nth, series) in series.iter().enumerate() {
        let top = 50.0 + PANEL * nth as f64;
        let most = series.values.iter().copied().fold(0.0, f64::max);
        let scale = if most > 0.0 { HEIGHT / most } else { 0.0 };
        let step = WIDTH / series.values.len().saturating_sub(1).max(1) as f64;
        let points = series.values.iter().enumerate();
        let points: Vec<String> = points
            .map(|(at, value)| format!("{:.1},{:.1}", LEFT + step * at as f64, top + HEIGHT - value * scale))
            .collect();
        let (bottom, right) = (top + HEIGHT, LEFT + WIDTH);
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.0}\">{}</text>\n<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{most:.0}</text>\n\
             <line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#a0aec0\"/>\n\
             <text x=\"{right}\" y=\"{:.0}\" text-anchor=\"end\">{} s</text>\n\
             <polyline points=\"{}\" fill=\"none\" stroke=\"#2b6cb0\" stroke-width=\"1.5\"/>",
            top - 6.0,
            super::escaped(series.name),
            LEFT - 6.0,
            top + 10.0,
            bottom + 14.0,
            series.values.len(),
            points.join(" ")
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_drawn_to_its_scale() {
        let series = [Series { name: "a <b>", values: vec![0.0, 5.0, 10.0] }];
        assert_eq!(lines(&series), "a <b>   ▄█  up to 10");
        let svg = svg("t & u", &series);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("points=\"60.0,140.0 410.0,95.0 760.0,50.0\""), "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("t &amp; u"));
    }

    #[test]
    fn long_series_are_means_and_none_is_no_fault() {
        assert_eq!(columns(&[1.0; 200]).len(), 67);
        assert_eq!(lines(&[Series { name: "x", values: Vec::new() }]), "x    up to 0");
    }
}
