//! What all live gateways say, put together: one report of each version on each replica.

use std::collections::{BTreeSet, HashMap};

use holdfast_decide::rollout::{Artifact, GatewayView, Report, RolloutId};
use holdfast_plane::{Figures, Observed};
use holdfast_types::{GatewayName, PoolName, ReplicaName};

use super::running::Pair;
use super::sessions::{Fleet, Seen};

/// What is said of one version on one replica.
#[derive(Debug, Default)]
struct Said {
    proven: usize,
    loaded: usize,
    failed: Option<(String, bool)>,
    wrong: Option<String>,
    /// Loads that failed in a row, by those who count any.
    failures: Vec<(GatewayName, u32)>,
}

/// What is said of one replica.
#[derive(Debug, Default)]
struct Place {
    /// Gateways that have it in service.
    serving: usize,
    versions: HashMap<Artifact, Said>,
}

/// The reports of all live gateways.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Some live gateway has told of its replicas.
    any: bool,
    places: HashMap<PoolName, HashMap<ReplicaName, Place>>,
}

impl Reports {
    pub(super) fn of(fleet: &Fleet) -> Self {
        let mut reports = Self::default();
        for gateway in fleet.gateways.iter().filter(|g| g.leased && !g.stranger) {
            reports.any |= !gateway.status.replicas.is_empty();
            for replica in &gateway.status.replicas {
                let pool = reports.places.entry(replica.pool.clone()).or_default();
                let place = pool.entry(replica.replica.clone()).or_default();
                // What a gateway says of a replica that is out of service for it counts for nothing.
                if replica.in_service {
                    place.serving += 1;
                    for Observed { artifact, report, failures } in &replica.versions {
                        let said = place.versions.entry(artifact.clone()).or_default();
                        said.hear(report);
                        if *failures > 0 {
                            said.failures.push((gateway.status.gateway.clone(), *failures));
                        }
                    }
                }
            }
        }
        reports
    }

    /// Loads that failed in a row, by the gateways that count any.
    pub(super) fn failures_of(&self, replica: &ReplicaName, artifact: &Artifact) -> &[(GatewayName, u32)] {
        let place = self.places.get(&artifact.pool).and_then(|pool| pool.get(replica));
        place.and_then(|place| place.versions.get(artifact)).map_or(&[], |said| &said.failures)
    }

    /// All of them.
    pub(super) fn failures(&self) -> impl Iterator<Item = (Pair, &[(GatewayName, u32)])> {
        let places = self.places.values().flatten();
        let said = places.flat_map(|(replica, place)| place.versions.iter().map(move |(a, said)| (replica, a, said)));
        let failing = said.filter(|(.., said)| !said.failures.is_empty());
        failing.map(|(replica, artifact, said)| ((replica.clone(), artifact.clone()), said.failures.as_slice()))
    }

    /// `None`: nobody says anything yet. Proven is what all who see the replica in service call proven; one failure is enough, as long as nobody
    /// has it loaded.
    pub(super) fn of_pair(&self, replica: &ReplicaName, artifact: &Artifact) -> Option<Report> {
        let place = self.places.get(&artifact.pool).and_then(|pool| pool.get(replica));
        let Some(place) = place.filter(|p| p.serving > 0) else { return self.any.then_some(Report::Lost) };
        let Some(said) = place.versions.get(artifact) else { return Some(Report::Absent) };
        Some(match said {
            Said { wrong: Some(words), .. } => Report::Wrong { words: words.clone() },
            Said { proven, .. } if *proven == place.serving => Report::Proven,
            Said { proven, loaded, .. } if proven + loaded == place.serving => Report::Loaded,
            Said { failed: Some((words, permanent)), proven: 0, loaded: 0, .. } => {
                Report::Failed { words: words.clone(), permanent: *permanent }
            }
            Said { proven: 0, loaded: 0, .. } => Report::Absent,
            // Some have not looked yet.
            Said { .. } => Report::Loaded,
        })
    }
}

impl Said {
    fn hear(&mut self, report: &Report) {
        match report {
            Report::Proven => self.proven += 1,
            Report::Loaded => self.loaded += 1,
            Report::Failed { words, permanent } => {
                let worse = self.failed.as_ref().is_none_or(|(_, known)| *permanent && !known);
                if worse {
                    self.failed = Some((words.clone(), *permanent));
                }
            }
            Report::Wrong { words } => self.wrong = Some(words.clone()),
            Report::Absent | Report::Lost => {}
        }
    }
}

