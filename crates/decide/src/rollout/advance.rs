//! Moves each pin on as far as the record and what is seen allow.

use std::time::Duration;

use super::Rollout;
use super::effect::Alarm;
use super::plan::Shadow;
use super::state::{Ask, Lane, Stage, cut};

/// Steps of a pin that can follow one another without an event, generously.
const STEPS: usize = 32;

impl Rollout {
    pub(super) fn advance(&mut self) {
        self.expire_loads();
        // More rounds than any pin has steps; should it ever go round in circles, the next event goes on.
        for _ in 0..self.record.lanes.len() + STEPS {
            let mut changed = self.advance_flip();
            // A save would void the activation that is under way.
            if !self.activation_asked() {
                for pin in 0..self.record.lanes.len() {
                    changed |= self.advance_lane(pin);
                }
                changed |= self.begin_flip();
            }
            if !changed {
                break;
            }
        }
        self.touch();
    }

    /// Loads without an answer have failed.
    fn expire_loads(&mut self) {
        if self.record.paused.is_some() {
            return;
        }
        let (age, load) = (self.record.age, self.record.options.load);
        let asked = self.seen.asked.iter().filter_map(|(ask, at)| match ask {
            Ask::Warm(replica, artifact) if age >= at.saturating_add(load) => Some((replica.clone(), artifact.clone())),
            _ => None,
        });
        let over: Vec<_> = asked.filter(|(r, a)| !self.seen.holding(r, a).is_some_and(|h| h.loaded)).collect();
        for (replica, artifact) in over {
            self.load_failed(&replica, &artifact, format!("no answer to the load within {load:?}"), false);
        }
    }

    fn advance_lane(&mut self, pin: usize) -> bool {
        let Some(lane) = self.record.lanes.get(pin) else { return false };
        match lane.stage {
            Stage::Warming | Stage::Shadowing | Stage::Ready => self.before_flip(pin),
            Stage::Canary => self.canary(pin),
            Stage::Draining => self.drain(pin),
            Stage::Retaining => self.retain(pin),
            Stage::Collecting => self.collect(pin),
            _ => false,
        }
    }

    fn before_flip(&mut self, pin: usize) -> bool {
        let lane = &self.record.lanes[pin];
        let proven = self.seen.all_proven(lane.target());
        if let Some(words) = self.fatal_words(lane).filter(|_| lane.can_fail()) {
            return self.fail(pin, words);
        }
        match lane.stage {
            Stage::Warming if proven && self.record.paused.is_none() => {
                let shadow = self.record.options.shadow.is_some() && !lane.active && !lane.back;
                if shadow {
                    self.seen.shadow.remove(&pin);
                }
                self.enter(pin, if shadow { Stage::Shadowing } else { Stage::Ready })
            }
            Stage::Warming if !proven && self.late(lane.since, self.record.options.warm) => self.too_late(pin),
            Stage::Warming => false,
            _ if !proven => self.enter(pin, Stage::Warming),
            Stage::Shadowing => self.shadow(pin),
            _ => false,
        }
    }

    fn too_late(&mut self, pin: usize) -> bool {
        let lane = &self.record.lanes[pin];
        let side = lane.target();
        let missing = side.targets().filter(|r| !self.seen.proven(r, &side.artifact));
        let missing: Vec<String> = missing
            .map(|r| match self.seen.holding(r, &side.artifact) {
                Some(super::state::Holding { words: Some(words), .. }) => format!("{r} ({words})"),
                _ => r.to_string(),
            })
            .collect();
        let who = if missing.is_empty() { "any replica in service".to_owned() } else { missing.join(", ") };
        let words = format!("not ready in time: waited for {who}");
        if lane.can_fail() {
            return self.fail(pin, words);
        }
        self.late_alarm(pin, Alarm::Late { pin, words: cut(words) });
        false
    }

    /// Words for which the pin fails now.
    fn fatal_words(&self, lane: &Lane) -> Option<String> {
        let side = lane.target();
        side.targets().find_map(|replica| {
            let holding = self.seen.holding(replica, &side.artifact).filter(|h| h.fatal)?;
            Some(format!("{replica}: {}", holding.words.as_deref().unwrap_or_default()))
        })
    }

    fn shadow(&mut self, pin: usize) -> bool {
        let Some(shadow) = self.record.options.shadow else { return self.enter(pin, Stage::Ready) };
        let Shadow { compare, differ, at_least, at_most, .. } = shadow;
        let (compared, differed) = self.seen.shadow.get(&pin).copied().unwrap_or_default();
        let since = self.record.lanes[pin].since;
        if shadow.stops(compared, differed) {
            let words =
                format!("{differed} of {compared} copied requests were answered otherwise; {differ} of 1000 may be");
            return self.fail(pin, words);
        }
        if compared >= compare && self.late(since, at_least) {
            return self.enter(pin, Stage::Ready);
        }
        if self.late(since, at_most) {
            return self.fail(pin, format!("only {compared} of {compare} answers were compared in time"));
        }
        false
    }

