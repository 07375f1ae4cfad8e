//! The metric handles of one route, made once and kept with the route.
//!
//! Counting a request is then a few relaxed adds, without a look-up. Handles of tenants that are not shown by name share their series, and
//! request counters are made when a status is first seen, so that a million routes cost a million times 16 bytes and no more.

use std::sync::{Arc, OnceLock};

use crate::family::Family;
use crate::histogram::Histogram;
use crate::metric::Counter;
use crate::outcome::{Endpoint, Outcome};
use crate::usage::TenantAccount;

/// The values of the status label: the statuses that the gateway makes itself, else the class.
const STATUSES: [&str; 18] = [
    "200", "400", "401", "403", "404", "413", "429", "431", "499", "500", "502", "503", "504", "2xx", "3xx", "4xx",
    "5xx", "other",
];

/// The place of a status in [`STATUSES`].
const fn status_index(status: u16) -> usize {
    match status {
        200 => 0,
        400 => 1,
        401 => 2,
        403 => 3,
        404 => 4,
        413 => 5,
        429 => 6,
        431 => 7,
        499 => 8,
        500 => 9,
        502 => 10,
        503 => 11,
        504 => 12,
        201..=299 => 13,
        300..=399 => 14,
        402..=498 => 15,
        501..=599 => 16,
        _ => 17,
    }
}

/// `holdfast_requests_total{tenant,model,version,endpoint,status}`.
pub(crate) type Requests = Family<Counter, 5>;

/// The latency histograms of one (model, version), shared by all tenants.
#[derive(Debug)]
pub(crate) struct Durations {
    pub(crate) request: Histogram,
    pub(crate) upstream: Histogram,
    pub(crate) gateway: Histogram,
}

/// The series of one (tenant as shown, model, version).
#[derive(Debug)]
pub(crate) struct RouteSeries {
    family: Requests,
    labels: [Box<str>; 3],
    durations: Durations,
    /// By endpoint, then by status. Two levels, since a route sees one or two endpoints.
    requests: [OnceLock<Box<[OnceLock<Counter>; STATUSES.len()]>>; Endpoint::ALL.len()],
}

impl RouteSeries {
    pub(crate) fn new(family: Requests, labels: [&str; 3], durations: Durations) -> Self {
        Self { family, labels: labels.map(Into::into), durations, requests: Default::default() }
    }

    /// The counter of one endpoint and status. Takes the family's lock the first time only.
    fn counter(&self, endpoint: Endpoint, status: u16) -> Option<&Counter> {
        let index = status_index(status);
        let of_endpoint = self.requests.get(endpoint as usize)?.get_or_init(Box::default);
        Some(of_endpoint.get(index)?.get_or_init(|| {
            let [tenant, model, version] = &self.labels;
            self.family.get([tenant, model, version, endpoint.as_str(), STATUSES.get(index).unwrap_or(&"other")])
        }))
    }

    pub(crate) fn finish(&self, outcome: &Outcome) {
        if let Some(counter) = self.counter(outcome.endpoint, outcome.status) {
            counter.inc();
        }
        self.durations.request.observe(outcome.timing.total);
        self.durations.gateway.observe(outcome.timing.gateway());
        if let Some(upstream) = outcome.timing.upstream {
            self.durations.upstream.observe(upstream);
        }
    }
}

/// What a request of one (tenant, model, version) counts into: 16 bytes, cheap to clone, kept with the route.
#[derive(Clone, Debug)]
pub struct RouteHandles {
    series: Arc<RouteSeries>,
    account: Arc<TenantAccount>,
}

impl RouteHandles {
    pub(crate) const fn new(series: Arc<RouteSeries>, account: Arc<TenantAccount>) -> Self {
        Self { series, account }
    }

    /// The tenant's account.
    #[must_use]
    pub fn account(&self) -> &TenantAccount {
        &self.account
    }

    #[inline]
    pub(crate) fn finish(&self, outcome: &Outcome) {
        self.series.finish(outcome);
        self.account.add(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::FailureKind;

    #[test]
    fn every_status_has_its_label() {
        for (status, label) in [
            (0, "other"),
            (100, "other"),
            (200, "200"),
            (204, "2xx"),
            (304, "3xx"),
            (405, "4xx"),
            (499, "499"),
            (500, "500"),
            (501, "5xx"),
            (599, "5xx"),
            (600, "other"),
            (u16::MAX, "other"),
        ] {
            assert_eq!(STATUSES[status_index(status)], label, "{status}");
        }
        for kind in FailureKind::ALL {
            let status = kind.http_status();
            assert_eq!(STATUSES[status_index(status)], status.to_string(), "{kind} is shown exactly");
        }
    }

    #[test]
    fn handles_are_two_words() {
        assert_eq!(size_of::<RouteHandles>(), 16);
    }
}
