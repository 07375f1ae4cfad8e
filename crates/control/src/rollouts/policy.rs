//! Which roll-outs there should be, from what is desired, what is in force, and what runs. Pure, and a function of how things are: whatever pin
//! is desired elsewhere than it is in force, and is on no way there, is to be planned.
//!
//! * A roll-out none of whose pins has flipped is aborted once one of them is desired elsewhere; the others go into the next one.
//! * While a pin's way is not past its activation, and others of the roll-out have flipped, a new wish for it waits.
//! * Back to what a roll-out still retains, all of it and nothing but it, is a revert of that roll-out: nothing is loaded. But with options of its
//!   own it is another roll-out, for which what is retained is there already. Another wish for all pins of a canary is a revert, too: a share of a
//!   version that nobody wants any more is not waited for. Pins that another change has moved have no say in either.
//! * What failed, was aborted or was reverted by somebody is not tried again before the pin is desired anew, or asked for again since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_decide::rollout::{SavedPin, Stage};
use holdfast_plane::Pending;

use super::forms::is_unsettled;

/// A roll-out that runs, as far as it matters here.
pub(super) struct Way<'a> {
    pub(super) id: u64,
    pub(super) names: Vec<&'a Arc<str>>,
    /// Parallel to the names. Empty: nothing is saved yet.
    pub(super) pins: &'a [SavedPin],
    /// Where each pin goes, before anything is saved.
    pub(super) new: Vec<&'a str>,
    /// Its abort was asked for.
    pub(super) replaced: bool,
    pub(super) forgiven: &'a BTreeSet<usize>,
    /// The revision of the last wish that it follows.
    pub(super) since: u64,
    /// The change that would have it go back says how to go about it: that is a way of its own.
    pub(super) own: bool,
}

/// What is desired and in force: the version of a pin.
pub(super) trait Pins {
    fn desired(&self, name: &str) -> Option<&str>;
    fn in_force(&self, name: &str) -> Option<&str>;
}

/// Why a pin is not on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// Where it was to go.
    pub(super) to: String,
    pub(super) words: String,
    /// Whose words.
    pub(super) rollout: u64,
    /// The revision of the last wish that it followed: it is not tried again without a later one.
    pub(super) since: u64,
}

/// Pins that are asked for again, and by which revision last.
pub(super) type Again = BTreeMap<Arc<str>, u64>;

/// Whether a pin is asked for again after this revision.
pub(super) fn is_asked(again: &Again, name: &str, since: u64) -> bool {
    again.get(name).is_some_and(|at| *at > since)
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) abort: BTreeSet<u64>,
    pub(super) revert: BTreeSet<u64>,
    pub(super) plan: Vec<Arc<str>>,
    /// Pins that wait, and for what.
    pub(super) waiting: BTreeMap<Arc<str>, String>,
    /// Pins, as their roll-outs count, that failed and are desired elsewhere now, or asked for again.
    pub(super) forgive: Vec<(u64, usize)>,
}