    fn canary(&mut self, pin: usize) -> bool {
        let lane = &self.record.lanes[pin];
        let done = lane.canary.checked_sub(1).and_then(|ix| self.record.options.canary.get(ix));
        let waited = self.late(lane.since, done.map_or(Duration::ZERO, |s| s.wait));
        let passes = lane.back || self.held_by(pin, lane).is_none();
        waited && passes && self.seen.in_force(lane.flipped) && self.enter(pin, Stage::Ready)
    }

    /// Why a canary's next step may not come, however long it has waited. No word of its condition is no good news.
    pub(super) fn held_by(&self, pin: usize, lane: &Lane) -> Option<String> {
        self.record.options.guard.as_ref()?;
        match self.seen.judged.get(&pin) {
            Some((step, hold)) if *step == lane.canary => hold.clone(),
            _ => Some("its condition was not judged yet".to_owned()),
        }
    }

    fn drain(&mut self, pin: usize) -> bool {
        let lane = &self.record.lanes[pin];
        if self.seen.drained(lane.flipped) {
            return self.enter(pin, if lane.off().is_some() { Stage::Retaining } else { Stage::Done });
        }
        if self.late(lane.since, self.record.options.drain) {
            self.late_alarm(pin, Alarm::Draining { pin });
        }
        false
    }

    /// The time of retention runs through pauses.
    fn retain(&mut self, pin: usize) -> bool {
        let lane = &self.record.lanes[pin];
        let over = self.record.age >= lane.since.saturating_add(self.record.options.retain);
        if !over || self.record.paused.is_some() || !self.seen.drained(lane.flipped) {
            return false;
        }
        // Who needs the version is asked anew: the answer then knows that it is no rollback target any more.
        self.seen.claims = None;
        self.seen.asked.remove(&Ask::Observe);
        self.enter(pin, Stage::Collecting)
    }

    /// The pin ends with the words of whoever refused it. Of an atomic change, all that have not flipped end.
    pub(super) fn fail(&mut self, pin: usize, words: String) -> bool {
        if self.flips_pin(pin) {
            self.abandon_flip();
        }
        let (age, atomic) = (self.record.age, self.record.options.atomic);
        let words = cut(words);
        let culprit = self.record.lanes.get(pin).map(|l| format!("{} of {}", l.model, l.tenant)).unwrap_or_default();
        for (ix, lane) in self.record.lanes.iter_mut().enumerate() {
            let with = atomic && !lane.active && !lane.stage.is_final();
            if ix == pin || with {
                let own = ix == pin;
                lane.words = Some(if own { words.clone() } else { cut(format!("with {culprit}: {words}")) });
                lane.enter(Stage::Failed, age);
            }
        }
        self.dirty = true;
        true
    }

    fn enter(&mut self, pin: usize, stage: Stage) -> bool {
        let age = self.record.age;
        if let Some(lane) = self.record.lanes.get_mut(pin) {
            lane.enter(stage, age);
            self.dirty = true;
        }
        true
    }

    /// Whether a time is over. Deadlines stand still in a pause.
    pub(super) fn late(&self, since: Duration, span: Duration) -> bool {
        self.record.paused.is_none() && self.record.age >= since.saturating_add(span)
    }

    /// Once for each stage.
    pub(super) fn late_alarm(&mut self, pin: usize, alarm: Alarm) {
        let Some(since) = self.record.lanes.get(pin).map(|l| l.since) else { return };
        if self.seen.alarmed.insert(pin, since) != Some(since) {
            self.alarm(alarm);
        }
    }

    /// Notes where versions are about to be asked for, so that a later process knows what to release.
    fn touch(&mut self) {
        for lane in &mut self.record.lanes {
            let wanted: Vec<_> = lane.wanted().map(|s| s.artifact.clone()).collect();
            for side in lane.sides_mut().filter(|s| wanted.contains(&s.artifact)) {
                let new: Vec<_> = side.targets().filter(|r| !side.touched.contains(*r)).cloned().collect();
                self.dirty |= !new.is_empty();
                side.touched.extend(new);
            }
        }
    }

    /// When a tick may have something to do, in ages.
    pub(super) fn deadlines(&self) -> Vec<Duration> {
        let options = &self.record.options;
        let mut all: Vec<Duration> = Vec::new();
        let mut add = |since: Duration, span: Duration| all.push(since.saturating_add(span));
        for lane in &self.record.lanes {
            match lane.stage {
                Stage::Warming => add(lane.since, options.warm),
                Stage::Shadowing => {
                    let times = options.shadow.iter().flat_map(|s| [s.at_least, s.at_most]);
                    times.for_each(|t| add(lane.since, t));
                }
                Stage::Canary => options.canary.iter().for_each(|s| add(lane.since, s.wait)),
                Stage::Draining => add(lane.since, options.drain),
                Stage::Retaining => add(lane.since, options.retain),
                _ => {}
            }
        }
        self.record.flip.iter().for_each(|f| add(f.since, options.prepare));
        for (ask, at) in &self.seen.asked {
            match ask {
                Ask::Warm(..) => add(*at, options.load),
                Ask::Observe | Ask::Release(..) | Ask::Shadow(..) => {}
                _ => add(*at, options.retry),
            }
        }
        all.extend(self.seen.replicas.values().map(|h| h.retry_at));
        all.extend([self.seen.flip_after, self.save_after]);
        all.extend(self.checkpoint());
        all
    }
}
