//! Canaries with a condition: which steps gateways measure, what is told to the machine, and that a canary whose condition is broken goes back at once.

use std::collections::HashMap;

use holdfast_decide::rollout::{Command, Event, Guard, SavedPin, Stage};
use holdfast_plane::Measuring;
use holdfast_types::Version;

use super::drive::Driver;
use super::forms::By;
use super::reports::measured;
use super::running::Running;
use super::sessions::Fleet;
use crate::guard::{Condition, Verdict};

/// Who has a canary go back whose condition is broken.
const AUTHOR: &str = "holdfast";

/// What a roll-out keeps of its condition.
#[derive(Default)]
pub(super) struct Guarded {
    condition: Option<Condition>,
    /// What was told last of a pin.
    told: HashMap<usize, (usize, Option<String>)>,
    /// Why it is to go back.
    pub(super) broken: Option<String>,
}

impl Running {
    fn guard(&self) -> Option<&Guard> {
        self.saved.as_ref()?.options.guard.as_ref()
    }

    /// The pins of which a share is on the new version, on their way there.
    fn shared(&self) -> impl Iterator<Item = (usize, &SavedPin)> {
        let canary = Stage::Canary.as_str();
        let pins = self.saved.iter().flat_map(|saved| saved.pins.iter().enumerate());
        pins.filter(move |(_, pin)| pin.stage == canary && !pin.back && pin.canary > 0)
    }

    /// What gateways are to measure.
    pub(super) fn measuring(&self) -> impl Iterator<Item = Measuring> {
        let pins = self.guard().into_iter().flat_map(|_| self.shared());
        pins.filter_map(|(ix, pin)| {
            let of = self.pins.get(ix)?;
            Some(Measuring {
                rollout: self.id(),
                pin: ix,
                step: pin.canary as usize,
                tenant: of.tenant.clone(),
                model: of.model.clone(),
                old: Version::parse(&pin.old.as_ref()?.version).ok()?,
                new: of.new.artifact.version.clone(),
            })
        })
    }

    /// Judges, and gives what is new of it. A condition that is broken once is so for good.
    pub(super) fn judged(&mut self, fleet: &Fleet) -> Vec<Event> {
        let Some(Guard { condition, samples }) = self.guard().cloned() else { return Vec::new() };
        if self.guarded.condition.is_none() {
            // It was read when it was given. If this release cannot any more, nothing is judged, and so nothing goes on.
            self.guarded.condition = Condition::read(&condition, samples).ok();
        }
        let seen = measured(fleet, self.id());
        let steps: Vec<(usize, usize)> = self.shared().map(|(ix, pin)| (ix, pin.canary as usize)).collect();
        let mut events = Vec::new();
        for (pin, step) in steps {
            let figures = seen.get(&(pin, step)).cloned().unwrap_or_default();
            let hold = match self.guarded.condition.as_ref().map(|condition| condition.judge(&figures[0], &figures[1]))
            {
                Some(Verdict::Holds) => None,
                Some(Verdict::Hold(words)) => Some(words),
                Some(Verdict::Broken(words)) => {
                    let of = self.pins.get(pin).map_or("", |pin| &*pin.name);
                    self.guarded.broken = Some(format!("canary of {of}: {words}"));
                    Some(words)
                }
                None => Some(format!("{condition} cannot be read by this release")),
            };
            let told = (step, hold.clone());
            if self.guarded.told.insert(pin, told.clone()) != Some(told) {
                events.push(Event::Judged { pin, step, hold });
            }
        }
        events
    }
}

impl Driver {
    /// Has a roll-out go back whose condition is broken, and says why. One that cannot just now is told again with the next word of a gateway.
    pub(super) fn abort_broken(&mut self, id: u64) {
        let Some(running) = self.running.get_mut(&id) else { return };
        let Some(words) = running.guarded.broken.take().filter(|_| running.meta.back.is_none()) else { return };
        self.parts.alarm(Some(id), words.clone());
        // It was retained, so nothing has to be loaded; if it has to, that is better than what is broken.
        self.order(id, Command::Revert { confirmed: true }, By { author: AUTHOR.to_owned(), reason: words });
    }
}
