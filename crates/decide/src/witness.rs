//! The promises of the request path as predicates, for tests and simulation: PIN-1, PIN-2, ROUTE-1.
//!
//! A [`Witness`] looks on over all gateways: tell it each table that a gateway serves, each decision, and each answer that a client gets.

use std::collections::BTreeMap;

use holdfast_placement::invariants::Violation;
use holdfast_types::{Invariant, Revision, Version};

use crate::{Decision, Reason};

/// What was decided for a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resolved {
    version: Version,
    /// By gateway and its process, each with the revision that it decided under.
    under: Vec<(u64, Revision)>,
}

/// Books over gateways and submissions.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    tables: BTreeMap<u64, Revision>,
    open: BTreeMap<u64, Resolved>,
}

fn hold(condition: bool, invariant: Invariant, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(Violation { invariant, what: what() }) }
}

impl Witness {
    /// A gateway serves under this table from now on: after a change, and after a start.
    ///
    /// # Errors
    /// It has served under a later one (ROUTE-1).
    pub fn serves(&mut self, gateway: u64, revision: Revision) -> Result<(), Violation> {
        let before = self.tables.insert(gateway, revision).unwrap_or_default();
        hold(before <= revision, Invariant::Route1, || {
            format!("gateway {gateway} serves under {revision} after {before}")
        })
    }

    /// A gateway has decided for a submission. A client that tries again may name the version that it was told; nobody asks the table again.
    ///
    /// # Errors
    /// A second resolution of one submission (PIN-2); a revision that is not the gateway's (ROUTE-1).
    pub fn resolved(&mut self, submission: u64, gateway: u64, decision: &Decision<'_>) -> Result<(), Violation> {
        let (revision, version) = (decision.revision, &decision.route.version);
        let table = self.tables.get(&gateway).copied().unwrap_or_default();
        hold(table == revision, Invariant::Route1, || {
            format!("submission {submission} is decided under {revision}, the gateway serves under {table}")
        })?;
        let Some(known) = self.open.get_mut(&submission) else {
            let new = Resolved { version: version.clone(), under: vec![(gateway, revision)] };
            self.open.insert(submission, new);
            return Ok(());
        };
        let same = decision.reason == Reason::Explicit && known.version == *version;
        hold(same, Invariant::Pin2, || {
            format!("submission {submission} was resolved to {}, and is again, to {version}", known.version)
        })?;
        known.under.push((gateway, revision));
        Ok(())
    }

    /// A client has its answer: by which version, and stamped with which revision.
    ///
    /// # Errors
    /// Another version has served than was resolved (PIN-1), or the stamp is not of the revision that it was resolved under (ROUTE-1).
    pub fn answered(
        &mut self,
        submission: u64,
        gateway: u64,
        served: &Version,
        stamp: Revision,
    ) -> Result<(), Violation> {
        let Some(known) = self.open.remove(&submission) else {
            return hold(false, Invariant::Pin2, || {
                format!("submission {submission} is answered and was not resolved")
            });
        };
        hold(known.version == *served, Invariant::Pin1, || {
            format!("submission {submission} was resolved to {} and served by {served}", known.version)
        })?;
        hold(known.under.contains(&(gateway, stamp)), Invariant::Route1, || {
            format!("submission {submission} is stamped {stamp}, resolved under {:?}", known.under)
        })
    }

    /// The client has given the submission up.
    pub fn ended(&mut self, submission: u64) {
        self.open.remove(&submission);
    }

    /// Submissions that were resolved and have no end yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{ModelName, PoolName, ReplicaName, TenantId, Weight};

    use super::*;
    use crate::{Ask, ModelInput, PinChange, PoolInput, Snapshot, TableInput, TenantInput, Unavailable, decide};

    fn table() -> Snapshot {
        let (v, m) = (|name: &str| Version::parse(name).unwrap(), ModelName::parse("m").unwrap());
        let versions = ["1", "2"].map(|name| (v(name), name.into(), name.into())).to_vec();
        let input = TableInput {
            pools: vec![PoolInput {
                name: PoolName::parse("p").unwrap(),
                members: vec![(ReplicaName::parse("r").unwrap(), Weight(1))],
            }],
            models: vec![ModelInput { name: m.clone(), pool: 0, idempotent: true, versions }],
            tenants: vec![TenantInput {
                name: TenantId::parse("t").unwrap(),
                subset: 1,
                unavailable: Unavailable::Wait,
                pins: vec![(m.clone(), v("1"))],
                allow: vec![(m.clone(), v("1")), (m, v("2"))],
            }],
            ..TableInput::default()
        };
        Snapshot::build(Revision(3), input).unwrap()
    }

    fn ask(version: Option<&str>) -> Ask<'_> {
        Ask { tenant: "t", model: "m", version, submission: b"1" }
    }

    fn flipped(table: &Snapshot) -> Snapshot {
        let (tenant, model) = (TenantId::parse("t").unwrap(), ModelName::parse("m").unwrap());
        let change = PinChange { tenant, model, version: Version::parse("2").unwrap() };
        table.with_pins(Revision(4), &[change]).unwrap()
    }

    fn broken(result: Result<(), Violation>) -> Option<Invariant> {
        result.err().map(|violation| violation.invariant)
    }

    #[test]
    fn each_promise_that_is_broken_is_seen() {
        let (old, v) = (table(), |name: &str| Version::parse(name).unwrap());
        let new = flipped(&old);
        let mut witness = Witness::default();
        assert_eq!(broken(witness.serves(1, Revision(3))), None);
        let decide_on = |table, version| decide(table, &ask(version)).unwrap();
        assert_eq!(broken(witness.resolved(7, 1, &decide_on(&old, None))), None);
        assert_eq!(broken(witness.serves(1, Revision(4))), None);
        // The client tries again across a flip: it names the version, or the pin is looked up again.
        assert_eq!(broken(witness.clone().resolved(7, 1, &decide_on(&new, Some("1")))), None);
        assert_eq!(broken(witness.clone().resolved(7, 1, &decide_on(&new, None))), Some(Invariant::Pin2));
        assert_eq!(broken(witness.clone().resolved(8, 1, &decide_on(&old, None))), Some(Invariant::Route1));
        assert_eq!(broken(witness.clone().answered(7, 1, &v("2"), Revision(3))), Some(Invariant::Pin1));
        assert_eq!(broken(witness.clone().answered(7, 1, &v("1"), Revision(4))), Some(Invariant::Route1));
        assert_eq!(broken(witness.clone().answered(9, 1, &v("1"), Revision(3))), Some(Invariant::Pin2));
        assert_eq!(broken(witness.clone().answered(7, 1, &v("1"), Revision(3))), None);
        assert_eq!(broken(witness.serves(1, Revision(3))), Some(Invariant::Route1));
    }
}
