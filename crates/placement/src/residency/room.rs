//! Room for a load: whether there is any, and what has to go for it (LOAD-2).
//!
//! Never evicted: what is in use, what is loading or not yet proven, what was just taken back into service, and in guaranteed mode the last
//! holder of a pinned version and whatever is wanted here, if the newcomer is not. A warm-up evicts nothing that is wanted here, unless its
//! version is served nowhere. Of two that pins are on their way to, the one with the lower place may take the other's room, whoever else holds either,
//! and never the other way round: places are one order, so nobody waits for who waits for him. Of the rest, quarantined copies go first, then what is not wanted here, then the least recently used.
//!
//! The thrash guard: for a version that was evicted from this replica and is wanted again within the window, nothing that arrived or was used
//! within the window is evicted. So a stable part of an active set that is too large is served, and the rest is shed.

use std::time::Duration;

use holdfast_types::Mono;

use super::Residency;
use super::effect::{Alarm, Effect};
use super::event::{Mode, ReplicaIx, Turn, VersionIx};
use super::state::{Cx, Entry, Phase, Replica};

/// What stands between a version and its load on a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It fits as things are.
    Free,
    /// It fits when these are gone.
    Evict(Vec<VersionIx>),
    /// Room is in the making already.
    Coming,
    /// It would fit if some things were not in use at this moment.
    InUse,
    /// The thrash guard holds what is there until this moment.
    Guarded(Mono),
    /// What is there may not be evicted for it.
    Protected,
    /// It is larger than the memory.
    TooLarge,
}

/// Whether one entry may go.
enum Verdict {
    Evictable,
    InUse,
    Guarded(Mono),
    Protected,
}

/// Who asks for room.
struct Newcomer {
    version: VersionIx,
    /// For a request, or a warm-up of something that nobody serves.
    urgent: bool,
    wanted: Option<Turn>,
    /// The thrash guard is on for it until then.
    guarded_until: Option<Mono>,
}

impl Residency {
    pub(super) fn plan_room(&self, cx: &Cx, replica: ReplicaIx, version: VersionIx, demand: bool) -> Room {
        let (Some(r), Some(info)) = (self.replicas.get(&replica), self.versions.get(&version)) else {
            return Room::Protected;
        };
        let (Some(memory), size) = (r.spec.memory.map(|m| m.0), info.size().0) else { return Room::Free };
        if size > memory {
            return Room::TooLarge;
        }
        let other = r.making.filter(|m| m.version != version);
        let reserved = other.and_then(|m| self.versions.get(&m.version)).map_or(0, |v| v.size().0);
        let (held, leaving) = (r.held().0, r.leaving());
        let free_with = |used: u64| used.saturating_add(reserved).saturating_add(size) <= memory;
        if free_with(held) {
            return Room::Free;
        }
        if other.is_some() || free_with(held.saturating_sub(leaving)) {
            return Room::Coming;
        }
        let need = held.saturating_sub(leaving).saturating_add(size).saturating_sub(memory);
        self.choose_victims(cx, replica, r, &self.newcomer(cx, replica, r, version, demand), need)
    }

    fn newcomer(&self, cx: &Cx, replica: ReplicaIx, r: &Replica, version: VersionIx, demand: bool) -> Newcomer {
        let guarded_until = self.history.get(&(replica, version)).map(|h| h.thrash_until).filter(|t| *t > cx.now);
        let wanted = r.wanted.get(&version).copied();
        Newcomer { version, urgent: demand || self.lasting_holders(version).next().is_none(), wanted, guarded_until }
    }

    fn choose_victims(&self, cx: &Cx, replica: ReplicaIx, r: &Replica, new: &Newcomer, need: u64) -> Room {
        // (quarantined first, unwanted first, least recent use), version, size
        let mut victims: Vec<((bool, bool, Mono), VersionIx, u64)> = Vec::new();
        let (mut sum, mut in_use, mut guarded) = (0u64, 0u64, 0u64);
        let mut guard_ends: Option<Mono> = None;
        for (version, entry) in &r.entries {
            match self.verdict(cx, replica, r, new, *version, entry) {
                Verdict::Evictable => {
                    let used = cx.usage.last_used(replica, *version).unwrap_or(Mono::ZERO).max(entry.arrived);
                    let healthy = entry.phase != Phase::Quarantined;
                    let wanted = r.wanted.contains_key(version) || r.kept.contains(version);
                    victims.push(((healthy, wanted, used), *version, entry.size.0));
                    sum = sum.saturating_add(entry.size.0);
                }
                Verdict::InUse => in_use = in_use.saturating_add(entry.size.0),
                Verdict::Guarded(until) => {
                    guarded = guarded.saturating_add(entry.size.0);
                    guard_ends = Some(guard_ends.map_or(until, |g| g.min(until)));
                }
                Verdict::Protected => {}
            }
        }
        if sum >= need {
            victims.sort_unstable();
            return Room::Evict(fewest(&victims, need));
        }
        let sum = sum.saturating_add(in_use);
        match guard_ends {
            _ if sum >= need => Room::InUse,
            Some(until) if sum.saturating_add(guarded) >= need => Room::Guarded(until),
            _ => Room::Protected,
        }
    }