/// The gateways as one roll-out sees them.
pub(super) fn views(fleet: &Fleet, rollout: RolloutId) -> Vec<GatewayView> {
    let view = |seen: &Seen| GatewayView {
        name: seen.status.gateway.clone(),
        leased: seen.leased,
        in_force: seen.status.in_force,
        oldest: seen.status.oldest,
        prepared: seen.status.prepared.iter().find(|(id, _)| *id == rollout).map(|(_, proposal)| *proposal),
    };
    fleet.gateways.iter().map(view).collect()
}

/// Copied requests of a roll-out's pin over all gateways: compared, differed.
pub(super) fn shadowed(fleet: &Fleet, rollout: RolloutId) -> HashMap<usize, (u64, u64)> {
    let mut sums = HashMap::new();
    for said in fleet.gateways.iter().flat_map(|g| &g.status.shadowed).filter(|s| s.rollout == rollout) {
        let sum: &mut (u64, u64) = sums.entry(said.pin).or_default();
        *sum = (sum.0.saturating_add(said.compared), sum.1.saturating_add(said.differed));
    }
    sums
}

/// What was measured of the steps of a roll-out's canary over all gateways, by pin and step: the canary's, and the baseline's.
pub(super) fn measured(fleet: &Fleet, rollout: RolloutId) -> HashMap<(usize, usize), [Figures; 2]> {
    let mut sums: HashMap<(usize, usize), [Figures; 2]> = HashMap::new();
    for said in fleet.gateways.iter().flat_map(|g| &g.status.measured).filter(|m| m.rollout == rollout) {
        let [canary, baseline] = sums.entry((said.pin, said.step)).or_default();
        canary.join(&said.canary);
        baseline.join(&said.baseline);
    }
    sums
}

/// The live gateways with a link, in order of their names.
pub(super) fn live(fleet: &Fleet) -> BTreeSet<GatewayName> {
    fleet.gateways.iter().filter(|g| g.leased && !g.stranger).map(|g| g.status.gateway.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_plane::{ReplicaStatus, Status};
    use holdfast_types::{ModelName, Version};
    use std::sync::Arc;

    fn artifact() -> Artifact {
        let (pool, model) = (PoolName::parse("gpu").unwrap(), ModelName::parse("m").unwrap());
        Artifact { pool, model, version: Version::parse("2").unwrap() }
    }

    fn gateway(name: &str, leased: bool, in_service: bool, report: Option<Report>) -> Seen {
        let mut status = Status::of(GatewayName::parse(name).unwrap());
        status.replicas.push(ReplicaStatus {
            pool: artifact().pool,
            replica: ReplicaName::parse("r").unwrap(),
            in_service,
            in_flight: 0,
            versions: report.into_iter().map(|report| Observed { artifact: artifact(), report, failures: 0 }).collect(),
        });
        Seen { leased, stranger: false, status: Arc::new(status) }
    }

    fn combined(gateways: Vec<Seen>) -> Option<Report> {
        let reports = Reports::of(&Fleet { roster: 0, gateways });
        reports.of_pair(&ReplicaName::parse("r").unwrap(), &artifact())
    }

    #[test]
    fn proven_is_what_all_who_see_it_call_proven() {
        let (proven, failed) =
            (Some(Report::Proven), |w: &str| Some(Report::Failed { words: w.into(), permanent: false }));
        assert_eq!(combined(vec![]), None);
        let two = |a: (bool, Option<Report>), b: (bool, Option<Report>)| {
            combined(vec![gateway("a", true, a.0, a.1), gateway("b", true, b.0, b.1)])
        };
        assert_eq!(two((true, proven.clone()), (true, proven.clone())), proven);
        assert_eq!(two((true, proven.clone()), (true, None)), Some(Report::Loaded), "b has not looked yet");
        assert_eq!(two((true, proven.clone()), (true, Some(Report::Loaded))), Some(Report::Loaded));
        assert_eq!(two((true, proven.clone()), (false, None)), proven, "out of service for b");
        assert_eq!(two((false, proven.clone()), (false, None)), Some(Report::Lost));
        assert_eq!(two((true, None), (true, None)), Some(Report::Absent));
        assert_eq!(two((true, failed("no room")), (true, None)), failed("no room"));
        assert_eq!(two((true, failed("no room")), (true, proven.clone())), Some(Report::Loaded));
        let wrong = Some(Report::Wrong { words: "digest".into() });
        assert_eq!(two((true, proven.clone()), (true, wrong.clone())), wrong);
        let dead = gateway("c", false, true, None);
        assert_eq!(
            combined(vec![gateway("a", true, true, proven.clone()), dead]),
            proven,
            "without a lease it is not heard"
        );
    }
}
