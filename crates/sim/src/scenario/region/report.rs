//! What a run of the world `region` tells.

use super::{Earth, SECOND, WINDOW, Window};
use crate::scenario::{Report, Series};

impl Earth<'_> {
    pub(super) fn report(self, log: bool) -> Report {
        let lost_at = self.acts[0].0;
        let for_good = self.acts.last().map_or(lost_at, |act| act.0);
        let seconds = |ns: u64| ns as f64 / SECOND as f64;
        let counts = &self.counts;
        let of_all = |count: u64| count as f64 / counts.requests.max(1) as f64;
        let bears = (self.even() * self.set.get("origin_percent") * WINDOW) as f64 / 10_000.0;
        let mine = &self.windows[self.victim];
        let after = mine.get(self.set.count("lose_at_s") / 10..).unwrap_or_default();
        let origin = after.iter().map(|window| window.origin).max().unwrap_or(0);
        let whole = counts.whole_at.filter(|at| *at > for_good).map_or(0.0, |at| seconds(at - for_good));
        let figures = vec![
            ("out_after_s", counts.out_at.map_or(0.0, |at| seconds(at.saturating_sub(lost_at)))),
            ("last_failure_s", seconds(counts.last_failure)),
            ("failed", of_all(counts.failed)),
            ("outs", counts.outs as f64),
            ("other_outs", counts.other_outs as f64),
            ("crowded", of_all(counts.crowded)),
            ("cold", of_all(counts.cold)),
            ("origin_peak", origin as f64 / bears.max(1e-9)),
            ("jump", jump(after)),
            ("whole_s", whole),
            ("unseen_longest_s", seconds(self.sessions.unseen())),
            ("lost_writes", self.sessions.lost() as f64),
        ];
        let told = |(at, gone): &(u64, bool)| {
            format!("{:>8.3} s  region {} {}", seconds(*at), self.victim, if *gone { "goes" } else { "comes" })
        };
        Report {
            broken: self.broken.clone(),
            figures,
            series: self.series(),
            acts: self.acts.iter().map(told).collect(),
            log: if log { self.log.clone() } else { Vec::new() },
        }
    }

    fn series(&self) -> Vec<Series> {
        let end = self.set.count("seconds");
        let by_second = |name, value: &dyn Fn(usize) -> f64| {
            let values = (0..end).map(|second| value(second / usize::try_from(WINDOW).unwrap_or(1)));
            Series { name, values: values.collect() }
        };
        let per = 1.0 / WINDOW as f64;
        let others = |at: usize| {
            let others = (0..self.windows.len()).filter(|region| *region != self.victim);
            others.map(|region| self.windows[region][at].requests).max().unwrap_or(0) as f64 * per
        };
        vec![
            by_second("requests/s of the lost region", &|at| self.windows[self.victim][at].requests as f64 * per),
            by_second("of the busiest other", &others),
            by_second("origin reads/s of the lost one", &|at| self.windows[self.victim][at].origin as f64 * per),
            by_second("in vain/s", &|at| self.windows[self.victim][at].failed as f64 * per),
        ]
    }
}

/// See the figure: by whole minutes, for a window of ten seconds has too few requests of one region.
fn jump(windows: &[Window]) -> f64 {
    let minutes: Vec<f64> = windows
        .chunks_exact(6)
        .map(|minute| {
            let sum = |of: fn(&Window) -> u64| minute.iter().map(of).sum::<u64>() as f64;
            sum(|window| window.own_here) / sum(|window| window.own).max(1.0)
        })
        .collect();
    minutes.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}
