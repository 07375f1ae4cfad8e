//! Loads and unloads: how they begin, how they end, and what is learnt from them.

use std::time::Duration;

use holdfast_types::{Bytes, Mono};

use super::Residency;
use super::effect::{Alarm, Effect};
use super::event::{LoadError, Mode, Op, Proof, ReplicaIx, VersionIx};
use super::state::{Aim, Cx, Entry, InFlight, OpKind, Phase, cut};

/// How soon to look again at what is blocked by requests in flight.
pub(super) const RECHECK: Duration = Duration::from_millis(100);

/// This many loads that failed in a row raise an alarm, and from then on no request waits for the next attempt.
pub(super) const FAILURES_ALARM: u32 = 3;

impl Residency {
    pub(super) fn entry_mut(&mut self, replica: ReplicaIx, version: VersionIx) -> Option<&mut Entry> {
        self.replicas.get_mut(&replica)?.entries.get_mut(&version)
    }

    /// Gives up operations other than loads, which stay counted until their end.
    pub(super) fn drop_ops(&mut self, concerns: impl Fn(&InFlight) -> bool) {
        self.ops.retain(|_, o| o.kind == OpKind::Load || !concerns(o));
    }

    pub(super) fn expire_ops(&mut self, cx: &mut Cx) -> bool {
        let due = |(op, o): &(&Op, &InFlight)| o.deadline <= cx.now && !self.overdue.contains(op);
        let over: Vec<(Op, OpKind)> = self.ops.iter().filter(due).map(|(op, o)| (*op, o.kind)).collect();
        for (op, kind) in &over {
            let text = "no answer in time".to_owned();
            match kind {
                OpKind::Load => self.load_overdue(cx, *op),
                OpKind::Verify => self.verified(cx, *op, Proof::Unknown(text)),
                OpKind::Unload => self.unload_done(cx, *op, Err(text)),
            };
        }
        let makings = self.replicas.values().filter_map(|r| r.making.as_ref());
        !over.is_empty() || makings.into_iter().any(|m| m.until <= cx.now)
    }

    /// Starts a load. The caller has checked the bounds and the room.
    pub(super) fn start_load(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, demand: bool) {
        let Some(size) = self.versions.get(&version).map(|v| v.size()) else { return };
        let limit = self.replicas.get(&replica).and_then(|r| r.spec.load_timeout);
        let limit = limit.unwrap_or(self.settings.load_timeout);
        let (op, deadline) = self.begin_op(OpKind::Load, replica, version, limit);
        let mut entry = Entry::new(Phase::Loading(op), cx.now, size);
        entry.load_began = Some(cx.now);
        self.warm_ups = self.warm_ups.saturating_add(u64::from(!demand));
        self.streak = if demand { self.streak.saturating_add(1) } else { 0 };
        let warm_ups = self.warm_ups;
        if let Some(r) = self.replicas.get_mut(&replica) {
            r.entries.insert(version, entry);
            if !demand {
                r.last_warm = warm_ups;
            }
        }
        cx.out.push(Effect::Load { op, replica, version, deadline });
    }

    /// A load is over its time. It has failed for all who wait, but the server may well be at work still: its slot stays taken, and the version
    /// is not asked for again here, until the server answers, breaks off, or is seen to hold it.
    fn load_overdue(&mut self, cx: &mut Cx, op: Op) -> bool {
        let Some(load) = self.ops.get(&op).copied() else { return false };
        self.overdue.insert(op);
        let (replica, version) = (load.replica, load.version);
        // Also of one that nobody wants any more: it keeps others from theirs.
        cx.out.push(Effect::Alarm(Alarm::LoadOverdue { replica, version, after: cx.now.since(load.since) }));
        let Some(entry) = self.entry_mut(replica, version).filter(|e| e.phase == Phase::Loading(op)) else {
            return true;
        };
        let text = "no answer in time".to_owned();
        entry.why = Some(text.clone());
        self.load_failed(cx, replica, version, LoadError { text, permanent: false });
        true
    }

    /// Whether this is a load over its time.
    pub(super) fn is_overdue(&self, op: Op) -> bool {
        self.overdue.contains(&op)
    }

    /// A poll that began after these loads were over their time shows that they have ended well.
    pub(super) fn overdue_seen(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, started: Mono) {
        let here = |o: &InFlight| {
            o.replica == replica && o.version == version && o.deadline <= started && o.answered.is_none()
        };
        let ended: Vec<Op> = self.overdue.iter().copied().filter(|op| self.ops.get(op).is_some_and(here)).collect();
        for op in ended {
            self.load_done(cx, op, Ok(None));
        }
    }

