//! Gateways and the control plane that they follow: leases, what is told, what is heard.

use holdfast_placement::residency::Turn;

use super::SECOND;
use super::gateway::{Orders, Told};
use super::news::Status;
use super::world::{Process, World};

/// A gateway that is silent for so long loses its lease.
const SILENCE: u64 = 6 * SECOND;

impl World<'_> {
    pub(super) fn hears_status(&mut self, plane: usize, status: Status) {
        let ix = status.from.ix;
        let Some(p) = &mut self.planes[plane] else { return };
        if !p.linked.contains(&status.from) {
            return;
        }
        p.heard[ix] = self.now;
        let (leased, behind) = (self.store.leases[ix], status.in_force < p.table.revision());
        let news = p.seen.insert(ix, status.clone()) != Some(status.clone());
        p.changed |= behind;
        if !leased {
            self.connect(plane, status.from);
        }
        if news {
            self.tell_all(plane);
        }
    }

    /// What is in the store, as far as it can be reached.
    pub(super) fn refresh(&mut self, plane: usize) {
        let cut = self.cut_store(plane);
        let Some(p) = self.planes[plane].as_mut().filter(|_| !cut) else { return };
        if p.table.revision() != self.store.table.revision() {
            p.table = self.store.table.clone();
            p.changed = true;
        }
        p.roster = self.store.roster;
        p.leases.clone_from(&self.store.leases);
    }

    /// Gateways that have been silent for long are not waited for any more.
    pub(super) fn end_leases(&mut self, plane: usize) {
        let cut = self.cut_store(plane);
        let Some(p) = self.planes[plane].as_mut().filter(|_| !cut) else { return };
        if p.term < self.store.term {
            return;
        }
        for ix in 0..p.heard.len() {
            if self.now.saturating_sub(p.heard[ix]) > SILENCE && self.store.leases[ix] {
                self.store.leases[ix] = false;
                p.leases[ix] = false;
            }
        }
    }

    /// The table and the orders, to every gateway that follows.
    pub(super) fn push(&mut self, plane: usize) {
        let Some(p) = &mut self.planes[plane] else { return };
        if !std::mem::take(&mut p.changed) && !self.now.is_multiple_of(4) {
            return;
        }
        let table = p.table.clone();
        let mut orders = Orders::default();
        // The older roll-out has the lower place.
        for (place, (id, running)) in (1..).zip(&p.running) {
            let target = running.sides.last().map(|(version, _)| *version);
            for want in &running.wants {
                let turn = if Some(want.1) == target { Turn::Coming(place) } else { Turn::Retained };
                let known = orders.wants.entry(*want).or_insert(turn);
                *known = turn.min(*known);
            }
            orders.prepare.extend(running.prepare.iter().map(|(proposal, flips)| (*id, *proposal, flips.clone())));
        }
        let linked: Vec<Process> = p.linked.iter().copied().collect();
        for to in linked {
            if !self.cut_plane(to.ix, plane) {
                let told = Told::View { table: Box::new(table.clone()), orders: Box::new(orders.clone()) };
                self.tell_gateway(to, told);
            }
        }
    }

    /// A gateway looks for a control plane that leads, unless it has one.
    pub(super) fn follow(&mut self, ix: usize) {
        let linked = self.gateways[ix].link.is_some_and(|link| {
            let alive = self.planes[link.ix].as_ref().is_some_and(|p| p.process == link.number);
            alive && !self.cut_plane(ix, link.ix)
        });
        if linked {
            return;
        }
        self.gateways[ix].link = None;
        let first = usize::try_from(self.chance.below(2)).unwrap_or(0);
        for plane in [first, 1 - first] {
            if self.planes[plane].is_some() && !self.cut_plane(ix, plane) && self.connect(plane, self.process_of(ix)) {
                return;
            }
        }
    }

    /// No table without a lease, and no lease without the store. What was known of the gateway before is forgotten.
    pub(super) fn connect(&mut self, plane: usize, gateway: Process) -> bool {
        let cut = self.cut_store(plane);
        let Some(p) = self.planes[plane].as_mut().filter(|p| !cut && p.term >= self.store.term) else { return false };
        self.store.term = p.term;
        self.store.roster += 1;
        self.store.leases[gateway.ix] = true;
        p.linked.retain(|g| g.ix != gateway.ix);
        p.linked.insert(gateway);
        p.seen.remove(&gateway.ix);
        p.heard[gateway.ix] = self.now;
        p.changed = true;
        self.gateways[gateway.ix].link = Some(Process { ix: plane, number: p.process });
        self.refresh(plane);
        true
    }

    /// A gateway's process is gone.
    pub(super) fn unlinked(&mut self, gateway: Process) {
        for plane in self.planes.iter_mut().flatten() {
            plane.linked.remove(&gateway);
        }
    }
}