    fn verdict(
        &self,
        cx: &Cx,
        replica: ReplicaIx,
        r: &Replica,
        new: &Newcomer,
        version: VersionIx,
        entry: &Entry,
    ) -> Verdict {
        if version == new.version || !matches!(entry.phase, Phase::Held | Phase::Quarantined) {
            return Verdict::Protected;
        }
        let wanted = r.wanted.contains_key(&version) || r.kept.contains(&version);
        let protected = match r.gives_way(version, new.wanted) {
            Some(gives_way) => !gives_way,
            None => {
                let guaranteed = r.spec.mode == Mode::Guaranteed;
                let last = guaranteed && ((wanted && new.wanted.is_none()) || self.last_holder(replica, version));
                last || (wanted && !new.urgent)
            }
        };
        if entry.phase == Phase::Held && protected {
            return Verdict::Protected;
        }
        let recent = |t: Mono| t.after(self.thrash_window(replica)) > cx.now;
        let used = cx.usage.last_used(replica, version);
        let active = entry.phase == Phase::Held && (recent(entry.arrived) || used.is_some_and(recent));
        if entry.keep_until > cx.now {
            return Verdict::Guarded(entry.keep_until);
        }
        if let Some(until) = new.guarded_until.filter(|_| active) {
            return Verdict::Guarded(until);
        }
        if cx.usage.in_flight(replica, version) > 0 { Verdict::InUse } else { Verdict::Evictable }
    }

    pub(super) fn thrash_window(&self, replica: ReplicaIx) -> Duration {
        self.replicas.get(&replica).and_then(|r| r.spec.thrash_window).unwrap_or(self.settings.thrash_window)
    }

    /// Raises the thrash guard and its alarm, if the version was evicted here within the window and is wanted again.
    pub(super) fn note_wanted(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let window = self.thrash_window(replica);
        let Some(past) = self.history.get_mut(&(replica, version)) else { return };
        let Some(evicted) = past.evicted_at.filter(|t| t.after(window) > cx.now) else { return };
        if past.thrash_until > cx.now {
            return;
        }
        past.thrash_until = cx.now.after(window);
        let (until, after) = (past.thrash_until, cx.now.since(evicted));
        self.look_again.insert(until);
        cx.out.push(Effect::Alarm(Alarm::Thrash { replica, version, after }));
    }

    /// Tells once that a version cannot be placed here.
    pub(super) fn note_no_room(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, room: &Room) {
        let sizes =
            (self.versions.get(&version).map(|v| v.size()), self.replicas.get(&replica).and_then(|r| r.spec.memory));
        let wanted = self.replicas.get(&replica).is_some_and(|r| r.wanted.contains_key(&version));
        let past = self.history.entry((replica, version)).or_default();
        match (room, sizes) {
            (Room::TooLarge, (Some(size), Some(memory))) if !past.too_large => {
                past.too_large = true;
                cx.out.push(Effect::Alarm(Alarm::DoesNotFit { replica, version, size, memory }));
            }
            (Room::Protected, _) if wanted && !past.no_room => {
                past.no_room = true;
                cx.out.push(Effect::Alarm(Alarm::WantedHasNoRoom { replica, version }));
            }
            _ => {}
        }
    }
}

impl Replica {
    /// Whether a version gives its room here to a newcomer because of their places among what comes. `None`: they are not both on their way, or have one
    /// place.
    pub(super) fn gives_way(&self, version: VersionIx, new: Option<Turn>) -> Option<bool> {
        match (self.wanted.get(&version), new) {
            (Some(Turn::Coming(held)), Some(Turn::Coming(new))) if *held != new && !self.kept.contains(&version) => {
                Some(*held != 0 && new < *held)
            }
            _ => None,
        }
    }
}

/// The victims in their order until there is room, without those that turn out not to be needed, the most recently used first.
fn fewest(victims: &[((bool, bool, Mono), VersionIx, u64)], need: u64) -> Vec<VersionIx> {
    let mut sum = 0u64;
    let mut chosen: Vec<(VersionIx, u64)> = Vec::new();
    for (_, version, size) in victims {
        if sum >= need {
            break;
        }
        sum = sum.saturating_add(*size);
        chosen.push((*version, *size));
    }
    for (version, size) in chosen.clone().into_iter().rev() {
        if sum.saturating_sub(size) >= need {
            sum = sum.saturating_sub(size);
            chosen.retain(|(v, _)| *v != version);
        }
    }
    chosen.into_iter().map(|(v, _)| v).collect()
}
