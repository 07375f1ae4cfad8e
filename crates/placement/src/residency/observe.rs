//! What is seen of the replicas: complete polls, loss of contact, proofs and quarantine.

use std::collections::BTreeSet;

use holdfast_types::{Bytes, Mono};

use super::Residency;
use super::effect::{Alarm, Effect};
use super::event::{LoadError, Op, Proof, ReplicaIx, Strange, VersionIx};
use super::state::{Aim, Cx, Entry, OpKind, Phase, cut};

impl Residency {
    pub(super) fn set_up(&mut self, replica: ReplicaIx) {
        if let Some(r) = self.replicas.get_mut(&replica) {
            r.up = true;
        }
    }

    /// Contact is lost: nothing that the replica held counts. Loads and unloads in flight stay counted until answered or over their time.
    pub(super) fn lose(&mut self, cx: &mut Cx, replica: ReplicaIx, up: bool) {
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        r.up &= up;
        r.observed = false;
        r.making = None;
        let removed = |v: &VersionIx| self.versions.get(v).is_none_or(|info| info.removed);
        for (version, entry) in &mut r.entries {
            match entry.phase {
                // What is wrong stays so until it is proved or gone, whatever was on its way with it.
                Phase::Hiding(_) if entry.before == Phase::Quarantined && !removed(version) => {
                    entry.enter(Phase::Quarantined, cx.now);
                    continue;
                }
                Phase::Loading(_) | Phase::Unloading(..) | Phase::Quarantined | Phase::Unknown => continue,
                Phase::Held | Phase::Hiding(_) | Phase::Unproven | Phase::Verifying(_) => {}
            }
            entry.enter(Phase::Unknown, cx.now);
            if std::mem::take(&mut entry.shown) {
                self.undrained.insert((replica, *version));
                cx.out.push(Effect::Hide { replica, version: *version });
            }
        }
        self.hiding.retain(|(r, _)| *r != replica);
        self.reprove.retain(|(_, r, _)| *r != replica);
        self.drop_ops(|o| o.replica == replica && o.kind == OpKind::Verify);
    }

    /// Brings the entries in line with a complete poll, except for what has changed since the poll started. A poll of a replica that is down is
    /// late or contradicts its health; the first one after `ReplicaUp` counts.
    pub(super) fn observed(
        &mut self,
        cx: &mut Cx,
        (replica, started): (ReplicaIx, Mono),
        held: &[VersionIx],
        loading: &[VersionIx],
        strange: Strange,
    ) {
        let Some(r) = self.replicas.get_mut(&replica).filter(|r| r.up) else { return };
        r.observed = true;
        let settles = r.unseen && started >= r.unseen_since && cx.now >= r.hold_until;
        r.unseen &= !settles;
        let held: BTreeSet<VersionIx> = held.iter().copied().collect();
        let busy = |e: &Entry| matches!(e.phase, Phase::Loading(_) | Phase::Unloading(..));
        let gone = r.entries.iter().filter(|(v, e)| !held.contains(v) && !busy(e) && e.since <= started);
        let gone: Vec<VersionIx> = gone.map(|(v, _)| *v).collect();
        for version in gone {
            self.remove_entry(cx, replica, version);
            self.forget_if_gone(version);
        }
        self.indexed(cx, (replica, started), &held, &loading.iter().copied().collect(), strange);
        if settles {
            self.ops.values_mut().filter(|o| o.replica == replica).for_each(|o| o.lingers = true);
        }
        for version in held {
            // An index that says both is believed for the worse: it is being loaded.
            if !loading.contains(&version) {
                self.overdue_seen(cx, replica, version, started);
            }
            self.seen(cx, replica, version, started);
        }
        self.check_memory(cx, replica);
    }

    /// What was shown turned out not to be there.
    pub(super) fn missing(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let shown = self.replicas.get(&replica).and_then(|r| r.entries.get(&version));
        if shown.is_some_and(|e| e.phase == Phase::Held) {
            self.remove_entry(cx, replica, version);
            self.missed_again(cx, replica, version);
            self.forget_if_gone(version);
        }
    }

    /// One miss is a server that was told to unload. A second one soon after says that the server calls ready what it does not serve: each
    /// belief costs a request a second attempt, so belief backs off like a load that fails.
    fn missed_again(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let memory = self.settings.backoff_max.saturating_mul(2);
        let past = self.history.entry((replica, version)).or_default();
        let recent = past.missed_at.is_some_and(|at| cx.now.since(at) <= memory);
        past.misses = if recent { past.misses.saturating_add(1) } else { 1 };
        past.missed_at = Some(cx.now);
        let Some(failures) = past.misses.checked_sub(2) else { return };
        past.failures = failures;
        let text = "the server calls it ready, but answers requests that it is not loaded".to_owned();
        self.load_failed(cx, replica, version, LoadError { text, permanent: false });
    }

    fn seen(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, started: Mono) {
        let Some(info) = self.versions.get(&version) else { return };
        let (size, removed) = (info.size(), info.removed);
        let past = self.history.get(&(replica, version));
        let left_since = past.and_then(|h| h.left_at).is_some_and(|t| t >= started);
        let doubted = past.is_some_and(|h| h.misses > 1 && h.retry_at > cx.now || h.yielded_until > cx.now);
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        match r.entries.get_mut(&version) {
            Some(entry) if entry.phase == Phase::Unknown => entry.enter(Phase::Unproven, cx.now),
            Some(_) => return,
            None if left_since || doubted => return,
            None => {
                r.entries.insert(version, Entry::new(Phase::Unproven, cx.now, size));
            }
        }
        if removed { self.retire(cx, replica, version) } else { self.verify(cx, replica, version) }
    }

