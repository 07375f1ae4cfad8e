//! Versions that have left the catalogue while a roll-out retains them: a version that is not desired goes with the flip that moves the last pin away
//! from it, and what is in no table cannot be held, nor gone back to. Its retention ends at once, in words; a revert to it is refused.

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{Command, Event, Refusal, SavedPin, Stage};

use super::drive::Driver;
use super::running::Running;

/// Whether the version that the pin left is kept for a revert.
fn is_kept(pin: &SavedPin) -> bool {
    pin.active
        && !pin.back
        && !pin.overtaken
        && matches!(Stage::parse(&pin.stage), Some(Stage::Draining | Stage::Retaining))
}

impl Driver {
    /// Ends the retention of what is gone.
    pub(super) fn end_retentions(&mut self) {
        let gone = |running: &Running| !self.gone(running, is_kept).is_empty();
        let ids: Vec<u64> = self.running.iter().filter(|(_, r)| r.rests() && gone(r)).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(running) = self.running.get(&id) else { continue };
            let pins = self.gone(running, is_kept);
            let (now, term) = (self.now(), self.term);
            let Some(running) = self.running.get_mut(&id) else { continue };
            match running.let_go(now, term, &pins) {
                Ok(()) => self.feed(id, vec![Event::Tick]),
                Err(error) => tracing::warn!(rollout = id, %error, "a retention could not be ended"),
            }
        }
    }

    /// Why a command cannot be carried out whatever the roll-out says.
    pub(super) fn refuses(&self, running: &Running, command: Command) -> Option<Refusal> {
        let returns = |pin: &SavedPin| pin.active && !pin.overtaken;
        let is_revert = matches!(command, Command::Revert { .. });
        (is_revert && !self.gone(running, returns).is_empty()).then_some(Refusal::NoTarget)
    }

    /// Those of some pins whose old version is in no table.
    fn gone(&self, running: &Running, of: impl Fn(&SavedPin) -> bool) -> Vec<usize> {
        let is_gone = |pin: &SavedPin| {
            let Some(old) = pin.old.as_ref() else { return false };
            let name = format!("{}/{}", pin.model, old.version);
            self.truth.in_force.get(ResourceKind::Version, &name).is_none()
        };
        let pins = running.saved.iter().flat_map(|saved| &saved.pins).enumerate();
        pins.filter(|(_, pin)| of(pin) && is_gone(pin)).map(|(ix, _)| ix).collect()
    }
}
