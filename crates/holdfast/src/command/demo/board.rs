//! What is seen while a scene runs: on a terminal a table that is drawn over itself, elsewhere one line a second.

use std::time::{Duration, Instant};

use super::tally::Tally;
use crate::output;

/// Time between two drawings on a terminal.
const REDRAW: Duration = Duration::from_millis(250);
/// Time between two lines elsewhere.
const LINE: Duration = Duration::from_secs(1);

/// See the module.
pub struct Board {
    /// What it shows.
    pub tally: Tally,
    terminal: bool,
    begun: Instant,
    next: Instant,
    drawn: usize,
}

impl Board {
    /// Nothing is drawn yet.
    pub fn new(tally: Tally) -> Self {
        let now = Instant::now();
        Self { tally, terminal: output::is_terminal(), begun: now, next: now, drawn: 0 }
    }

    /// Shows what goes on for this long.
    pub async fn watch(&mut self, length: Duration) {
        let until = Instant::now() + length;
        let pause = if self.terminal { REDRAW } else { LINE };
        while Instant::now() < until {
            if Instant::now() >= self.next {
                self.next = Instant::now() + pause;
                self.draw();
            }
            let next = self.next.min(until);
            tokio::time::sleep(next.saturating_duration_since(Instant::now())).await;
        }
    }

    fn draw(&mut self) {
        if !self.terminal {
            output::say(&format!("   {:>3} s  {}", self.begun.elapsed().as_secs(), self.tally.line()));
            return;
        }
        let text = format!("{}\n{}", self.tally.table(), self.tally.line());
        // Up to where the last drawing began, and clear from there.
        let up = if self.drawn > 0 { format!("\x1b[{}F\x1b[J", self.drawn) } else { String::new() };
        self.drawn = text.lines().count();
        output::say(&format!("{up}{text}"));
    }

    /// Leaves what is drawn where it is; the next drawing begins below.
    pub fn clear(&mut self) {
        if self.terminal && self.drawn == 0 {
            self.draw();
        }
        self.drawn = 0;
    }
}
