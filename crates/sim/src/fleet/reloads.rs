//! A load that is about to begin: the other gateways are told, so that they prove the new copy before they use it.

use std::collections::BTreeSet;

use holdfast_placement::residency::{Event, LoadError, Op};

use super::gateway::{Pair, Told};
use super::server::{Ask, Weights};
use super::world::{Ev, Process, World};
use super::{MS, SECOND};

/// How long a load waits for the answers.
const TELL: u64 = 300 * MS;
/// How often who gave no answer is told again, a second later each time.
const TIMES: u32 = 20;

/// A load that waits for the answers.
pub(super) struct Telling {
    pair: Pair,
    silent: BTreeSet<usize>,
    told: Vec<Process>,
}

impl World<'_> {
    pub(super) fn tells_of_load(&mut self, ix: usize, op: Op, pair: Pair) {
        let from = self.process_of(ix);
        let peers = self.gateways[ix].seat.holder.peers();
        let silent: BTreeSet<usize> =
            peers.filter_map(|seat| self.names.gateways.binary_search(&seat.name).ok()).collect();
        for other in silent.iter().copied().collect::<Vec<_>>() {
            self.calls(ix, other, Told::Reloads { from, op: Some(op), pair });
        }
        self.gateways[ix].company.telling.insert(op, Telling { pair, silent, told: Vec::new() });
        self.queue.put(self.now + TELL, Ev::Gateway { to: from, what: Told::TellOver(op) });
        self.begins(ix, op, false);
    }

    /// Another gateway is about to load a version.
    pub(super) fn is_told_of_load(&mut self, ix: usize, from: Process, op: Option<Op>, pair: Pair) {
        self.machine(ix, Event::Reloads { replica: pair.0, version: pair.1 });
        self.poll(ix, pair.0.0 as usize);
        if let Some(op) = op.filter(|_| !self.cut_peers(ix, from.ix)) {
            let by = self.process_of(ix);
            self.tell_gateway(from, Told::Knows { op, by });
        }
    }

    pub(super) fn knows_of_load(&mut self, ix: usize, op: Op, by: Process) {
        if let Some(telling) = self.gateways[ix].company.telling.get_mut(&op)
            && telling.silent.remove(&by.ix)
        {
            telling.told.push(by);
        }
        self.begins(ix, op, false);
    }

    /// The load begins when all know of it, or have had the time to.
    pub(super) fn begins(&mut self, ix: usize, op: Op, over: bool) {
        let telling = &mut self.gateways[ix].company.telling;
        if telling.get(&op).is_none_or(|t| !t.silent.is_empty() && !over) {
            return;
        }
        let Some(Telling { pair, silent, told }) = telling.remove(&op) else { return };
        let to = self.process_of(ix);
        for other in silent {
            let what = Told::TellAgain { other, pair, left: TIMES };
            self.queue.put(self.now + SECOND, Ev::Gateway { to, what });
        }
        // The machine decides by the time of its tick, which may be long over.
        if self.gateways[ix].machine.owns_at(self.local(ix), pair.0) {
            self.told_of.insert((to, op), told);
            return self.ask(ix, pair.0.0 as usize, Ask::Load { op, version: pair.1.0 });
        }
        let error = LoadError { text: "another gateway loads there now".to_owned(), permanent: false };
        self.machine(ix, Event::LoadDone { op, result: Err(error) });
    }

    pub(super) fn tells_again(&mut self, ix: usize, other: usize, pair: Pair, left: u32) {
        let name = &self.names.gateways[other];
        if left == 0 || self.gateways[ix].seat.holder.seating().seat(name).is_none() {
            return;
        }
        let from = self.process_of(ix);
        if self.cut_peers(ix, other) || !self.gateways[other].up {
            let what = Told::TellAgain { other, pair, left: left - 1 };
            return self.queue.put(self.now + SECOND, Ev::Gateway { to: from, what });
        }
        self.calls(ix, other, Told::Reloads { from, op: None, pair });
    }

    /// Which version has judged, by the weights. A copy that a gateway has proved, or of whose load it has been told, must be what it is called. Of a load
    /// of which it could not be told, in the place of a copy that it has proved and between two looks at the replica, it cannot know: that is counted.
    pub(super) fn judged_by(&mut self, ix: usize, place: Pair, weights: Weights) -> u32 {
        let version = place.1.0;
        if weights.right {
            return version;
        }
        let knows = self.copies.get(&weights.copy).is_some_and(|told| told.contains(&self.process_of(ix)));
        if knows || self.gateways[ix].proved.get(&place) == Some(&weights.copy) {
            return (version + 1) % self.setup.versions.max(1);
        }
        self.tally.unproved += 1;
        version
    }
}
