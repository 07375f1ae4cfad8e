//! Admission by itself, for measurements: a tenant's limits without a gateway around them.

use std::sync::Arc;

use holdfast_config::{Config, LimitedEndpoint};
use holdfast_types::{ModelName, Mono, TenantId};

use super::admit::OnConnection;
use super::{Asking, Kept, RouteLimits};

/// See the module.
pub struct Measured {
    route: Option<Box<RouteLimits>>,
    on: OnConnection,
}

impl Measured {
    /// The limits of a tenant's requests for a model.
    #[must_use]
    pub fn new(config: &Config, tenant: &TenantId, model: &ModelName) -> Self {
        let table = Arc::new(Kept::default()).table(config);
        Self { route: table.route(tenant, model), on: OnConnection::default() }
    }

    /// Admits a request of a user and ends it, served. Whether it was admitted.
    pub fn request(&self, now: Mono, user: &[u8], bytes: u64) -> bool {
        let Some(route) = &self.route else { return true };
        let asking = Asking {
            now,
            endpoint: LimitedEndpoint::Infer,
            user: route.who(user),
            plan: None,
            on: &self.on,
            bytes,
            again: false,
            credit: false,
        };
        let Ok(taken) = route.admit(&asking, |_| {}) else { return false };
        route.settle(&self.on, now, &taken, true, bytes);
        true
    }
}
