//! Whose fault a model's own failure is: the replica's, or that of the one tenant whose input the model cannot bear.
//!
//! A model that fails on an input says so with a 500, and so does one that is broken. Who sees it tells the two apart: a row
//! of such answers counts against the replica only once a second tenant is in it. A success ends the row. The same for a server that asks for a
//! pause: it may limit one tenant.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use holdfast_placement::residency::ReplicaIx;
use holdfast_types::TenantId;

/// Most rows that are kept; the oldest is forgotten for another.
const ROWS: usize = 1024;

/// What a tenant has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// A 500, a status that no inference has, or a connection that ended without an answer.
    Failure,
    /// 429 or 503.
    Pressure,
}

/// A row of the same at one replica.
struct Row {
    replica: ReplicaIx,
    met: Met,
    first: TenantId,
    shared: bool,
}

/// The rows that no success has ended.
#[derive(Default)]
pub struct Blame {
    /// Read for every success, the rest only while something is wrong.
    any: AtomicBool,
    rows: Mutex<VecDeque<Row>>,
}

impl Blame {
    /// Takes note of what a tenant has met. True if it counts against the replica: more than one tenant has met it in a row.
    pub fn met(&self, met: Met, replica: ReplicaIx, tenant: &TenantId) -> bool {
        let mut rows = self.rows.lock();
        self.any.store(true, Relaxed);
        if let Some(row) = rows.iter_mut().find(|row| row.replica == replica && row.met == met) {
            row.shared |= row.first != *tenant;
            return row.shared;
        }
        if rows.len() >= ROWS {
            rows.pop_front();
        }
        rows.push_back(Row { replica, met, first: tenant.clone(), shared: false });
        false
    }

    /// Takes note of a success, which ends the replica's rows. Costs one atomic read while there is no row at all.
    pub fn answered(&self, replica: ReplicaIx) {
        if !self.any.load(Relaxed) {
            return;
        }
        let mut rows = self.rows.lock();
        rows.retain(|row| row.replica != replica);
        self.any.store(!rows.is_empty(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Met::{Failure, Pressure};
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    #[test]
    fn one_tenant_alone_blames_nobody() {
        let (blame, at) = (Blame::default(), ReplicaIx(1));
        for n in 0..100 {
            assert!(!blame.met(Failure, at, &tenant("evil")), "{n}");
        }
        assert!(!blame.met(Failure, ReplicaIx(2), &tenant("acme")), "another replica has a row of its own");
        assert!(blame.met(Failure, at, &tenant("acme")));
        assert!(blame.met(Failure, at, &tenant("evil")), "the row is shared until it ends");
    }

    #[test]
    fn a_success_ends_the_row_of_its_replica_only() {
        let (blame, at, other) = (Blame::default(), ReplicaIx(1), ReplicaIx(2));
        assert!(!blame.met(Failure, at, &tenant("evil")) && !blame.met(Failure, other, &tenant("evil")));
        blame.answered(at);
        assert!(!blame.met(Failure, at, &tenant("acme")), "it begins anew");
        assert!(blame.met(Failure, other, &tenant("acme")), "it has not ended");
    }

    #[test]
    fn rows_are_bounded() {
        let blame = Blame::default();
        for n in 0..10_000 {
            assert!(!blame.met(Failure, ReplicaIx(n), &tenant("evil")));
        }
        assert_eq!(blame.rows.lock().len(), ROWS);
    }

    #[test]
    fn a_pause_and_a_failure_are_no_row() {
        let (blame, at) = (Blame::default(), ReplicaIx(1));
        assert!(!blame.met(Failure, at, &tenant("evil")) && !blame.met(Pressure, at, &tenant("acme")));
        assert!(blame.met(Pressure, at, &tenant("evil")) && blame.met(Failure, at, &tenant("acme")));
        blame.answered(at);
        assert!(!blame.met(Pressure, at, &tenant("evil")) && !blame.met(Failure, at, &tenant("acme")));
    }
}
