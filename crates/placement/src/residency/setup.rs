//! Configuration at run time: replicas, versions and wanted sets come, change and go.

use super::Residency;
use super::effect::{Effect, Outcome};
use super::event::{ReplicaIx, ReplicaSpec, Turn, VersionIx, VersionSpec};
use super::state::{Aim, Cx, Phase, Replica, VersionInfo};
use holdfast_types::Mono;

impl Residency {
    pub(super) fn set_replica(&mut self, replica: ReplicaIx, spec: ReplicaSpec) {
        match self.replicas.get_mut(&replica) {
            Some(known) => known.spec = spec,
            None => {
                self.replicas.insert(replica, Replica::new(spec));
            }
        }
        self.forget_alarms(|r, _| r == replica);
    }

    pub(super) fn remove_replica(&mut self, cx: &mut Cx, replica: ReplicaIx) {
        let Some(gone) = self.replicas.remove(&replica) else { return };
        for (version, _) in gone.entries.iter().filter(|(_, e)| e.shown) {
            cx.out.push(Effect::Hide { replica, version: *version });
        }
        self.history.retain(|(r, _), _| *r != replica);
        self.hiding.retain(|(r, _)| *r != replica);
        self.undrained.retain(|(r, _)| *r != replica);
        self.reprove.retain(|(_, r, _)| *r != replica);
        // Loads stay counted until they are answered or over their time: the server may well be at work still.
        self.drop_ops(|o| o.replica == replica);
        self.leave_loads(replica);
        let left: Vec<VersionIx> = gone.entries.keys().copied().collect();
        for version in left {
            self.forget_if_gone(version);
        }
    }

    pub(super) fn set_version(&mut self, cx: &mut Cx, version: VersionIx, spec: VersionSpec) {
        match self.versions.get_mut(&version) {
            Some(known) => {
                if known.spec.size != spec.size {
                    known.measured = None;
                }
                known.spec = spec;
                known.removed = false;
            }
            None => {
                let info = VersionInfo { spec, measured: None, load_time: None, removed: false };
                self.versions.insert(version, info);
            }
        }
        self.forget_alarms(|_, v| v == version);
        // Configured again before it was gone: what is still loaded stays.
        for replica in self.hiding_for(version, Aim::Retire) {
            self.rescue(cx, replica, version);
        }
    }

    pub(super) fn remove_version(&mut self, cx: &mut Cx, version: VersionIx) {
        let Some(info) = self.versions.get_mut(&version) else { return };
        info.removed = true;
        for id in self.demands_for(version) {
            let why = "the version is no longer configured".to_owned();
            self.end_demand(cx, id, &Outcome::Failed { why });
        }
        let holders: Vec<ReplicaIx> = self.replicas.keys().copied().collect();
        for replica in holders {
            if let Some(r) = self.replicas.get_mut(&replica) {
                r.wanted.remove(&version);
                r.kept.remove(&version);
            }
            self.retire(cx, replica, version);
        }
        self.history.retain(|(_, v), _| *v != version);
        self.forget_if_gone(version);
    }

    /// Takes a version that is no longer configured off a replica, as far as its phase allows; the rest follows when the phase ends.
    pub(super) fn retire(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        let loads = r.spec.loads;
        let Some(phase) = r.entries.get(&version).map(|e| e.phase) else { return };
        match phase {
            Phase::Loading(_) | Phase::Unloading(..) | Phase::Unknown => {}
            Phase::Hiding(_) if loads => {}
            _ if loads => self.hide(cx, replica, version, Aim::Retire),
            _ => self.remove_entry(cx, replica, version),
        }
    }

    pub(super) fn set_wanted(&mut self, replica: ReplicaIx, versions: Vec<(VersionIx, Turn)>) {
        let known = &self.versions;
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        r.wanted = versions.into_iter().filter(|(v, _)| known.get(v).is_some_and(|i| !i.removed)).collect();
        self.forget_alarms(|r, _| r == replica);
    }

    pub(super) fn set_kept(&mut self, replica: ReplicaIx, versions: Vec<VersionIx>) {
        let known = &self.versions;
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        r.kept = versions.into_iter().filter(|v| known.get(v).is_some_and(|i| !i.removed)).collect();
    }

    pub(super) fn afresh(&mut self, replica: ReplicaIx, version: VersionIx) {
        if let Some(past) = self.history.get_mut(&(replica, version)) {
            (past.failures, past.permanent, past.retry_at) = (0, false, Mono::ZERO);
            past.text.clear();
        }
    }

    /// Alarms that stand are raised again if their cause outlives a change.
    pub(super) fn forget_alarms(&mut self, concerns: impl Fn(ReplicaIx, VersionIx) -> bool) {
        for ((r, v), past) in &mut self.history {
            if concerns(*r, *v) {
                (past.too_large, past.no_room) = (false, false);
            }
        }
    }

    /// Drops the record of a removed version once nothing refers to it.
    pub(super) fn forget_if_gone(&mut self, version: VersionIx) {
        let removed = self.versions.get(&version).is_some_and(|v| v.removed);
        let held = self.replicas.values().any(|r| r.entries.contains_key(&version));
        if removed && !held && !self.ops.values().any(|o| o.version == version) {
            self.versions.remove(&version);
        }
    }
}