    pub(super) fn load_done(&mut self, cx: &mut Cx, op: Op, result: Result<Option<Bytes>, LoadError>) -> bool {
        let was_overdue = self.is_overdue(op);
        let Some(done) = self.ops.get(&op).copied().filter(|o| o.kind == OpKind::Load && o.answered.is_none()) else {
            return false;
        };
        match &result {
            Ok(_) => drop(self.end_op(op, OpKind::Load)),
            Err(_) => self.load_refused(cx.now, op),
        }
        let (replica, version) = (done.replica, done.version);
        let current = self.entry_mut(replica, version).is_some_and(|e| e.phase == Phase::Loading(op));
        match result {
            _ if !current => {}
            Ok(measured) => self.loaded(cx, replica, version, measured),
            Err(error) => {
                self.remove_entry(cx, replica, version);
                // One that was over its time has been counted as a failure then.
                if !was_overdue {
                    self.load_failed(cx, replica, version, error);
                }
            }
        }
        self.forget_if_gone(version);
        true
    }

    pub(super) fn loaded(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, measured: Option<Bytes>) {
        // A load that somebody else began, and of which the last poll told that it was under way, may be loaded and about to be unloaded by now.
        if self.history.get(&(replica, version)).is_some_and(|past| past.yielded_until > cx.now) {
            return self.remove_entry(cx, replica, version);
        }
        let Some(info) = self.versions.get_mut(&version) else { return };
        info.measured = measured.or(info.measured);
        let (size, removed) = (info.size(), info.removed);
        let contact = self.replicas.get(&replica).is_some_and(|r| r.up && r.observed);
        if let Some(entry) = self.entry_mut(replica, version) {
            entry.size = size;
            entry.arrived = cx.now;
            entry.enter(if contact { Phase::Unproven } else { Phase::Unknown }, cx.now);
        }
        match (removed, contact) {
            (true, _) => self.retire(cx, replica, version),
            (false, true) => self.verify(cx, replica, version),
            (false, false) => {}
        }
        self.check_memory(cx, replica);
    }

    /// Backs off exponentially for this version on this replica.
    pub(super) fn load_failed(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, error: LoadError) {
        if self.versions.get(&version).is_none_or(|v| v.removed) {
            return;
        }
        let (base, max) = (self.settings.backoff_base, self.settings.backoff_max);
        let past = self.history.entry((replica, version)).or_default();
        let wait = base.saturating_mul(1u32.checked_shl(past.failures).unwrap_or(u32::MAX)).min(max);
        past.failures = past.failures.saturating_add(1);
        past.retry_at = cx.now.after(if error.permanent { max } else { wait });
        past.text = cut(error.text);
        let first_permanent = error.permanent && !past.permanent;
        past.permanent = error.permanent;
        let (failures, why, retry_at) = (past.failures, past.text.clone(), past.retry_at);
        if first_permanent || failures == FAILURES_ALARM {
            cx.out.push(Effect::Alarm(Alarm::LoadFailing { replica, version, failures, why }));
        }
        self.look_again.insert(retry_at);
    }

    /// A quarter of each new load time goes into the averages of the version and of its pool.
    pub(super) fn measured(&mut self, replica: ReplicaIx, version: VersionIx, took: Duration) {
        let blend = |old: Option<Duration>| match old {
            Some(old) => old.saturating_mul(3).saturating_add(took) / 4,
            None => took,
        };
        if let Some(info) = self.versions.get_mut(&version) {
            info.load_time = Some(blend(info.load_time));
        }
        if let Some(pool) = self.replicas.get(&replica).map(|r| r.spec.pool) {
            let mean = blend(self.pool_load_time.get(&pool).copied());
            self.pool_load_time.insert(pool, mean);
        }
    }

    /// Takes a version out of service, to be unloaded when it is drained.
    pub(super) fn hide(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, aim: Aim) {
        self.clear_flag(cx, replica, version);
        let Some(entry) = self.entry_mut(replica, version) else { return };
        if !matches!(entry.phase, Phase::Hiding(_)) {
            entry.before = entry.phase;
        }
        entry.enter(Phase::Hiding(aim), cx.now);
        self.hiding.insert((replica, version));
        self.drop_ops(|o| o.replica == replica && o.version == version && o.kind == OpKind::Verify);
        self.reprove.retain(|(_, r, v)| (*r, *v) != (replica, version));
    }

    /// Takes a version that hides back to what it was before.
    pub(super) fn rescue(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        if !self.hiding.remove(&(replica, version)) {
            return;
        }
        let Some(entry) = self.entry_mut(replica, version) else { return };
        match entry.before {
            Phase::Held => self.became_held(cx, replica, version),
            Phase::Quarantined => entry.enter(Phase::Quarantined, cx.now),
            _ => {
                entry.enter(Phase::Unproven, cx.now);
                self.verify(cx, replica, version);
            }
        }
    }

    pub(super) fn drained(&mut self, replica: ReplicaIx, version: VersionIx) -> bool {
        self.undrained.remove(&(replica, version)) && self.hiding.contains(&(replica, version))
    }

