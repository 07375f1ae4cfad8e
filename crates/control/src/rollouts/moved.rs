//! Pins that another change has moved while a roll-out has a share of them in force, or waits for their turn: deleted, or deleted and made anew, which
//! is in force at once. The machine would find out when it reads the table for the pin's next step; it is told now, so that the pin is nobody's
//! meanwhile and what is desired of it goes its own way.

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{Event, PinView, Saved, SavedPin};
use holdfast_types::Version;
use serde_json::Value as Json;

use super::drive::Driver;
use super::policy::is_before_flip;
use super::running::Running;
use crate::desk::Truth;

/// A pin as it is in force.
pub(super) fn view(truth: &Truth, name: &str) -> PinView {
    PinView {
        version: truth.in_force.get(ResourceKind::Pin, name).and_then(|v| Version::parse(v.as_str()?).ok()),
        split: truth.in_force.get(ResourceKind::Split, name).and_then(|value| split(value)),
    }
}

/// A share of a pin's traffic that is in force.
fn split(value: &Json) -> Option<(Version, u8)> {
    let version = Version::parse(value.get("version")?.as_str()?).ok()?;
    Some((version, u8::try_from(value.get("percent")?.as_u64()?).ok()?))
}

impl Driver {
    /// Tells every roll-out of which something is in force, and some pin is not as it has left it.
    pub(super) fn tell_moved(&mut self) {
        let moved: Vec<u64> = self.running.iter().filter(|(_, r)| self.is_moved(r)).map(|(id, _)| *id).collect();
        for id in moved {
            let Some(running) = self.running.get(&id) else { continue };
            let pins = running.pins.iter().map(|pin| view(&self.truth, &pin.name)).collect();
            self.feed(id, vec![Event::InForce { revision: self.truth.head.in_force, pins }]);
        }
    }

    fn is_moved(&self, running: &Running) -> bool {
        let Some(saved) = &running.saved else { return false };
        let pins = saved.pins.iter().zip(&running.pins).enumerate();
        let mut rest = pins.filter(|(ix, (pin, _))| is_before_flip(pin) && !flips(saved, *ix));
        saved.pins.iter().any(|pin| pin.active)
            && rest.any(|(_, (pin, of))| !is_as_left(pin, &view(&self.truth, &of.name)))
    }
}

/// Whether the pin is part of the flip in progress: then a read of the table says what has become of it.
fn flips(saved: &Saved, pin: usize) -> bool {
    saved.flip.iter().flat_map(|flip| &flip.pins).any(|(ix, _)| *ix as usize == pin)
}

fn is_as_left(pin: &SavedPin, view: &PinView) -> bool {
    let version = view.version.as_ref().map(Version::as_str);
    let split = view.split.as_ref().map(|(version, percent)| (version.as_str(), *percent));
    let (old, new) = (pin.old.as_ref().map(|side| side.version.as_str()), pin.new.version.as_str());
    match pin.share {
        0 => version == old && split.is_none(),
        100.. => version == Some(new) && split.is_none(),
        share => version == old && split == Some((new, share)),
    }
}
