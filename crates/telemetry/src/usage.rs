//! What each tenant used: a compact table beside the metrics, since a million tenants are no label set.
//!
//! Totals count from the start of the process and are never taken back, also when a tenant leaves the configuration. Tenants over the
//! table's bound share one account, so that the sum over all accounts is always the whole.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast_types::TenantId;
use parking_lot::RwLock;

use crate::outcome::Outcome;

/// One tenant's running totals since the process started.
#[derive(Debug, Default)]
pub struct TenantAccount {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    upstream_nanos: AtomicU64,
}

impl TenantAccount {
    /// Adds a request that has ended.
    #[inline]
    pub(crate) fn add(&self, outcome: &Outcome) {
        self.requests.fetch_add(1, Relaxed);
        // Nothing is added where there is nothing to add: the account's line in the cache is shared by all threads.
        if outcome.is_error() {
            self.errors.fetch_add(1, Relaxed);
        }
        if outcome.bytes_in > 0 {
            self.bytes_in.fetch_add(outcome.bytes_in, Relaxed);
        }
        if outcome.bytes_out > 0 {
            self.bytes_out.fetch_add(outcome.bytes_out, Relaxed);
        }
        if let Some(upstream) = outcome.timing.upstream {
            self.upstream_nanos.fetch_add(u64::try_from(upstream.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        }
    }

    /// The totals now. Each is exact; a request that ends meanwhile may be in one and not yet in another.
    #[must_use]
    pub fn read(&self, tenant: Option<TenantId>) -> Usage {
        Usage {
            tenant,
            requests: self.requests.load(Relaxed),
            errors: self.errors.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            upstream_nanos: self.upstream_nanos.load(Relaxed),
        }
    }
}

/// A reading of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The tenant; None for the shared account of tenants over the table's bound.
    pub tenant: Option<TenantId>,
    /// Requests that ended.
    pub requests: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of answer bodies.
    pub bytes_out: u64,
    /// Time that model servers spent, in nanoseconds.
    pub upstream_nanos: u64,
}

/// All accounts.
#[derive(Debug)]
pub(crate) struct Accounts {
    most: usize,
    by_tenant: RwLock<BTreeMap<TenantId, Arc<TenantAccount>>>,
    rest: Arc<TenantAccount>,
}

impl Accounts {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, by_tenant: RwLock::default(), rest: Arc::default() }
    }

    /// The tenant's account, made on first use.
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<TenantAccount> {
        if let Some(found) = self.find(tenant) {
            return found;
        }
        let mut accounts = self.by_tenant.write();
        if accounts.len() >= self.most && !accounts.contains_key(tenant) {
            return Arc::clone(&self.rest);
        }
        Arc::clone(accounts.entry(tenant.clone()).or_default())
    }

    /// The tenant's account, if it has one of its own.
    pub(crate) fn find(&self, tenant: &TenantId) -> Option<Arc<TenantAccount>> {
        self.by_tenant.read().get(tenant).cloned()
    }

    /// At most `limit` readings, by name, of the tenants after `after`.
    pub(crate) fn page(&self, after: Option<&TenantId>, limit: usize) -> Vec<Usage> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let accounts = self.by_tenant.read();
        let page = accounts.range::<TenantId, _>((from, Bound::Unbounded)).take(limit);
        page.map(|(tenant, account)| account.read(Some(tenant.clone()))).collect()
    }

    /// The shared account of tenants over the bound, if there are any.
    pub(crate) fn rest(&self) -> Option<Usage> {
        Some(self.rest.read(None)).filter(|rest| rest.requests > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    #[test]
    fn an_account_is_five_words() {
        assert_eq!(size_of::<TenantAccount>(), 40);
    }

    #[test]
    fn pages_follow_one_another_and_the_rest_is_shared() {
        let accounts = Accounts::new(3);
        for name in ["b", "a", "c", "d", "e", "a"] {
            accounts.of(&tenant(name)).add(&record("id", 503).outcome);
        }
        let first = accounts.page(None, 2);
        let names = |page: &[Usage]| page.iter().filter_map(|u| u.tenant.as_ref().map(ToString::to_string)).collect();
        let names: fn(&[Usage]) -> Vec<String> = names;
        assert_eq!(names(&first), ["a", "b"]);
        assert_eq!(names(&accounts.page(first[1].tenant.as_ref(), 2)), ["c"]);
        let a = &first[0];
        assert_eq!((a.requests, a.errors, a.bytes_in, a.bytes_out, a.upstream_nanos), (2, 2, 2048, 400, 2_360_000));
        assert_eq!(accounts.rest().map(|rest| rest.requests), Some(2));
    }
}