    /// Unloads what hides and is drained. The counts are asked once more: a sender may have been between its count and its look at the flag.
    pub(super) fn unload_drained(&mut self, cx: &mut Cx) {
        let hiding: Vec<(ReplicaIx, VersionIx)> = self.hiding.iter().copied().collect();
        for (replica, version) in hiding {
            let Some(entry) = self.entry_mut(replica, version) else { continue };
            let Phase::Hiding(aim) = entry.phase else { continue };
            if self.undrained.contains(&(replica, version)) {
                continue;
            }
            if cx.usage.in_flight(replica, version) > 0 {
                self.recheck_at(cx.now.after(RECHECK));
                continue;
            }
            let loads = self.replicas.get(&replica).is_some_and(|r| r.spec.loads);
            match aim {
                // Hidden it stays until its owner has unloaded it.
                Aim::Retire if loads && !self.owns(replica) => {}
                Aim::Room(_) | Aim::Renew if !self.owns(replica) => self.rescue(cx, replica, version),
                Aim::Room(_) if !loads => self.rescue(cx, replica, version),
                Aim::Room(new) if self.last_holder(replica, version) && !self.gives_way(replica, version, new) => {
                    self.rescue(cx, replica, version);
                }
                Aim::Retire if !loads => self.remove_entry(cx, replica, version),
                Aim::Renew if !loads => self.rescue(cx, replica, version),
                _ => self.unload(cx, replica, version, aim),
            }
        }
    }

    fn unload(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, aim: Aim) {
        let (op, deadline) = self.begin_op(OpKind::Unload, replica, version, self.settings.step_timeout);
        self.hiding.remove(&(replica, version));
        if let Some(entry) = self.entry_mut(replica, version) {
            entry.enter(Phase::Unloading(op, aim), cx.now);
        }
        cx.out.push(Effect::Unload { op, replica, version, deadline });
    }

    /// In guaranteed mode: no other replica serves this pinned version.
    pub(super) fn last_holder(&self, replica: ReplicaIx, version: VersionIx) -> bool {
        let guaranteed = self.replicas.get(&replica).is_some_and(|r| r.spec.mode == Mode::Guaranteed);
        let pinned = self.versions.get(&version).is_some_and(|v| v.spec.pinned && !v.removed);
        guaranteed && pinned && !self.lasting_holders(version).any(|r| r != replica)
    }

    /// Whether a version leaves here because the other one comes first.
    fn gives_way(&self, replica: ReplicaIx, version: VersionIx, new: VersionIx) -> bool {
        let gives_way = |r: &super::state::Replica| r.gives_way(version, r.wanted.get(&new).copied());
        self.replicas.get(&replica).and_then(gives_way) == Some(true)
    }

    pub(super) fn unload_done(&mut self, cx: &mut Cx, op: Op, result: Result<(), String>) -> bool {
        let Some(done) = self.end_op(op, OpKind::Unload) else { return false };
        let (replica, version) = (done.replica, done.version);
        let keep_until = cx.now.after(self.settings.room_timeout);
        let Some(entry) = self.entry_mut(replica, version) else { return false };
        let Phase::Unloading(current, aim) = entry.phase else { return false };
        if current != op {
            return false;
        }
        match result {
            Ok(()) => self.unloaded(cx, replica, version, aim),
            Err(_) if aim == Aim::Renew => entry.enter(Phase::Quarantined, cx.now),
            Err(_) => {
                // Nobody knows whether it is still there: prove it, and let it be for a while.
                entry.keep_until = keep_until;
                entry.enter(Phase::Unproven, cx.now);
                self.after_failed_unload(cx, replica, version);
            }
        }
        true
    }

    fn unloaded(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, aim: Aim) {
        // What gave way waits for its turn: that it is wanted on is no thrashing.
        let evicted = matches!(aim, Aim::Room(new) if !self.gives_way(replica, version, new));
        self.remove_entry(cx, replica, version);
        if self.versions.get(&version).is_some_and(|v| !v.removed) {
            let past = self.history.entry((replica, version)).or_default();
            past.left_at = Some(cx.now);
            if evicted {
                past.evicted_at = Some(cx.now);
            }
        }
        self.check_memory(cx, replica);
        self.forget_if_gone(version);
    }

    fn after_failed_unload(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let contact = self.replicas.get(&replica).is_some_and(|r| r.up && r.observed);
        let removed = self.versions.get(&version).is_some_and(|v| v.removed);
        match (contact, removed) {
            // It is seen again with the next poll, and retired again then if it must go.
            (false, _) | (true, true) => {
                if let Some(entry) = self.entry_mut(replica, version) {
                    entry.enter(Phase::Unknown, cx.now);
                }
            }
            (true, false) => self.verify(cx, replica, version),
        }
    }

    pub(super) fn recheck_at(&mut self, at: Mono) {
        self.recheck = Some(self.recheck.map_or(at, |r| r.min(at)));
    }
}
