//! From what is written down and seen to what is to be done: whatever is wanted and was not asked yet by this process, or not answered in time.

use std::collections::BTreeSet;

use holdfast_types::{ReplicaName, Revision};

use super::Rollout;
use super::effect::Effect;
use super::event::Proposal;
use super::plan::Artifact;
use super::state::{Ask, FlipState, Stage};

type Pair = (ReplicaName, Artifact);

impl Rollout {
    /// Only called when the record in the store is the record in memory.
    pub(super) fn emit(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.notes);
        let wanted = self.asks();
        let age = self.record.age;
        let known: BTreeSet<&Ask> = wanted.iter().collect();
        self.seen.asked.retain(|ask, _| known.contains(ask));
        for ask in &wanted {
            let asked = self.seen.asked.get(ask).copied();
            let again = asked.is_some_and(|at| repeats(ask) && age >= at.saturating_add(self.record.options.retry));
            if asked.is_some() && !again {
                continue;
            }
            if asked.is_none() && matches!(ask, Ask::Read(_)) {
                self.seen.read_from = self.seen.next_read;
            }
            self.seen.asked.insert(ask.clone(), age);
            let effect = self.effect(ask);
            out.push(effect);
        }
    }

    /// Everything that is wanted now, in the order in which it is to be done.
    fn asks(&self) -> Vec<Ask> {
        let mut asks = vec![Ask::Observe];
        let held = self.held();
        self.releases(&held, &mut asks);
        self.warms(&held, &mut asks);
        self.shadows(&mut asks);
        self.flip_asks(&mut asks);
        self.tells(&mut asks);
        asks.extend(self.collectable().into_iter().map(Ask::Collect));
        asks
    }

    /// Where this roll-out wants versions held, in the order of the pins.
    fn held(&self) -> Vec<Pair> {
        let sides = self.record.lanes.iter().flat_map(|l| l.wanted());
        let mut seen = BTreeSet::new();
        let pairs = sides.flat_map(|s| s.targets().map(|r| (r.clone(), s.artifact.clone())));
        pairs.filter(|pair| seen.insert(pair.clone())).collect()
    }

    fn releases(&self, held: &[Pair], asks: &mut Vec<Ask>) {
        let held: BTreeSet<&Pair> = held.iter().collect();
        let touched = self.record.lanes.iter().flat_map(|l| l.sides());
        let touched = touched.flat_map(|s| s.touched.iter().map(|r| (r.clone(), s.artifact.clone())));
        let gone: BTreeSet<Pair> = touched.filter(|pair| !held.contains(pair)).collect();
        asks.extend(gone.into_iter().map(|(r, a)| Ask::Release(r, a)));
    }

    /// Loads within their bounds, and proofs. What is held already is only told to be kept.
    fn warms(&self, held: &[Pair], asks: &mut Vec<Ask>) {
        let warm = |(r, a): &Pair| Ask::Warm(r.clone(), a.clone());
        let holding = |(r, a): &Pair| self.seen.holding(r, a);
        let loads = |pair: &&Pair| !holding(pair).is_some_and(|h| h.loaded);
        let open: Vec<&Pair> = held.iter().filter(loads).filter(|p| self.seen.asked.contains_key(&warm(p))).collect();
        let mut busy: BTreeSet<(&str, &str)> = open.iter().map(|p| place(p)).collect();
        let mut count = open.len();
        for pair in held {
            let is = holding(pair);
            if is.is_some_and(|h| h.loaded) || self.seen.asked.contains_key(&warm(pair)) {
                asks.push(warm(pair));
            } else if is.is_none_or(|h| h.retry_at <= self.record.age)
                && count < self.record.options.loads
                && busy.insert(place(pair))
            {
                count += 1;
                asks.push(warm(pair));
            }
            if is.is_some_and(|h| h.loaded && !h.proven) {
                asks.push(Ask::Verify(pair.0.clone(), pair.1.clone()));
            }
        }
    }

    fn shadows(&self, asks: &mut Vec<Ask>) {
        let Some(shadow) = self.record.options.shadow else { return };
        let lanes = self.record.lanes.iter().enumerate();
        asks.extend(lanes.map(|(pin, l)| Ask::Shadow(pin, if l.stage == Stage::Shadowing { shadow.share } else { 0 })));
    }

    fn flip_asks(&self, asks: &mut Vec<Ask>) {
        let Some(flip) = &self.record.flip else { return };
        match flip.state {
            FlipState::Reading => asks.push(Ask::Read(flip.step)),
            FlipState::Preparing if self.record.paused.is_some() => {}
            FlipState::Preparing => {
                let proposal = Proposal { step: flip.step, base: flip.base };
                // One that is ahead shows that the table was read too early.
                let gateways = self.seen.live().filter(|g| g.prepared != Some(proposal) && g.in_force <= flip.base);
                asks.extend(gateways.map(|g| Ask::Prepare(g.name.clone(), proposal)));
            }
            FlipState::Activating => asks.push(Ask::Activate(flip.step, self.record.version)),
        }
    }

    /// The latest flip, to live gateways that are behind it.
    fn tells(&self, asks: &mut Vec<Ask>) {
        let lanes = self.record.lanes.iter().filter(|l| l.active);
        let latest = lanes.map(|l| l.flipped).max().unwrap_or(Revision(0));
        if !self.ended() {
            asks.extend(self.seen.live().filter(|g| g.in_force < latest).map(|g| Ask::Tell(g.name.clone(), latest)));
        }
    }

    fn effect(&mut self, ask: &Ask) -> Effect {
        let term = self.record.term;
        match ask.clone() {
            Ask::Observe => Effect::Observe,
            Ask::Warm(replica, artifact) => Effect::Warm { replica, artifact },
            Ask::Verify(replica, artifact) => Effect::Verify { replica, artifact },
            Ask::Release(replica, artifact) => Effect::Release { replica, artifact },
            Ask::Shadow(pin, share) => Effect::Shadow { pin, share },
            Ask::Read(_) => {
                let read = self.seen.next_read;
                self.seen.next_read = read.wrapping_add(1);
                Effect::ReadTable { read }
            }
            Ask::Prepare(gateway, proposal) => Effect::Prepare { gateway, proposal, term, flips: self.flips() },
            Ask::Activate(step, version) => Effect::Activate {
                rollout: self.record.id,
                step,
                expected: self.record.flip.as_ref().map_or(Revision(0), |f| f.base),
                roster: self.seen.roster,
                version,
                term,
                flips: self.flips(),
            },
            Ask::Tell(gateway, revision) => Effect::Tell { gateway, revision },
            Ask::Collect(artifact) => Effect::Collect { artifact, version: self.record.version, term },
        }
    }
}

fn place(pair: &Pair) -> (&str, &str) {
    (pair.1.pool.as_str(), pair.0.as_str())
}

/// Asked again when it is not answered. A load has its own time, an activation is never repeated on a guess.
const fn repeats(ask: &Ask) -> bool {
    matches!(ask, Ask::Verify(..) | Ask::Read(_) | Ask::Prepare(..) | Ask::Tell(..) | Ask::Collect(_))
}
