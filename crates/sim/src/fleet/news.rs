//! What gateways say of themselves and of replicas, and what a control plane makes of all of it for its roll-outs.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_decide::rollout::{Claims, Event, GatewayView, Proposal, Report};
use holdfast_placement::residency::State;
use holdfast_types::Revision;

use super::gateway::pair;
use super::plane::{Plane, ToPlane};
use super::world::{Ev, Process, World};

/// What a gateway says of a version on a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Proven,
    Loaded,
    Wrong,
    Failed(u32),
}

/// What a gateway says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) from: Process,
    pub(super) in_force: Revision,
    oldest: Revision,
    prepared: Vec<(u64, Proposal)>,
    /// By replica: in service, and what is there.
    rows: Vec<(bool, BTreeMap<u32, Said>)>,
}

impl World<'_> {
    /// A gateway says how it is.
    pub(super) fn say(&mut self, ix: usize) {
        let Some(plane) = self.gateways[ix].link.filter(|plane| !self.cut_plane(ix, plane.ix)) else { return };
        let status = self.status(ix);
        let at = self.after_delay();
        self.queue.put(at, Ev::Plane { to: plane, what: ToPlane::Status(Box::new(status)) });
    }

    fn status(&mut self, ix: usize) -> Status {
        let from = self.process_of(ix);
        let in_force = self.gateways[ix].table.revision();
        let oldest = self.gateways[ix].requests.values().map(|r| r.revision).min().unwrap_or(in_force);
        let asked = self.gateways[ix].orders.prepare.clone();
        let prepared = asked.iter().filter(|(_, proposal, flips)| {
            let moves = flips.iter().filter(|flip| flip.share > 0);
            let keys: Vec<_> =
                moves.map(|f| (self.names.tenants.binary_search(&f.tenant), self.names.version(&f.new))).collect();
            in_force >= proposal.base
                && keys.into_iter().all(|key| match key {
                    (Ok(tenant), Some(version)) => self.is_held(ix, tenant, version),
                    _ => false,
                })
        });
        let prepared = prepared.map(|(id, proposal, _)| (*id, *proposal)).collect();
        Status { from, in_force, oldest, prepared, rows: self.rows(ix) }
    }

    /// Every replica of the key's subset shows it.
    fn is_held(&mut self, ix: usize, tenant: usize, version: u32) -> bool {
        let subset = self.subset(ix, tenant, version);
        let g = &self.gateways[ix];
        let shows = |replica: &usize| {
            let (replica, version) = pair(*replica, version);
            g.witness.shows(replica, version)
        };
        !subset.is_empty() && subset.iter().all(shows)
    }

    fn rows(&self, ix: usize) -> Vec<(bool, BTreeMap<u32, Said>)> {
        let g = &self.gateways[ix];
        let report = g.machine.report();
        let mut rows: Vec<(bool, BTreeMap<u32, Said>)> =
            g.replicas.iter().map(|seen| (seen.in_service, BTreeMap::new())).collect();
        for row in &report.replicas {
            let Some((_, said)) = rows.get_mut(row.replica.0 as usize) else { continue };
            let failed = row.missing.iter().filter(|m| m.failures > 0);
            said.extend(failed.map(|m| (m.version.0, Said::Failed(m.failures))));
            said.extend(row.holdings.iter().filter_map(|held| {
                let what = match held.state {
                    _ if held.shown => Said::Proven,
                    State::Quarantined => Said::Wrong,
                    State::Unproven | State::Verifying | State::Held => Said::Loaded,
                    _ => return None,
                };
                Some((held.version.0, what))
            }));
        }
        rows
    }

    /// What one roll-out has not been told yet.
    pub(super) fn news(&mut self, plane: usize, id: u64) -> Vec<Event> {
        let claims = self.claims(plane, id);
        let names = &self.names;
        let Some(p) = &mut self.planes[plane] else { return Vec::new() };
        let mut events = Vec::new();
        let views: Vec<GatewayView> = (0..names.gateways.len()).map(|ix| p.view(names, ix, id)).collect();
        let reports = p.reports(id);
        let roster = p.roster;
        let Some(running) = p.running.get_mut(&id).filter(|r| r.observes) else { return events };
        if running.views.as_ref() != Some(&(roster, views.clone())) {
            running.views = Some((roster, views.clone()));
            events.push(Event::Gateways { roster, all: views });
        }
        if running.claims.as_ref() != Some(&claims) {
            running.claims = Some(claims.clone());
            events.push(Event::Claims(claims));
        }
        for ((replica, version), (report, failures)) in reports {
            let known = running.told.get(&(replica, version));
            let again = matches!(report, Report::Failed { .. }) && known.is_some_and(|(_, n)| failures <= *n);
            if again || known.is_some_and(|(r, n)| *r == report && failures <= *n) {
                continue;
            }
            running.told.insert((replica, version), (report.clone(), failures));
            let Some(artifact) = names.artifact(version) else { continue };
            events.push(Event::Replica { replica: names.replicas[replica].clone(), artifact, report });
        }
        events
    }

    /// What others need: pins in force, and what other roll-outs are about.
    pub(super) fn claims(&self, plane: usize, id: u64) -> Claims {
        let Some(p) = &self.planes[plane] else { return Claims::default() };
        let versions: BTreeSet<u32> = self.pins_of(&p.table).into_iter().map(|(_, version)| version).collect();
        let pinned = versions.into_iter().filter_map(|v| self.names.artifact(v)).collect();
        let mut all = Claims { pinned, targets: BTreeSet::new() };
        for (_, other) in p.running.iter().filter(|(other, _)| **other != id) {
            let Claims { pinned, targets } = other.machine.claims();
            all.pinned.extend(pinned);
            all.targets.extend(targets);
        }
        all
    }
}

