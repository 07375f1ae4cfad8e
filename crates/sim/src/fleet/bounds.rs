//! The promises that only who sees all gateways can check: LOAD-1 and LOAD-2 over the whole fleet, by what the replicas are really doing.

use holdfast_placement::residency::{Op, Usage};
use holdfast_placement::seats::promises::{Loading, User, drops_nothing_in_use, loads_within, one_copy_stays};

use super::gateway::{Gateway, pair};
use super::world::{Process, World};

impl World<'_> {
    /// A replica has begun a load.
    pub(super) fn load_has_begun(&mut self, by: Process) {
        let leads = self.leader().is_some_and(|plane| !self.cut_plane(by.ix, plane));
        self.tally.voted += u64::from(!leads);
        let mut all = Vec::new();
        for (replica, server) in self.servers.iter().enumerate() {
            let server_ix = super::server::server_ix(replica).0;
            let asks = server.loads.iter().flat_map(|load| &load.from);
            all.extend(asks.map(|(from, op)| Loading { server: server_ix, seen: self.is_seen(replica, *from, *op) }));
        }
        let checked = loads_within(&all, self.setup.loads.0 as usize, self.setup.loads.1 as usize);
        self.checked(checked);
        self.one_seating();
    }

    /// Whoever asked for the load reaches its replica, or counts it still. If that process is gone, all who may start loads now reach the replica.
    fn is_seen(&self, replica: usize, from: Process, op: Op) -> bool {
        let usable = |g: &Gateway| g.replicas.get(replica).is_some_and(|seen| seen.health.usable());
        let asker = &self.gateways[from.ix];
        if asker.up && asker.process == from.number {
            return usable(asker) || asker.witness.counts(self.local(from.ix), op);
        }
        self.gateways.iter().enumerate().filter(|(ix, _)| self.may_load(*ix)).all(|(_, g)| usable(g))
    }

    /// A replica drops a version because a gateway says so.
    pub(super) fn unloads(&mut self, replica: usize, from: Process, op: Op, version: u32) {
        let consent = self.consents.remove(&(from, op)).unwrap_or_default();
        if self.servers[replica].held.remove(&version).is_none() {
            return;
        }
        self.tally.unloads += 1;
        let (place, now) = (pair(replica, version), self.now);
        self.note(|| format!("gateway {} has version {} unloaded from replica {replica}", from.ix, version + 1));
        let user = |(ix, g): (usize, &Gateway)| {
            let used: &dyn Usage = &g.counts;
            let process = Process { ix, number: g.process };
            // A word is kept for a time; whose clock was set ahead since believes it over.
            let gave = consent.gave.contains(&process) && now.saturating_sub(g.jumped) > 2 * Gateway::STEP;
            User { in_flight: used.in_flight(place.0, place.1), asked: gave || process == from }
        };
        let users: Vec<User> = self.gateways.iter().enumerate().filter(|(_, g)| g.up).map(user).collect();
        self.tally.unasked += u64::from(users.iter().any(|user| !user.asked && user.in_flight > 0));
        let what = format!("version {} on replica {replica}", version + 1);
        let checked = drops_nothing_in_use(&what, users);
        self.checked(checked);
        let meanwhile = |s: &super::server::Server| {
            s.left.get(&version).is_some_and(|(at, by)| *at >= consent.decided && *by != from.ix)
        };
        let others = || self.servers.iter().enumerate().filter(|(ix, _)| *ix != replica).map(|(_, s)| s);
        let left = others().filter(|s| s.held.contains_key(&version)).count();
        if consent.renews {
            return;
        }
        let pinned = self.pins_of(&self.store.table).iter().any(|(_, v)| *v == version);
        let checked = one_copy_stays(&what, pinned, left, others().any(meanwhile));
        self.checked(checked);
        self.servers[replica].left.insert(version, (now, from.ix));
    }
}
