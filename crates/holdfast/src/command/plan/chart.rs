//! Bars, in the terminal and as an SVG picture. No library: a row of rectangles needs none.

use std::fmt::Write;

/// Cells of the longest bar.
const CELLS: f64 = 40.0;
/// Eighths of a cell.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Before it.
    pub label: String,
    /// Its length; not negative.
    pub value: f64,
    /// Behind it.
    pub told: String,
}

/// Bars over one another.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Above them.
    pub title: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
    /// A line across them: what it is, and where.
    pub limit: Option<(String, f64)>,
}

impl Chart {
    /// An empty chart.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a bar.
    pub fn bar(&mut self, label: impl Into<String>, value: f64, told: impl Into<String>) {
        self.bars.push(Bar { label: label.into(), value, told: told.into() });
    }

    fn longest(&self) -> f64 {
        let limit = self.limit.as_ref().map_or(0.0, |l| l.1);
        self.bars.iter().map(|b| b.value).fold(limit, f64::max)
    }

    /// For the terminal.
    pub fn bars_of_text(&self) -> String {
        let wide = |text: &dyn Fn(&Bar) -> usize| self.bars.iter().map(text).max().unwrap_or(0);
        let (labels, told) = (wide(&|b| b.label.chars().count()), wide(&|b| b.told.chars().count()));
        let mut out = self.title.clone();
        if let Some((name, _)) = &self.limit {
            let _ = write!(out, " (│ {name})");
        }
        for bar in &self.bars {
            let drawn = self.drawn(bar.value);
            let line = format!("{:<labels$}  {:>told$}  {drawn}", bar.label, bar.told);
            let _ = write!(out, "\n{}", line.trim_end());
        }
        out
    }

    /// One bar in cells, with the limit's mark where it lies.
    fn drawn(&self, value: f64) -> String {
        let longest = self.longest();
        if longest <= 0.0 {
            return String::new();
        }
        let eighths = (value / longest * CELLS * 8.0).round() as usize;
        let mut cells: Vec<&str> = vec!["█"; eighths / 8];
        cells.extend(PARTS.get(eighths % 8).filter(|part| !part.is_empty()));
        if let Some((_, limit)) = &self.limit {
            let at = ((limit / longest * CELLS) as usize).min(CELLS as usize - 1);
            cells.resize(cells.len().max(at + 1), " ");
            if let Some(cell) = cells.get_mut(at) {
                *cell = "│";
            }
        }
        cells.concat()
    }

    /// As a picture that needs nothing beside itself.
    pub fn svg(&self) -> String {
        const ROW: usize = 22;
        const LEFT: f64 = 220.0;
        const WIDTH: f64 = 420.0;
        let height = ROW * (self.bars.len() + 2);
        let scale = if self.longest() > 0.0 { WIDTH / self.longest() } else { 0.0 };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"10\" y=\"18\" font-weight=\"bold\">{}</text>\n",
            escaped(&self.title)
        );
        for (index, bar) in self.bars.iter().enumerate() {
            let (top, length) = (ROW * (index + 1) + 6, bar.value * scale);
            let text = top + 12;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{}</text>\
                 <rect x=\"{LEFT}\" y=\"{top}\" width=\"{length:.1}\" height=\"16\" fill=\"#2b6cb0\"/>\
                 <text x=\"{:.1}\" y=\"{text}\">{}</text>",
                LEFT - 8.0,
                escaped(&bar.label),
                LEFT + length + 6.0,
                escaped(&bar.told)
            );
        }
        if let Some((name, value)) = &self.limit {
            let at = LEFT + value * scale;
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"24\" y2=\"{}\" stroke=\"#c53030\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#c53030\">{}</text>",
                height - 18,
                height - 5,
                escaped(name)
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

/// A text within a picture.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let mut chart = Chart::new("Load <now>");
        chart.bar("ring", 10.0, "10");
        chart.bar("modulo", 15.0, "15");
        chart.bar("none", 0.0, "0");
        chart.limit = Some(("ceiling".to_owned(), 20.0));
        chart
    }

    #[test]
    fn lengths_are_in_proportion_and_the_limit_is_marked() {
        let text = chart().bars_of_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Load <now> (│ ceiling)");
        assert_eq!(lines[1].matches('█').count(), 20);
        assert_eq!(lines[2].matches('█').count(), 30);
        assert!(lines[1..].iter().all(|line| line.ends_with('│')), "{text}");
        assert_eq!(Chart::new("empty").bars_of_text(), "empty");
    }

    #[test]
    fn a_picture_is_escaped_and_whole() {
        let svg = chart().svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("Load &lt;now&gt;") && !svg.contains("<now>"));
        assert_eq!(svg.matches("<rect x=").count(), 3);
        assert!(svg.contains("width=\"210.0\"") && svg.contains("width=\"315.0\""), "{svg}");
    }
}