pub(super) fn wishes(
    pins: &impl Pins,
    pending: &BTreeMap<Arc<str>, Pending>,
    ways: &[Way<'_>],
    stuck: &BTreeMap<Arc<str>, Stuck>,
    again: &Again,
) -> Wishes {
    let mut wishes = Wishes::default();
    // Pins on a way, and where it leads; and those that failed on one that others still go.
    let (mut taken, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for way in ways {
        if way.goes_back(pins) {
            wishes.revert.insert(way.id);
            let own = way.names.iter().zip(way.pins).filter(|(_, pin)| !pin.overtaken);
            taken.extend(own.map(|(name, _)| ((*name).clone(), (way.id, None))));
        } else {
            way.look(pins, again, &mut wishes, &mut taken, &mut failed);
        }
    }
    for (name, wish) in pending {
        let to = wish.to.as_str();
        let held = failed.get(name).or_else(|| stuck.get(name));
        let held = held.filter(|s| s.to == to && !is_asked(again, name, s.since));
        match (taken.get(name), held) {
            (Some((_, None)), _) => {}
            (Some((_, Some(target))), _) if target == to => {}
            (Some((id, _)), _) => {
                wishes.waiting.insert(name.clone(), format!("waits for roll-out {id}, which moves the pin elsewhere"));
            }
            (None, Some(held)) => _ = wishes.waiting.insert(name.clone(), held.words.clone()),
            (None, None) => wishes.plan.push(name.clone()),
        }
    }
    wishes
}

type Taken = BTreeMap<Arc<str>, (u64, Option<String>)>;

impl Way<'_> {
    fn look(
        &self,
        pins: &impl Pins,
        again: &Again,
        wishes: &mut Wishes,
        taken: &mut Taken,
        failed: &mut BTreeMap<Arc<str>, Stuck>,
    ) {
        let active = self.pins.iter().any(|pin| pin.active);
        for (ix, name) in self.names.iter().enumerate() {
            let Some(target) = self.new.get(ix).copied() else { continue };
            let wanted = pins.desired(name) == Some(target);
            let Some(pin) = self.pins.get(ix) else {
                taken.insert((*name).clone(), (self.id, Some(target.to_owned())));
                if !wanted && !self.replaced {
                    wishes.abort.insert(self.id);
                }
                continue;
            };
            if !is_before_flip(pin) {
                // One that somebody has taken back stays back, whether or not that has ended.
                if (is_unsettled(pin) || pin.back) && !self.replaced && !self.forgiven.contains(&ix) {
                    if wanted && !is_asked(again, name, self.since) {
                        failed.insert((*name).clone(), stuck(self.id, self.since, pin));
                    } else {
                        wishes.forgive.push((self.id, ix));
                    }
                }
                continue;
            }
            let to = pin.old.as_ref().filter(|_| pin.back).map_or(target, |old| &old.version);
            taken.insert((*name).clone(), (self.id, Some(to.to_owned())));
            if !wanted && !active && !self.replaced {
                wishes.abort.insert(self.id);
            }
        }
    }

    /// Whether all of its pins are desired where it came from, or, those of a canary, elsewhere than where it goes.
    fn goes_back(&self, pins: &impl Pins) -> bool {
        let back = |name: &&Arc<str>, pin: &SavedPin| {
            let (desired, in_force) = (pins.desired(name), pins.in_force(name));
            let Some(old) = pin.old.as_ref().map(|side| side.version.as_str()) else { return false };
            let elsewhere = desired != Some(&pin.new.version);
            if !pin.active {
                return elsewhere;
            }
            if pin.back {
                return false;
            }
            let kept = matches!(Stage::parse(&pin.stage), Some(Stage::Draining | Stage::Retaining));
            let whole =
                kept && !self.own && pin.share == 100 && desired == Some(old) && in_force == Some(&pin.new.version);
            whole || (is_before_flip(pin) && elsewhere && in_force == Some(old))
        };
        // A pin that another change has moved is not this roll-out's any more.
        let own = || self.names.iter().zip(self.pins).filter(|(_, pin)| !pin.overtaken);
        own().any(|(_, pin)| pin.active) && own().all(|(name, pin)| back(name, pin))
    }
}

/// Whether the pin's next step may still be a flip.
pub(super) fn is_before_flip(pin: &SavedPin) -> bool {
    let stage = Stage::parse(&pin.stage);
    matches!(stage, Some(Stage::Warming | Stage::Shadowing | Stage::Ready | Stage::Flipping | Stage::Canary))
}

/// Why the pin is not where it was to go.
pub(super) fn stuck(id: u64, since: u64, pin: &SavedPin) -> Stuck {
    let what = match Stage::parse(&pin.stage) {
        Some(Stage::Failed) => "failed",
        Some(Stage::Aborted) => "was aborted",
        _ => "was reverted",
    };
    let words = pin.words.as_ref().map_or_else(String::new, |words| format!(": {words}"));
    Stuck { to: pin.new.version.clone(), words: format!("roll-out {id} {what}{words}"), rollout: id, since }
}

#[cfg(test)]
mod tests;