    /// Asks for the proof of something loaded.
    pub(super) fn verify(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let limit = self.settings.step_timeout;
        let unproven = |e: &Entry| e.phase == Phase::Unproven;
        let ready = self.replicas.get(&replica).is_some_and(|r| r.up && r.entries.get(&version).is_some_and(unproven));
        if !ready {
            return;
        }
        let (op, deadline) = self.begin_op(OpKind::Verify, replica, version, limit);
        if let Some(entry) = self.entry_mut(replica, version) {
            entry.enter(Phase::Verifying(op), cx.now);
        }
        cx.out.push(Effect::Verify { op, replica, version, deadline });
    }

    pub(super) fn verified(&mut self, cx: &mut Cx, op: Op, proof: Proof) -> bool {
        let Some(done) = self.end_op(op, OpKind::Verify) else { return false };
        let (replica, version) = (done.replica, done.version);
        let (base, max) = (self.settings.backoff_base, self.settings.backoff_max);
        let Some(entry) = self.entry_mut(replica, version).filter(|e| e.phase == Phase::Verifying(op)) else {
            return false;
        };
        match proof {
            Proof::Proven => self.became_held(cx, replica, version),
            Proof::Wrong(why) => {
                let why = cut(why);
                entry.enter(Phase::Quarantined, cx.now);
                entry.why = Some(why.clone());
                entry.load_began = None;
                cx.out.push(Effect::Alarm(Alarm::VerificationFailed { replica, version, why }));
            }
            Proof::Unknown(why) => {
                entry.why = Some(cut(why));
                entry.enter(Phase::Unproven, cx.now);
                let wait = base.saturating_mul(1u32.checked_shl(entry.unknown_proofs).unwrap_or(u32::MAX)).min(max);
                entry.unknown_proofs = entry.unknown_proofs.saturating_add(1);
                self.reprove.insert((cx.now.after(wait), replica, version));
            }
        }
        true
    }

    /// The version is proven on the replica: it is shown, its load is measured, and all who wait for it there are woken.
    pub(super) fn became_held(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let Some(entry) = self.entry_mut(replica, version) else { return };
        entry.enter(Phase::Held, cx.now);
        entry.why = None;
        entry.unknown_proofs = 0;
        let began = entry.load_began.take();
        if !entry.shown {
            entry.shown = true;
            self.undrained.remove(&(replica, version));
            cx.out.push(Effect::Show { replica, version });
        }
        if let Some(began) = began {
            self.measured(replica, version, cx.now.since(began));
        }
        if let Some(past) = self.history.get_mut(&(replica, version)) {
            (past.failures, past.permanent, past.too_large, past.no_room) = (0, false, false, false);
            past.text.clear();
        }
        self.wake_all(cx, replica, version);
    }

    pub(super) fn quarantine(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx, why: String) {
        let Some(entry) = self.entry_mut(replica, version) else { return };
        if let Phase::Hiding(_) = entry.phase {
            // It leaves already. If it is taken back, then into quarantine.
            entry.before = Phase::Quarantined;
            entry.why = Some(cut(why));
            return;
        }
        if !matches!(entry.phase, Phase::Held | Phase::Unproven | Phase::Verifying(_) | Phase::Unknown) {
            return;
        }
        entry.enter(Phase::Quarantined, cx.now);
        entry.why = Some(cut(why));
        self.clear_flag(cx, replica, version);
        self.drop_ops(|o| o.replica == replica && o.version == version && o.kind == OpKind::Verify);
        self.reprove.retain(|(_, r, v)| (*r, *v) != (replica, version));
    }

    pub(super) fn released(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let contact = self.replicas.get(&replica).is_some_and(|r| r.up && r.observed);
        let quarantined = self.entry_mut(replica, version).is_some_and(|e| e.phase == Phase::Quarantined);
        if contact && quarantined {
            self.became_held(cx, replica, version);
        }
    }

    /// A quarantined copy goes, so that a new one may come.
    pub(super) fn renew(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let contact = self.replicas.get(&replica).is_some_and(|r| r.up && r.observed && r.spec.loads);
        let quarantined = self.entry_mut(replica, version).is_some_and(|e| e.phase == Phase::Quarantined);
        if contact && quarantined {
            self.hide(cx, replica, version, Aim::Renew);
        }
    }

    /// Raises or clears the alarm for holding more than the memory.
    pub(super) fn check_memory(&mut self, cx: &mut Cx, replica: ReplicaIx) {
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        let (held, memory) = (r.held(), r.spec.memory.unwrap_or(Bytes(u64::MAX)));
        let over = held > memory;
        if over && !r.over_memory {
            cx.out.push(Effect::Alarm(Alarm::OverMemory { replica, held, memory }));
        }
        r.over_memory = over;
    }

    /// Clears the flag "holds" if it is set; the version counts as in use until the driver says otherwise.
    pub(super) fn clear_flag(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        if self.entry_mut(replica, version).is_some_and(|e| std::mem::take(&mut e.shown)) {
            self.undrained.insert((replica, version));
            cx.out.push(Effect::Hide { replica, version });
        }
    }

    /// Removes an entry that the replica no longer has.
    pub(super) fn remove_entry(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        self.clear_flag(cx, replica, version);
        if self.replicas.get_mut(&replica).and_then(|r| r.entries.remove(&version)).is_none() {
            return;
        }
        self.hiding.remove(&(replica, version));
        self.reprove.retain(|(_, r, v)| (*r, *v) != (replica, version));
        self.drop_ops(|o| o.replica == replica && o.version == version && o.kind == OpKind::Verify);
        self.forget_alarms(|r, _| r == replica);
    }
}
