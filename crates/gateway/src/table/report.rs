//! What this gateway says of itself and of what it sees.

use std::collections::{BTreeMap, HashMap};

use holdfast_decide::PinChange;
use holdfast_decide::rollout::{Artifact, MAX_WORDS, Report};
use holdfast_placement::residency::{ReplicaIx, ReplicaReport, State, VersionIx};
use holdfast_plane::{Observed, Orders, Prepare, ReplicaStatus, Status};
use holdfast_types::GatewayName;

use super::{Table, Tables, wanted};
use crate::fleet::{Pool, Replica};
use crate::replicas::in_the_way;

impl Tables {
    pub(super) fn status(&self, gateway: GatewayName) -> Status {
        let table = self.current.load_full();
        let (orders, refused) = {
            let state = self.state.lock();
            (state.orders.clone(), state.refused.clone())
        };
        let in_force = table.told.revision;
        let mut status = Status {
            in_force,
            oldest: self.revisions.oldest().unwrap_or(in_force),
            refused,
            replicas: self.replicas(&table, &orders),
            shadowed: self.shadows.totals(),
            measured: self.measures.totals(),
            retired: self.retired(),
            ..Status::of(gateway)
        };
        for prepare in orders.prepare.iter() {
            match self.is_prepared(&table, prepare) {
                Ok(true) => status.prepared.push((prepare.rollout, prepare.proposal)),
                Ok(false) => {}
                Err(words) => status.unprepared.push((prepare.rollout, prepare.proposal, words)),
            }
        }
        status
    }

    /// Whether every replica in service of the new keys' subsets shows the new versions as proven, on the table that the flip builds on.
    fn is_prepared(&self, table: &Table, prepare: &Prepare) -> Result<bool, String> {
        if table.told.revision < prepare.proposal.base {
            return Ok(false);
        }
        for flip in prepare.flips.iter().filter(|flip| flip.share > 0) {
            let change =
                PinChange { tenant: flip.tenant.clone(), model: flip.model.clone(), version: flip.new.clone() };
            let Some(route) = wanted::target(table, &change) else {
                return Err(format!("version {} of {} is not in the table of {}", flip.new, flip.model, flip.tenant));
            };
            let cells = wanted::cells(&self.driver, table, &route);
            if !cells.is_some_and(|cells| cells.iter().all(|cell| cell.holds())) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn replicas(&self, table: &Table, orders: &Orders) -> Vec<ReplicaStatus> {
        let report = (!orders.observe.is_empty()).then(|| self.driver.report());
        let rows: HashMap<ReplicaIx, &ReplicaReport> =
            report.iter().flat_map(|report| report.replicas.iter().map(|row| (row.replica, row))).collect();
        let replicas = table.pools.iter().flat_map(|pool| pool.replicas.iter().map(move |replica| (pool, replica)));
        let status = replicas.map(|(pool, replica)| {
            let here = orders.observe.iter().filter(|artifact| artifact.pool == pool.name);
            let versions = here.filter_map(|artifact| self.observed(pool, replica, artifact, rows.get(&replica.ix)?));
            ReplicaStatus {
                pool: pool.name.clone(),
                replica: replica.name.clone(),
                in_service: replica.in_service(),
                in_flight: replica.in_flight(),
                versions: versions.collect(),
            }
        });
        status.collect()
    }

    fn observed(&self, pool: &Pool, replica: &Replica, artifact: &Artifact, row: &ReplicaReport) -> Option<Observed> {
        let version = pool.version(&artifact.model, &artifact.version)?.ix;
        let (report, failures) = self.report(replica, version, row)?;
        Some(Observed { artifact: artifact.clone(), report, failures })
    }

    /// What there is to say of a version on a replica. None: it is absent.
    fn report(&self, replica: &Replica, version: VersionIx, row: &ReplicaReport) -> Option<(Report, u32)> {
        let missing = row.missing.iter().find(|m| m.version == version);
        let failures = missing.map_or(0, |m| m.failures);
        if self.driver.fleet.cell(replica.ix, version)?.holds() {
            return Some((Report::Proven, 0));
        }
        let held = row.holdings.iter().find(|held| held.version == version);
        match held.map(|held| held.state) {
            Some(State::Quarantined) => {
                let words = bounded(held.and_then(|held| held.why.as_deref()).unwrap_or("it is quarantined"));
                return Some((Report::Wrong { words }, failures));
            }
            Some(State::Unproven | State::Verifying | State::Held) => return Some((Report::Loaded, failures)),
            _ => {}
        }
        // Without a failure it is no try of anybody's: it says what the load waits for.
        let missing = missing.filter(|m| m.failures > 0 || held.is_none())?;
        let words = match missing.why.as_str() {
            "" => in_the_way(&self.driver.fleet, row)?,
            why => why.to_owned(),
        };
        Some((Report::Failed { words: bounded(&words), permanent: false }, failures))
    }

    /// Names upstream under which replicas may still hold versions that no table names any more, and what they were.
    #[must_use]
    pub fn retired(
        &self,
    ) -> BTreeMap<(holdfast_types::PoolName, String), (holdfast_types::ModelName, holdfast_types::Version)> {
        let pools = self.driver.fleet.pools();
        let facts = pools
            .iter()
            .flat_map(|pool| self.driver.fleet.retired(&pool.name).into_iter().map(|facts| (pool.name.clone(), facts)));
        facts.map(|(pool, f)| ((pool, f.upstream_model.to_string()), (f.model.clone(), f.version.clone()))).collect()
    }
}

fn bounded(words: &str) -> String {
    words.get(..words.floor_char_boundary(MAX_WORDS)).unwrap_or_default().to_owned()
}
