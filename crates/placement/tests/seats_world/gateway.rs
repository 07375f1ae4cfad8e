//! A gateway of the simulated fleet: its folder, and the process in it, if there is one.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_placement::seats::{Heard, Holder, Seat, Sit};
use holdfast_types::{GatewayName, Mono};

use super::{LOAD, Load, MAX_LOADS, SERVERS, Shape, name};

pub struct Gateway {
    number: usize,
    rate: u64,
    shape: Shape,
    home: u64,
    life: u64,
    /// On disk.
    promised: u64,
    dirty: bool,
    process: Option<Process>,
    pub paused: u64,
    pub asks_at: u64,
}

struct Process {
    holder: Holder,
    clean: bool,
    leaving: bool,
    /// Loads that it began.
    own: BTreeSet<u64>,
    /// Servers that were not looked at since the seating came.
    unseen: BTreeSet<usize>,
    /// Loads of others that were in flight when they were.
    linger: BTreeMap<usize, BTreeSet<u64>>,
    /// Until then loads of which no server tells may be in flight. By its own clock.
    hold: Mono,
}

impl Gateway {
    pub fn new(number: usize, rate: u64, shape: Shape, asks_at: u64) -> Self {
        let home = 1_000 + number as u64;
        Self { number, rate, shape, home, life: 0, promised: 0, dirty: false, process: None, paused: 0, asks_at }
    }

    fn clock(&self, now: u64) -> Mono {
        Mono(now * 1_000 * self.rate)
    }

    pub fn stands_still(&self, now: u64) -> bool {
        self.process.is_none() || self.paused > now
    }

    pub fn live(&mut self, _now: u64) {
        if self.process.is_some() {
            return;
        }
        self.life += 1;
        let peer = self.shape.peers.then(|| Box::from("peer"));
        let me = Seat { name: name(self.number), home: self.home, life: self.life, peer };
        let clean = !std::mem::replace(&mut self.dirty, true);
        self.process = Some(Process {
            holder: Holder::new(me, self.promised),
            clean,
            leaving: false,
            own: BTreeSet::new(),
            unseen: (0..SERVERS.len()).collect(),
            linger: BTreeMap::new(),
            hold: Mono::ZERO,
        });
    }

    pub fn die(&mut self) {
        self.process = None;
    }

    pub fn leave(&mut self) {
        if let Some(process) = &mut self.process {
            process.leaving = true;
            process.holder.leave();
        }
    }

    /// One that is leaving is started anew.
    pub fn stay(&mut self) {
        if self.process.as_ref().is_some_and(|process| process.leaving) {
            self.die();
        }
    }

    /// Another folder under the same name. Only of a process that is dead.
    pub fn lose_home(&mut self, home: u64) {
        if self.process.is_none() {
            (self.home, self.life, self.promised, self.dirty) = (1_000_000 + home, 0, 0, false);
        }
    }

    pub fn poll(&mut self, now: u64, server: usize, loads: &[Load]) {
        let (clock, lists) = (self.clock(now), self.shape.lists);
        let Some(process) = &mut self.process else { return };
        if !lists && clock < process.hold {
            return;
        }
        let there: BTreeSet<u64> =
            loads.iter().filter(|l| lists && l.server == server && l.ends > now).map(|l| l.id).collect();
        if process.unseen.remove(&server) {
            let foreign = there.iter().filter(|id| !process.own.contains(id)).copied().collect();
            process.linger.insert(server, foreign);
        } else if let Some(linger) = process.linger.get_mut(&server) {
            linger.retain(|id| there.contains(id));
        }
    }

    /// Whether it begins this load.
    pub fn begins(&mut self, now: u64, load: Load, loads: &[Load]) -> bool {
        let clock = self.clock(now);
        let Some(process) = &mut self.process else { return false };
        let running: BTreeSet<u64> = loads.iter().filter(|l| l.ends > now).map(|l| l.id).collect();
        process.own.retain(|id| running.contains(id));
        let seating = process.holder.seating();
        let owner = seating.owner(SERVERS[load.server]).is_some_and(|seat| seat == process.holder.me());
        if !process.holder.holds(clock) || !owner || process.unseen.contains(&load.server) {
            return false;
        }
        let here = loads.iter().filter(|l| l.server == load.server && process.own.contains(&l.id)).count();
        let linger = process.linger.get(&load.server).map_or(0, BTreeSet::len);
        let unseen = process.unseen.len() * MAX_LOADS;
        let all = process.own.len() + process.linger.values().map(BTreeSet::len).sum::<usize>() + unseen;
        let may = here + linger < MAX_LOADS && all < seating.share(&process.holder.me().name) as usize;
        if may {
            process.own.insert(load.id);
        }
        may
    }

    pub fn sits(&mut self, now: u64, loads: &[Load]) -> (u64, Sit, Mono) {
        let clock = self.clock(now);
        let promised = self.promised;
        let process = self.process.as_mut().unwrap_or_else(|| panic!("it lives"));
        let running = |id: &u64| loads.iter().any(|l| l.id == *id && l.ends > now);
        let drained = !process.own.iter().any(running) && clock >= process.hold;
        let sit = Sit {
            seat: process.holder.me().clone(),
            promised,
            drained,
            clean: process.clean,
            leaving: process.leaving,
        };
        if process.leaving && drained {
            // It has ended well: what it left is known.
            self.dirty = false;
            self.process = None;
        }
        (self.life, sit, clock)
    }

    pub fn voters(&self) -> Vec<(usize, u64)> {
        let Some(process) = &self.process else { return Vec::new() };
        let epoch = process.holder.seating().epoch;
        let number = |seat: &Seat| seat.name.as_str().trim_start_matches('g').parse().ok();
        process.holder.peers().filter_map(number).map(|to| (to, epoch)).collect()
    }

    pub fn vote(&self, now: u64, epoch: u64) -> Option<(GatewayName, u64, bool)> {
        let process = self.process.as_ref().filter(|_| !self.stands_still(now))?;
        Some((name(self.number), self.home, process.holder.votes_for(self.clock(now), epoch)))
    }

    pub fn hears(&mut self, now: u64, life: u64, heard: Heard) {
        let clock = self.clock(now);
        if self.stands_still(now) || life != self.life {
            return;
        }
        let Some(process) = &mut self.process else { return };
        let news = process.holder.hear(heard);
        if news.promised {
            self.promised = process.holder.promised();
        }
        if news.seated {
            process.unseen = (0..SERVERS.len()).collect();
            process.linger.clear();
            if process.holder.seating().unsure {
                // As long as a load may last, by a clock that is fast.
                process.hold = process.hold.max(clock.after(std::time::Duration::from_millis(LOAD * 5 / 4)));
            }
        }
    }

    /// The seating under which it may load, if it may.
    pub fn loads_under(&self, now: u64) -> Option<u64> {
        let process = self.process.as_ref()?;
        process.holder.holds(self.clock(now)).then(|| process.holder.seating().epoch)
    }

    pub fn state(&self, now: u64) -> String {
        let Some(process) = &self.process else { return "dead".to_owned() };
        let (holder, now) = (&process.holder, self.clock(now));
        let (epoch, promised, lease) = (holder.seating().epoch, holder.promised(), holder.lease());
        format!("life {} knows {epoch}, promised {promised}, holds {lease:?} at {now:?}", self.life)
    }
}
