//! Which series a route counts into: tenants by name up to a bound, `other` beyond it, one series for all routes of the same labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use holdfast_types::{ModelName, TenantId, Version};
use parking_lot::Mutex;

use crate::family::{Family, Label, OTHER};
use crate::histogram::{Histogram, LATENCY};
use crate::registry::Registry;
use crate::route::{Durations, Requests, RouteSeries};

/// Model and version; None for a request that was not resolved, where both are shown empty.
pub(crate) type Resolved = Option<(ModelName, Version)>;

#[derive(Debug, Default)]
struct State {
    /// Tenants shown by name.
    named: BTreeSet<TenantId>,
    /// What routes hold. A tenant of None stands for those that are not shown by name.
    series: BTreeMap<(Option<TenantId>, Resolved), Weak<RouteSeries>>,
}

impl State {
    /// The tenant if it is shown by name.
    fn shown(&mut self, tenant: &TenantId, most: usize) -> Option<TenantId> {
        if !self.named.contains(tenant) {
            if self.named.len() >= most {
                return None;
            }
            self.named.insert(tenant.clone());
        }
        Some(tenant.clone())
    }
}

/// The families that routes count into, and the series that they hold.
#[derive(Debug)]
pub(crate) struct Routes {
    most_tenants: usize,
    requests: Requests,
    durations: [Family<Histogram, 2>; 3],
    state: Mutex<State>,
}

impl Routes {
    pub(crate) fn register(registry: &Registry, most_tenants: usize) -> Self {
        let (tenant, model, version) = (Label::open("tenant"), Label::open("model"), Label::open("version"));
        let requests = registry.family(
            "holdfast_requests_total",
            "Requests that ended, by tenant, resolved model and version, endpoint and status (499: the client left).",
            [tenant, model, version, Label::closed("endpoint"), Label::closed("status")],
            (),
        );
        let durations = [
            (
                "holdfast_request_duration_seconds",
                "End to end: from the head's first byte to the answer's last, or to the abort.",
            ),
            (
                "holdfast_upstream_duration_seconds",
                "From dispatch to the end of the model server's answer, over all attempts.",
            ),
            (
                "holdfast_gateway_overhead_seconds",
                "End to end, less waiting for a turn or a load, less the model server.",
            ),
        ];
        let durations = durations.map(|(name, help)| registry.family(name, help, [model, version], &LATENCY));
        Self { most_tenants, requests, durations, state: Mutex::default() }
    }

    /// The series of a tenant's route. Takes locks.
    pub(crate) fn series(&self, tenant: &TenantId, resolved: Resolved) -> Arc<RouteSeries> {
        let mut state = self.state.lock();
        let key = (state.shown(tenant, self.most_tenants), resolved);
        if let Some(series) = state.series.get(&key).and_then(Weak::upgrade) {
            return series;
        }
        let shown = key.0.as_ref().map_or(OTHER, TenantId::as_str);
        let (model, version) = key.1.as_ref().map_or(("", ""), |(model, version)| (model.as_str(), version.as_str()));
        let series = Arc::new(self.fresh([shown, model, version]));
        state.series.insert(key, Arc::downgrade(&series));
        series
    }

    /// A series for requests of nobody known.
    pub(crate) fn nobody(&self) -> RouteSeries {
        self.fresh(["", "", ""])
    }

    fn fresh(&self, labels: [&str; 3]) -> RouteSeries {
        let [_, model, version] = labels;
        let [request, upstream, gateway] = self.durations.each_ref().map(|family| family.get([model, version]));
        RouteSeries::new(self.requests.clone(), labels, Durations { request, upstream, gateway })
    }

    /// Frees what no route holds any more: names and places at once, the series themselves at the second call.
    pub(crate) fn forget_unused(&self) {
        {
            let mut state = self.state.lock();
            let State { named, series } = &mut *state;
            series.retain(|_, series| series.strong_count() > 0);
            let held: BTreeSet<&TenantId> = series.keys().filter_map(|(tenant, _)| tenant.as_ref()).collect();
            named.retain(|tenant| held.contains(tenant));
        }
        self.requests.release_unheld();
        self.durations.iter().for_each(Family::release_unheld);
    }
}
