//! A gateway that is one of several (LOAD-1 over all of them): it starts loads on the servers that it owns, while its lease lasts, and within its
//! part of the fleet's bound ([`crate::seats`]).
//!
//! What others load on servers of theirs takes nothing of its part. But when the owners change, loads are in flight that belong to nobody's part any
//! more: everybody counts them until they have ended. They are found by the first poll of each server that begins after the change; before it a
//! server counts as loading all that it may, and gets no load. It may be that a server tells nothing of its loads: then that lasts as long as
//! they might.

use std::collections::BTreeSet;

use holdfast_types::Mono;

use super::Residency;
use super::event::{Own, ReplicaIx, Turn, VersionIx, Word};
use super::state::{Aim, Cx, InFlight, OpKind, Phase};

impl Residency {
    pub(super) fn set_own(&mut self, own: Option<Own>) {
        self.own = own;
    }

    /// Whether this gateway may start a load on the replica now, or take something off it.
    #[must_use]
    pub fn owns(&self, replica: ReplicaIx) -> bool {
        self.own.as_ref().is_none_or(|own| self.now < own.until && own.replicas.contains(&replica))
    }

    /// The same at a moment that may be later than anything that the machine has been told.
    #[must_use]
    pub fn owns_at(&self, now: Mono, replica: ReplicaIx) -> bool {
        self.own.as_ref().is_none_or(|own| now < own.until && own.replicas.contains(&replica))
    }

    pub(super) fn unsettle(&mut self, now: Mono, replica: ReplicaIx, until: Mono) {
        let Some(r) = self.replicas.get_mut(&replica) else { return };
        (r.unseen, r.unseen_since) = (true, now);
        r.hold_until = r.hold_until.max(until);
        self.ops.values_mut().filter(|o| o.replica == replica).for_each(|o| o.lingers = false);
    }

    /// The most loads that this gateway may have in flight over all servers.
    pub(super) fn bound(&self) -> u32 {
        self.own.as_ref().map_or(self.settings.fleet_loads, |own| own.part.min(self.settings.fleet_loads))
    }

    /// Whether a load takes something of this gateway's part.
    pub(super) fn counts(&self, load: &InFlight) -> bool {
        let Some(own) = &self.own else { return true };
        load.ours || load.lingers || own.replicas.contains(&load.replica)
    }

    /// Loads in flight that count on the server of a replica.
    pub(super) fn counted_on(&self, replica: ReplicaIx) -> u32 {
        let Some(r) = self.replicas.get(&replica) else { return 0 };
        if self.own.is_none() {
            return self.loads_of(r.spec.server);
        }
        let here = |o: &&InFlight| o.kind == OpKind::Load && o.server == r.spec.server && self.counts(o);
        u32::try_from(self.ops.values().filter(here).count()).unwrap_or(u32::MAX)
    }

    /// Nothing that this gateway has begun is in flight, and it waits for no load of which nobody tells.
    #[must_use]
    pub fn drained_of_loads(&self, now: Mono) -> bool {
        let loads = self.ops.values().any(|o| o.kind == OpKind::Load && o.ours);
        let holds = self.replicas.values().any(|r| r.unseen && r.up && r.spec.loads && r.hold_until > now);
        !loads && !holds
    }

    /// The owner is about to unload the version: it is used no more, and a poll that still shows it is not believed until then.
    pub(super) fn yield_up(&mut self, cx: &mut Cx, (replica, version): (ReplicaIx, VersionIx), until: Mono, word: u64) {
        let past = self.history.entry((replica, version)).or_default();
        (past.yielded_until, past.word) = (until, (word, cx.now));
        let loading = self.ops.values().any(|o| o.kind == OpKind::Load && o.replica == replica && o.version == version);
        if !loading {
            self.remove_entry(cx, replica, version);
        }
    }

    /// It is not unloaded, or was loaded again.
    pub(super) fn take_up(&mut self, replica: ReplicaIx, version: VersionIx, over: Word) {
        let Some(past) = self.history.get_mut(&(replica, version)) else { return };
        let (number, given) = past.word;
        let meant = match over {
            Word::Number(of) => of == number,
            Word::Before(at) => given < at,
        };
        if meant {
            past.yielded_until = Mono::ZERO;
        }
    }

    /// Its owner is about to load it: a copy that was seen before is gone, or goes. Polls that began before may have seen that one.
    pub(super) fn reloads(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        let busy = |e: &super::state::Entry| matches!(e.phase, Phase::Loading(_) | Phase::Unloading(..));
        if self.entry_mut(replica, version).is_some_and(|e| busy(e)) {
            return;
        }
        self.remove_entry(cx, replica, version);
        if self.replicas.contains_key(&replica) && self.versions.contains_key(&version) {
            let past = self.history.entry((replica, version)).or_default();
            (past.left_at, past.yielded_until) = (Some(cx.now), Mono::ZERO);
        }
    }

    /// Whether requests rely on this very copy: it is in service, and no other replica serves the pinned version. A version that a pin is only on its way
    /// to is none: it may have to give its room to one that comes before it.
    #[must_use]
    pub fn relies_on(&self, replica: ReplicaIx, version: VersionIx) -> bool {
        let Some(r) = self.replicas.get(&replica) else { return false };
        let coming = matches!(r.wanted.get(&version), Some(Turn::Coming(place)) if *place > 0);
        r.entries.get(&version).is_some_and(|e| e.shown) && !coming && self.last_holder(replica, version)
    }

    /// Whether what is being unloaded is a copy that was wrong, which nobody can rely on.
    #[must_use]
    pub fn renews(&self, replica: ReplicaIx, version: VersionIx) -> bool {
        let entry = self.replicas.get(&replica).and_then(|r| r.entries.get(&version));
        entry.is_some_and(|e| matches!(e.phase, Phase::Hiding(Aim::Renew) | Phase::Unloading(_, Aim::Renew)))
    }
}

impl Own {
    /// Nothing at all.
    pub const NOTHING: Self = Self { replicas: BTreeSet::new(), until: Mono::ZERO, part: 0 };
}
