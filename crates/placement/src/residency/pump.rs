//! Starts what can be started, within the bounds (LOAD-1): room in the making first, then loads for requests, oldest first, then warm-ups,
//! the replica that warmed longest ago first. After [`super::Settings::warm_every`] loads for requests a warm-up that can start goes first, so
//! that warm-ups are never starved.

use std::time::Duration;

use super::Residency;
use super::effect::Outcome;
use super::event::{LoadError, ReplicaIx, Turn, VersionIx};
use super::room::Room;
use super::state::{Aim, Cx, Making, Phase};

/// How soon to look again at a warm-up that is blocked by use.
const RECHECK_WARM: Duration = Duration::from_secs(1);

impl Residency {
    pub(super) fn pump(&mut self, cx: &mut Cx) {
        self.unload_drained(cx);
        let making: Vec<ReplicaIx> =
            self.replicas.iter().filter(|(_, r)| r.making.is_some()).map(|(ix, _)| *ix).collect();
        for replica in making {
            self.settle(cx, replica);
        }
        self.release_orphans(cx);
        self.sweep_demands(cx);
        while self.fleet_free() {
            let warm_first = self.streak >= self.settings.warm_every;
            let started = match warm_first {
                true => self.start_warm_up(cx) || self.start_demand(cx),
                false => self.start_demand(cx) || self.start_warm_up(cx),
            };
            if !started {
                break;
            }
        }
        self.unload_drained(cx);
    }

    /// Places one demand that is new, without looking at all others.
    pub(super) fn advance(&mut self, cx: &mut Cx, id: u64) {
        if self.streak >= self.settings.warm_every && self.fleet_free() {
            self.start_warm_up(cx);
        }
        self.try_start(cx, id);
    }

    /// Ends demands that have become hopeless, and those that nobody asks for any more.
    fn sweep_demands(&mut self, cx: &mut Cx) {
        let ids: Vec<u64> = self.demands.keys().copied().collect();
        for id in ids {
            if self.drop_if_idle(id, cx.now) {
                continue;
            }
            let Some(demand) = self.demands.get(&id) else { continue };
            let view = self.view(cx, Some(id), demand.version, &demand.candidates);
            if let Some(replica) = view.ready {
                self.end_demand(cx, id, &Outcome::Ready(replica));
            } else if view.hopeless().is_some() {
                let outcome = self.hopeless_outcome(&view, demand.version);
                match view.failing {
                    Some(_) => self.send_away(cx, id, &outcome),
                    None => self.end_demand(cx, id, &outcome),
                }
            } else if view.blocked && view.coming.is_none() {
                self.recheck_soon(cx.now);
            }
        }
    }

    /// Starts one load for a request: those with waiters first, each group oldest first.
    fn start_demand(&mut self, cx: &mut Cx) -> bool {
        let waited = self.demands.iter().filter(|(_, d)| !d.waiters.is_empty()).map(|(id, _)| *id);
        let kept = self.demands.iter().filter(|(_, d)| d.waiters.is_empty()).map(|(id, _)| *id);
        let ids: Vec<u64> = waited.chain(kept).collect();
        ids.into_iter().any(|id| self.try_start(cx, id))
    }

    fn try_start(&mut self, cx: &mut Cx, id: u64) -> bool {
        let Some(demand) = self.demands.get(&id) else { return false };
        if self.on_its_way(demand.version, &demand.candidates) {
            return false;
        }
        let (version, candidates) = (demand.version, demand.candidates.clone());
        for replica in candidates.iter().copied() {
            self.note_wanted(cx, replica, version);
            let room = self.plan_room(cx, replica, version, true);
            if matches!(room, Room::TooLarge) {
                self.note_no_room(cx, replica, version, &room);
            }
        }
        let Some((replica, victims, _)) = self.view(cx, Some(id), version, &candidates).start else { return false };
        self.begin(cx, replica, version, &victims, true);
        true
    }

    /// Begins a load, or to make room for it.
    pub(super) fn begin(
        &mut self,
        cx: &mut Cx,
        replica: ReplicaIx,
        version: VersionIx,
        victims: &[VersionIx],
        demand: bool,
    ) {
        if victims.is_empty() {
            return self.start_load(cx, replica, version, demand);
        }
        let until = cx.now.after(self.settings.room_timeout);
        for victim in victims {
            self.hide(cx, replica, *victim, Aim::Room(version));
        }
        if let Some(r) = self.replicas.get_mut(&replica) {
            r.making = Some(Making { version, demand, until });
        }
    }

    fn start_warm_up(&mut self, cx: &mut Cx) -> bool {
        let mut turn: Vec<(u64, ReplicaIx)> = self
            .replicas
            .iter()
            .filter(|(ix, r)| r.can_load() && self.slot_free(**ix) && !r.wanted.is_empty())
            .map(|(ix, r)| (r.last_warm, *ix))
            .collect();
        turn.sort_unstable();
        turn.into_iter().any(|(_, replica)| self.warm_up(cx, replica))
    }

