//! Loads that only a server's index tells of (LOAD-1): those that somebody else asked for, a former process of this gateway among them, and those
//! whose call was answered with an error although the server may go on.
//!
//! Such a load has been *answered*: nothing more is heard of it from the driver. It is in flight, and takes its slot, until a poll that began after
//! the answer does not list it as loading.

use std::collections::BTreeSet;

use holdfast_types::{Bytes, Mono};

use super::Residency;
use super::event::{LoadError, Op, ReplicaIx, ServerIx, Strange, VersionIx};
use super::state::{Cx, Entry, InFlight, OpKind, Phase};

impl Residency {
    /// A load's call has failed. Whether the load has, the next poll tells. Nobody is asked about a server that is not configured any more.
    pub(super) fn load_refused(&mut self, now: Mono, op: Op) {
        let Some(load) = self.ops.get(&op).copied() else { return };
        let known = self.replicas.contains_key(&load.replica);
        let heir = if known { Some(load.replica) } else { self.heir(load.server) };
        let Some(replica) = heir else {
            self.end_op(op, OpKind::Load);
            return;
        };
        if let Some(load) = self.ops.get_mut(&op) {
            (load.replica, load.answered) = (replica, Some(now));
        }
    }

    /// A replica is gone. Who has its server now is asked about the loads there.
    pub(super) fn leave_loads(&mut self, replica: ReplicaIx) {
        let left = self.ops.iter().filter(|(_, o)| is_answered(o) && o.replica == replica);
        let left: Vec<(Op, ServerIx)> = left.map(|(op, o)| (*op, o.server)).collect();
        for (op, server) in left {
            match self.heir(server) {
                Some(heir) => drop(self.ops.get_mut(&op).map(|o| o.replica = heir)),
                None => drop(self.end_op(op, OpKind::Load)),
            }
        }
    }

    fn heir(&self, server: ServerIx) -> Option<ReplicaIx> {
        self.replicas.iter().find(|(_, r)| r.spec.server == server).map(|(ix, _)| *ix)
    }

    /// Brings the loads in line with a poll.
    pub(super) fn indexed(
        &mut self,
        cx: &mut Cx,
        (replica, started): (ReplicaIx, Mono),
        held: &BTreeSet<VersionIx>,
        loading: &BTreeSet<VersionIx>,
        strange: Strange,
    ) {
        let here = |o: &InFlight| o.replica == replica && o.answered.is_some_and(|at| at <= started);
        let known: Vec<(Op, VersionIx)> =
            self.ops.iter().filter(|(_, o)| here(o)).map(|(op, o)| (*op, o.version)).collect();
        for (op, version) in known {
            if loading.contains(&version) {
                self.enter_load(cx.now, op, replica, version);
            } else {
                self.indexed_end(cx, op, held.contains(&version));
            }
        }
        self.end_unlisted(cx, (replica, started), held, loading);
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        r.strange = strange;
        let (server, limit) = (r.spec.server, r.spec.load_timeout.unwrap_or(self.settings.load_timeout));
        for version in loading {
            let same = |o: &InFlight| o.kind == OpKind::Load && o.server == server && o.version == *version;
            if self.ops.values().any(same) {
                continue;
            }
            let (op, _) = self.begin_op(OpKind::Load, replica, *version, limit);
            if let Some(load) = self.ops.get_mut(&op) {
                (load.answered, load.ours) = (Some(started), false);
            }
            self.enter_load(cx.now, op, replica, *version);
        }
    }

    /// A load of ours over its time, which the server has listed as loading and lists no more: it has ended, though its answer may never come. A
    /// server that never listed it may be at work on it still.
    fn end_unlisted(
        &mut self,
        cx: &mut Cx,
        (replica, started): (ReplicaIx, Mono),
        held: &BTreeSet<VersionIx>,
        loading: &BTreeSet<VersionIx>,
    ) {
        let ours =
            |o: &InFlight| o.kind == OpKind::Load && o.replica == replica && !is_answered(o) && o.since <= started;
        let mut ended = Vec::new();
        for (op, load) in self.ops.iter_mut().filter(|(_, o)| ours(o)) {
            let listed = loading.contains(&load.version);
            load.listed |= listed;
            if load.listed && !listed && !held.contains(&load.version) && load.deadline <= started {
                ended.push(*op);
            }
        }
        for op in ended {
            self.indexed_end(cx, op, false);
        }
    }

    /// What loads is there for who asks, unless something else is known of the version there.
    fn enter_load(&mut self, now: Mono, op: Op, replica: ReplicaIx, version: VersionIx) {
        let Some(size) = self.versions.get(&version).map(|v| v.size()) else { return };
        if let Some(r) = self.replicas.get_mut(&replica) {
            r.entries.entry(version).or_insert_with(|| Entry::new(Phase::Loading(op), now, size));
        }
    }

    fn indexed_end(&mut self, cx: &mut Cx, op: Op, held: bool) {
        let was_overdue = self.is_overdue(op);
        let Some(done) = self.end_op(op, OpKind::Load) else { return };
        let (replica, version) = (done.replica, done.version);
        if self.entry_mut(replica, version).is_some_and(|e| e.phase == Phase::Loading(op)) {
            if held {
                self.loaded(cx, replica, version, None);
            } else {
                self.remove_entry(cx, replica, version);
                if !was_overdue {
                    let text = "the server does not load it any more, and does not hold it".to_owned();
                    self.load_failed(cx, replica, version, LoadError { text, permanent: false });
                }
            }
        }
        self.forget_if_gone(version);
    }

    /// Whether the replica has loads whose end only a poll tells: it should be asked soon.
    #[must_use]
    pub fn awaits_index(&self, replica: ReplicaIx) -> bool {
        let strange = self.replicas.get(&replica).is_some_and(|r| r.strange.loads > 0);
        strange || self.ops.values().any(|o| o.replica == replica && is_answered(o))
    }

    /// Loads that count for no bound of the fleet: over their time or left to the index, on a replica that is down or gone.
    pub(super) fn lost_loads(&self) -> u32 {
        let lost = self.ops.iter().filter(|(op, o)| o.kind == OpKind::Load && self.is_lost(**op, o));
        u32::try_from(lost.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_lost(&self, op: Op, load: &InFlight) -> bool {
        let down = self.replicas.get(&load.replica).is_none_or(|r| !r.up);
        down && (is_answered(load) || self.is_overdue(op))
    }

    /// Loads of names that no version has, on replicas that are up.
    pub(super) fn strange_loads(&self) -> u32 {
        self.replicas.values().filter(|r| r.up).fold(0, |sum, r| sum.saturating_add(r.strange.loads))
    }
}

fn is_answered(op: &InFlight) -> bool {
    op.answered.is_some()
}

impl Strange {
    /// Nothing that is not known.
    pub const NONE: Self = Self { loads: 0, size: Bytes(0) };
}
