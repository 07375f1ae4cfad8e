//! One order over everything that pins are on their way to, and what waits for room because of it.
//!
//! Two roll-outs that each hold a replica's last room would wait for one another until their time is over, and so would two pins of one. So all that is
//! on its way has a place: the elder roll-out's first, in the order of its pins. A gateway gives the room of a higher place to a lower one, never the
//! other way round; so whatever has the lowest place gets all its rooms, flips, and the next one has its turn. What is part of a flip, in force, or
//! kept for a way back gives its room to none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_decide::rollout::{Artifact, SavedPin, Stage};
use holdfast_plane::Want;
use holdfast_types::ReplicaName;

use super::drive::Driver;
use super::running::{Pair, Pin, Running, Side};

impl Driver {
    /// What gateways should hold beside what the table in force says, each once.
    pub(super) fn wants(&self) -> Vec<Want> {
        let places = self.places_of();
        let pairs: BTreeSet<&Pair> = self.running.values().flat_map(Running::wanted).collect();
        let want = |(replica, artifact): &Pair| {
            let place = places.get(artifact).copied().unwrap_or_default();
            Want { replica: replica.clone(), artifact: artifact.clone(), place }
        };
        pairs.into_iter().map(want).collect()
    }

    /// The place of everything that is on its way and has not flipped.
    fn places_of(&self) -> BTreeMap<&Artifact, u32> {
        let settled: BTreeSet<&Artifact> = self.running.values().flat_map(Running::settled).collect();
        let mut places = BTreeMap::new();
        for side in self.running.values().flat_map(|running| &running.pins).map(|pin| &pin.new) {
            if !settled.contains(&side.artifact) {
                let next = u32::try_from(places.len()).unwrap_or(u32::MAX).saturating_add(1);
                places.entry(&side.artifact).or_insert(next);
            }
        }
        places
    }

    /// Pins that wait for room, and in which words.
    pub(super) fn without_room(&self) -> BTreeMap<Arc<str>, String> {
        let hinted = self.running.values().filter(|running| !running.hints.is_empty());
        let pins = hinted.flat_map(|running| running.pins.iter().enumerate().map(move |(ix, pin)| (running, ix, pin)));
        let words = |(running, ix, pin): (&Running, usize, &Pin)| {
            let words = self.truth.pending.contains_key(&pin.name).then(|| self.room_for(running, ix))??;
            Some((pin.name.clone(), format!("roll-out {} waits for room: {words}", running.id().0)))
        };
        pins.filter_map(words).collect()
    }

    /// Why a pin is not warm where its version has no room.
    pub(super) fn room_for(&self, running: &Running, pin: usize) -> Option<String> {
        let side = running.warming(pin)?;
        let ((replica, _), why) = side
            .order
            .iter()
            .find_map(|replica| running.hints.get_key_value(&(replica.clone(), side.artifact.clone())))?;
        let before = self.before(running, pin, replica, &side.artifact);
        Some(before.map_or_else(|| format!("{replica}: {why}"), |before| format!("{replica}: {why}; {before}")))
    }

    /// Who comes first on a replica.
    fn before(&self, running: &Running, pin: usize, replica: &ReplicaName, artifact: &Artifact) -> Option<String> {
        let own = running.id();
        let is_here = |of: &Running, side: &Side| {
            let pair = (replica.clone(), side.artifact.clone());
            side.artifact.pool == artifact.pool && side.artifact != *artifact && of.wants.contains(&pair)
        };
        let comes = |of: &Running, ix: usize| of.warming(ix).is_some_and(|side| is_here(of, side));
        let elder = self.running.values().take_while(|of| of.id() < own);
        if let Some(elder) = elder.clone().find(|of| (0..of.pins.len()).any(|ix| comes(of, ix))) {
            return Some(format!("roll-out {} comes first there", elder.id().0));
        }
        if (0..pin).any(|ix| comes(running, ix)) {
            return Some("an earlier pin of the roll-out comes first there".to_owned());
        }
        let keeps =
            |of: &&Running| of.id() != own && of.pins.iter().filter_map(|pin| pin.old.as_ref()).any(|s| is_here(of, s));
        self.running.values().find(keeps).map(|of| format!("roll-out {} keeps a version there", of.id().0))
    }
}

impl Running {
    /// Versions of pins that are part of a flip, or of which something is in force.
    fn settled(&self) -> impl Iterator<Item = &Artifact> {
        let pins = self.pins.iter().enumerate().filter(|(ix, _)| self.is_settled(*ix));
        pins.flat_map(|(_, pin)| pin.old.iter().chain([&pin.new])).map(|side| &side.artifact)
    }

    fn is_settled(&self, pin: usize) -> bool {
        let Some(saved) = &self.saved else { return false };
        let flips = saved.flip.iter().flat_map(|flip| &flip.pins).any(|(ix, _)| *ix as usize == pin);
        flips || saved.pins.get(pin).is_some_and(|pin| pin.active)
    }

    /// What the pin waits for to be warm, if it does.
    fn warming(&self, pin: usize) -> Option<&Side> {
        let (saved, of) = (self.saved.as_ref()?.pins.get(pin)?, self.pins.get(pin)?);
        let is_warming = |pin: &SavedPin| Stage::parse(&pin.stage) == Some(Stage::Warming);
        let side = if saved.back { of.old.as_ref()? } else { &of.new };
        is_warming(saved).then_some(side)
    }
}