    /// Begins one warm-up on the replica: by its turn, and of one turn what is served nowhere first.
    fn warm_up(&mut self, cx: &mut Cx, replica: ReplicaIx) -> bool {
        let Some(r) = self.replicas.get(&replica) else { return false };
        let waits = |v: &VersionIx| self.history.get(&(replica, *v)).is_some_and(|h| h.retry_at > cx.now);
        let missing = r.wanted.iter().filter(|(v, _)| !r.entries.contains_key(v) && !waits(v));
        let mut missing: Vec<(Turn, usize, VersionIx)> =
            missing.map(|(v, turn)| (*turn, self.lasting_holders(*v).count(), *v)).collect();
        missing.sort_unstable();
        for (.., version) in missing {
            self.note_wanted(cx, replica, version);
            match self.plan_room(cx, replica, version, false) {
                Room::Free => self.begin(cx, replica, version, &[], false),
                Room::Evict(victims) => self.begin(cx, replica, version, &victims, false),
                Room::InUse | Room::Guarded(_) => {
                    self.recheck_at(cx.now.after(RECHECK_WARM));
                    continue;
                }
                room @ (Room::TooLarge | Room::Protected) => {
                    self.note_no_room(cx, replica, version, &room);
                    continue;
                }
                Room::Coming => continue,
            }
            return true;
        }
        false
    }

    /// Carries on with room in the making: the load starts, more is hidden, or it is given up.
    fn settle(&mut self, cx: &mut Cx, replica: ReplicaIx) {
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        let Some(making) = r.making.take() else { return };
        let can_load = r.can_load();
        let can_load = can_load && self.owns(replica);
        let Some(r) = self.replicas.get(&replica) else { return };
        let arrived = r.entries.contains_key(&making.version);
        let wanted = r.wanted.contains_key(&making.version);
        let asked = self.demands_for(making.version).into_iter().filter_map(|id| self.demands.get(&id));
        let asked = asked.into_iter().any(|d| d.candidates.contains(&replica));
        // A poll may have found it here meanwhile. A load would overwrite that entry, and with it the fact that it is shown.
        if arrived || !(asked || wanted) || !can_load {
            return self.give_up_room(cx, replica, making.version);
        }
        let room = self.plan_room(cx, replica, making.version, making.demand || asked);
        if room == Room::Free && self.fleet_free() && self.loads_on(replica) < self.max_loads(replica) {
            return self.start_load(cx, replica, making.version, making.demand);
        }
        if cx.now >= making.until {
            self.give_up_room(cx, replica, making.version);
            let text = "no room could be made in time".to_owned();
            return self.load_failed(cx, replica, making.version, LoadError { text, permanent: false });
        }
        match room {
            Room::Free | Room::Coming => {}
            Room::Evict(more) => {
                for victim in more {
                    self.hide(cx, replica, victim, Aim::Room(making.version));
                }
            }
            Room::InUse => self.recheck_soon(cx.now),
            Room::Guarded(_) | Room::Protected | Room::TooLarge => {
                return self.give_up_room(cx, replica, making.version);
            }
        }
        if let Some(r) = self.replicas.get_mut(&replica) {
            r.making = Some(making);
        }
    }

    fn max_loads(&self, replica: ReplicaIx) -> u32 {
        self.replicas.get(&replica).map_or(0, |r| r.spec.max_loads)
    }

    /// Takes what hides for a version back into service.
    fn give_up_room(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let hiding = self.hiding.range((replica, VersionIx(0))..=(replica, VersionIx(u32::MAX)));
        let victims: Vec<VersionIx> = hiding.map(|(_, v)| *v).collect();
        for victim in victims {
            let aim = self.entry_mut(replica, victim).map(|e| e.phase);
            if aim == Some(Phase::Hiding(Aim::Room(version))) {
                self.rescue(cx, replica, victim);
            }
        }
    }

    /// Takes back what hides for room that nobody makes any more.
    fn release_orphans(&mut self, cx: &mut Cx) {
        let hiding: Vec<(ReplicaIx, VersionIx)> = self.hiding.iter().copied().collect();
        for (replica, victim) in hiding {
            let Some(r) = self.replicas.get(&replica) else { continue };
            let making = r.making.map(|m| m.version);
            match r.entries.get(&victim).map(|e| e.phase) {
                Some(Phase::Hiding(Aim::Room(version))) if making != Some(version) => self.rescue(cx, replica, victim),
                _ => {}
            }
        }
    }

    /// The replicas where the version hides for this reason.
    pub(super) fn hiding_for(&self, version: VersionIx, aim: Aim) -> Vec<ReplicaIx> {
        let aimed = |r: &ReplicaIx| {
            let entry = self.replicas.get(r).and_then(|r| r.entries.get(&version));
            entry.is_some_and(|e| e.phase == Phase::Hiding(aim))
        };
        self.hiding.iter().filter(|(_, v)| *v == version).map(|(r, _)| *r).filter(aimed).collect()
    }
}
