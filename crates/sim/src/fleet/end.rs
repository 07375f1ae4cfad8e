//! What acts do, how they end, and the end of a history: everything is repaired, what has begun comes to its end, and nothing is left over.

use holdfast_decide::rollout::{Command, Event};

use super::SECOND;
use super::acts::{Act, Fault};
use super::world::{Cut, Ev, World};
use super::{MS, Outcome};

/// How long things may take until all is quiet.
const CALM: u64 = 400;

impl World<'_> {
    pub(super) fn acts(&mut self, act: Act) {
        self.note(|| format!("{act:?}"));
        let (gateways, replicas) = (self.gateways.len().max(1), self.servers.len().max(1));
        let lasts = match act {
            Act::Flip { tenant, version, bits } => {
                self.wish(tenant % self.setup.tenants.max(1), version % self.setup.versions.max(1), bits);
                None
            }
            Act::Command { pick, what } => {
                self.commands(pick, what);
                None
            }
            Act::ReplicaDies { replica, ms } => {
                self.server_dies(replica % replicas);
                Some(ms)
            }
            Act::Drops { replica, version } => {
                self.servers[replica % replicas].held.remove(&version);
                None
            }
            Act::Trouble { replica, fault, ms } => {
                self.trouble(replica % replicas, fault, true);
                Some(ms)
            }
            Act::GatewayDies { gateway, ms } => {
                self.gateway_dies(gateway % gateways);
                Some(ms)
            }
            Act::Ahead { gateway, ms } => {
                let g = &mut self.gateways[gateway % gateways];
                g.ahead += ms * MS;
                g.jumped = self.now;
                if g.up {
                    self.catch_up(gateway % gateways);
                }
                None
            }
            Act::GatewayStalls { gateway, ms } => {
                let until = self.now + ms * MS;
                let stalled = &mut self.gateways[gateway % gateways].stalled_until;
                *stalled = until.max(*stalled);
                None
            }
            Act::PlaneDies { plane } => {
                self.plane_dies(plane % 2);
                None
            }
            Act::PlaneStalls { plane, ms } => {
                let until = self.now + ms * MS;
                if let Some(p) = &mut self.planes[plane % 2] {
                    p.stalled_until = until;
                }
                None
            }
            Act::TakeOver { plane } => {
                self.take_over(plane % 2);
                None
            }
            Act::CutReplica { ms, .. }
            | Act::CutPlane { ms, .. }
            | Act::CutPeers { ms, .. }
            | Act::CutStore { ms, .. } => {
                self.cuts.extend(self.cut_of(act));
                Some(ms)
            }
        };
        if let Some(ms) = lasts {
            self.queue.put(self.now + ms * MS, Ev::Repaired(act));
        }
    }

    fn trouble(&mut self, replica: usize, fault: Fault, on: bool) {
        let faults = &mut self.servers[replica].faults;
        match on {
            true => faults.push(fault),
            false => {
                if let Some(at) = faults.iter().position(|f| *f == fault) {
                    faults.remove(at);
                }
            }
        }
    }

    fn cut_of(&self, act: Act) -> Option<Cut> {
        let (gateways, replicas) = (self.gateways.len().max(1), self.servers.len().max(1));
        match act {
            Act::CutReplica { gateway, replica, .. } => Some(Cut::Replica(gateway % gateways, replica % replicas)),
            Act::CutPlane { gateway, plane, .. } => Some(Cut::Plane(gateway % gateways, plane % 2)),
            Act::CutPeers { gateway, other, .. } => {
                let (a, b) = (gateway % gateways, other % gateways);
                Some(Cut::Peers(a.min(b), a.max(b)))
            }
            Act::CutStore { plane, .. } => Some(Cut::Store(plane % 2)),
            _ => None,
        }
    }

    /// What an act has broken is whole again.
    pub(super) fn repaired(&mut self, act: Act) {
        if let Some(cut) = self.cut_of(act) {
            self.cuts.remove(&cut);
        }
        match act {
            Act::ReplicaDies { replica, .. } => self.server_starts(replica % self.servers.len().max(1)),
            Act::Trouble { replica, fault, .. } => self.trouble(replica % self.servers.len().max(1), fault, false),
            Act::GatewayDies { gateway, .. } => {
                let ix = gateway % self.gateways.len().max(1);
                if !self.gateways[ix].up {
                    self.gateway_starts(ix);
                }
            }
            _ => {}
        }
    }

    /// Where nobody leads who reaches the store, somebody else takes over, sooner or later.
    pub(super) fn watch(&mut self) {
        if self.leader().is_none() {
            let plane = usize::try_from(self.chance.below(2)).unwrap_or(0);
            self.take_over(plane);
        }
        let at = self.now + SECOND + self.chance.below(2 * SECOND);
        self.queue.put(at, Ev::Watch);
    }

    /// Everything is repaired; then nothing may be left over, and everybody gets an answer.
    pub(super) fn end(&mut self) {
        self.note(|| "everything is repaired".to_owned());
        self.cuts.clear();
        for replica in 0..self.servers.len() {
            self.servers[replica].faults.clear();
            self.server_starts(replica);
        }
        for ix in 0..self.gateways.len() {
            self.gateways[ix].stalled_until = 0;
            if !self.gateways[ix].up {
                self.gateway_starts(ix);
            }
        }
        self.plane_dies(1);
        self.take_over(0);
        for _ in 0..CALM {
            let until = self.now + SECOND;
            self.until(until);
            self.resume_all();
            if self.is_broken() || self.is_quiet() {
                break;
            }
        }
        if !self.is_broken() && !self.is_quiet() {
            let left = self.left_over();
            self.breaks(format!("ACCT-1: it does not come to its end: {left}"));
        }
        if !self.is_broken() {
            self.asks_everywhere();
        }
    }

    /// Nobody is left to resume what somebody has paused.
    fn resume_all(&mut self) {
        let paused = |(ix, p): (usize, &super::plane::Plane)| {
            let ids = p.running.iter().filter(|(_, r)| r.machine.progress().paused).map(|(id, _)| *id);
            ids.map(|id| (ix, id)).collect::<Vec<_>>()
        };
        let planes = self.planes.iter().enumerate().filter_map(|(ix, p)| Some((ix, p.as_ref()?)));
        for (plane, id) in planes.flat_map(paused).collect::<Vec<_>>() {
            let ask = self.number();
            self.feed(plane, id, vec![Event::Command { ask, command: Command::Resume }]);
        }
    }

    fn is_quiet(&self) -> bool {
        let rolls = self.planes.iter().flatten().any(|p| !p.running.is_empty()) || !self.store.records.is_empty();
        let counts = |g: &super::gateway::Gateway| {
            g.counts.all() == 0 && g.machine.waiting() == 0 && g.requests.is_empty() && g.machine.loads_in_flight() == 0
        };
        !rolls && self.submissions.is_empty() && self.paths.open() == 0 && self.gateways.iter().all(counts)
    }

    fn left_over(&self) -> String {
        let running = self.planes.iter().flatten().flat_map(|p| p.running.values());
        let rolls: Vec<String> = running.map(|r| format!("{:?}", r.machine.progress())).collect();
        let counts: Vec<String> = self
            .gateways
            .iter()
            .map(|g| {
                let (waiting, loads) = (g.machine.waiting(), g.machine.loads_in_flight());
                let counts = format!("{} in flight, {waiting} waiting, {loads} loads", g.counts.all());
                format!("{counts}, {} requests; missing: {}", g.requests.len(), missing(g))
            })
            .collect();
        format!(
            "{} records, {} submissions, roll-outs {rolls:?}, gateways {counts:?}",
            self.store.records.len(),
            self.submissions.len()
        )
    }

    /// Every tenant gets an answer from the version that is pinned in force.
    fn asks_everywhere(&mut self) {
        let before = (self.tally.answered(), self.tally.failed());
        let until = self.now + 20 * SECOND;
        self.traffic_ends = until;
        self.queue.put(self.now, Ev::Arrives);
        self.until(until);
        self.until(until + 60 * SECOND);
        let after = (self.tally.answered(), self.tally.failed());
        let (answered, failed) = (after.0 - before.0, after.1 - before.1);
        // Clients still leave in the middle.
        if !self.is_broken() && failed * 5 > answered {
            self.breaks(format!("after the repair {failed} submissions failed and {answered} were answered"));
        }
    }
}

/// What a gateway wants somewhere and does not have there.
fn missing(gateway: &super::gateway::Gateway) -> String {
    let report = gateway.machine.report();
    let rows = report.replicas.iter().filter(|row| row.missing.iter().any(|m| m.wanted));
    let row = |row: &holdfast_placement::residency::ReplicaReport| {
        let held: Vec<String> = row
            .holdings
            .iter()
            .map(|h| format!("{} {:?}{}", h.version.0 + 1, h.state, if h.wanted { " wanted" } else { "" }))
            .collect();
        let missing = row.missing.iter().filter(|m| m.wanted).map(|m| format!("{} ({})", m.version.0 + 1, m.why));
        format!("replica {} holds {held:?}, misses {:?}", row.replica.0, missing.collect::<Vec<_>>())
    };
    rows.map(row).collect::<Vec<_>>().join("; ")
}

impl Outcome {
    /// One line that says all that was counted: the same for the same history.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{:?} {:?}", self.broken, self.tally)
    }
}