impl Plane {
    fn view(&self, names: &super::names::Names, ix: usize, id: u64) -> GatewayView {
        let (name, leased) = (names.gateways[ix].clone(), self.leases[ix]);
        match self.seen.get(&ix) {
            None => GatewayView { name, leased, in_force: Revision(0), oldest: Revision(0), prepared: None },
            Some(status) => GatewayView {
                name,
                leased,
                in_force: status.in_force,
                oldest: status.oldest,
                prepared: status.prepared.iter().find(|(of, _)| *of == id).map(|(_, proposal)| *proposal),
            },
        }
    }

    /// What all live gateways say of what a roll-out is about.
    fn reports(&self, id: u64) -> BTreeMap<(usize, u32), (Report, u32)> {
        let Some(running) = self.running.get(&id) else { return BTreeMap::new() };
        let live: Vec<&Status> = self.seen.iter().filter(|(ix, _)| self.leases[**ix]).map(|(_, s)| s).collect();
        if live.is_empty() {
            return BTreeMap::new();
        }
        let pairs = running.sides.iter().flat_map(|(version, order)| order.iter().map(|r| (*r, *version)));
        pairs.map(|(replica, version)| ((replica, version), combined(&live, replica, version))).collect()
    }
}

/// Proven is what all who have the replica in service call proven; what is wrong for one is wrong.
fn combined(live: &[&Status], replica: usize, version: u32) -> (Report, u32) {
    let rows = live.iter().filter_map(|s| s.rows.get(replica)).filter(|row| row.0);
    let (mut serving, mut proven, mut there, mut wrong, mut failures) = (0, 0, 0, false, 0);
    for (_, said) in rows {
        serving += 1;
        match said.get(&version) {
            Some(Said::Proven) => (proven, there) = (proven + 1, there + 1),
            Some(Said::Loaded) => there += 1,
            Some(Said::Wrong) => wrong = true,
            Some(Said::Failed(n)) => failures = failures.max(*n),
            None => {}
        }
    }
    let report = match () {
        () if serving == 0 => Report::Lost,
        () if wrong => Report::Wrong { words: "a known question got another answer".to_owned() },
        () if proven == serving => Report::Proven,
        () if there > 0 => Report::Loaded,
        () if failures > 0 => Report::Failed { words: "a load failed".to_owned(), permanent: false },
        () => Report::Absent,
    };
    (report, failures)
}
