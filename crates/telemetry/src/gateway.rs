//! The product's metrics. Requests and latencies are in `routes`, values read from their owners in `collected`, the process's own in
//! `process`; all others have their names, labels and units here.

use holdfast_types::{FailureKind, Invariant, ModelName, Revision, TenantId, Version};

use crate::audit::AuditLosses;
use crate::clock::Clock;
use crate::collected::{Collected, Collectors};
use crate::exposures::ExposureLosses;
use crate::family::{Family, Label};
use crate::histogram::{Histogram, LOAD};
use crate::metric::{Counter, Gauge};
use crate::outcome::Outcome;
use crate::process;
use crate::registry::{Kind, Registry, Sink};
use crate::route::{RouteHandles, RouteSeries};
use crate::routed::RoutedPlain;
use crate::routes::Routes;
use crate::usage::{Accounts, Usage};

/// Bounds and build facts.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// The most tenants that are shown by name, in the order in which they are first seen; the rest share the name `other`.
    pub tenants: usize,
    /// The most series of one metric.
    pub series: usize,
    /// The most tenants with an account of their own.
    pub accounts: usize,
    /// The product's version.
    pub version: &'static str,
    /// The commit that it was built from.
    pub commit: &'static str,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            tenants: 1_000,
            series: 20_000,
            accounts: 1 << 20,
            version: env!("CARGO_PKG_VERSION"),
            commit: "unknown",
        }
    }
}

/// Every metric of a gateway. Made once; fields are handles that are cheap to clone and to count into.
#[derive(Debug)]
pub struct GatewayMetrics {
    /// `holdfast_in_flight`: requests being handled. Use [`Gauge::track`], so that an abort is counted down too.
    pub in_flight: Gauge,
    /// `holdfast_waiting_requests`: requests waiting for a load.
    pub waiting_requests: Gauge,
    /// `holdfast_connections{listener}`.
    pub connections: Family<Gauge, 1>,
    /// `holdfast_connections_refused_total{reason}`.
    pub connections_refused: Family<Counter, 1>,
    /// `holdfast_limited_total{scope,limit,mode}`.
    pub limited: Family<Counter, 3>,
    /// `holdfast_upstream_attempts_total{pool,outcome}`.
    pub upstream_attempts: Family<Counter, 2>,
    /// `holdfast_retries_total{pool,reason}`.
    pub retries: Family<Counter, 2>,
    /// `holdfast_retry_budget_exhausted_total{pool}`.
    pub retry_budget_exhausted: Family<Counter, 1>,
    /// `holdfast_routed_total{rule,outcome}` of requests whose version no arm or rule chose.
    pub routed: RoutedPlain,
    /// `holdfast_shadow_total{outcome}`.
    pub shadow: Family<Counter, 1>,
    /// `holdfast_wrong_version_total{pool,replica}`.
    pub wrong_version: Family<Counter, 2>,
    /// `holdfast_loads_total{pool,outcome}`.
    pub loads: Family<Counter, 2>,
    /// `holdfast_load_seconds{pool}`.
    pub load_seconds: Family<Histogram, 1>,
    /// `holdfast_evictions_total{pool}`.
    pub evictions: Family<Counter, 1>,
    /// `holdfast_load_asks_total{outcome}`: loads that other gateways were asked for.
    pub load_asks: Family<Counter, 1>,
    /// `holdfast_alarms_total{kind}`.
    pub alarms: Family<Counter, 1>,
    /// `holdfast_table_revision`: the routing table in force.
    pub table_revision: Gauge,
    /// `holdfast_access_records_dropped_total`: hand it to [`crate::AccessLog::start`].
    pub access_records_dropped: Counter,
    /// What the audit log counts: hand it to [`crate::AuditLog::start`].
    pub audit: AuditLosses,
    /// What exposures count: hand it to [`crate::ExposureLog::start`].
    pub exposures: ExposureLosses,
    registry: Registry,
    config: ConfigMetrics,
    errors: [Counter; FailureKind::ALL.len()],
    violations: Family<Counter, 1>,
    collectors: Collectors,
    accounts: Accounts,
    routes: Routes,
    /// For requests whose tenant is not known.
    nobody: RouteSeries,
}

impl GatewayMetrics {
    /// Registers everything.
    #[must_use]
    pub fn new(options: &MetricsOptions) -> Self {
        let registry = Registry::new(options.series);
        let r = &registry;
        let [pool, replica] = ["pool", "replica"].map(Label::open);
        let [kind, reason, outcome, listener] = ["kind", "reason", "outcome", "listener"].map(Label::closed);
        build_info(r, options);
        let routes = Routes::register(r, options.tenants);
        let metrics = Self {
            nobody: routes.nobody(),
            routes,
            accounts: Accounts::new(options.accounts),
            errors: errors(r, kind),
            in_flight: r.gauge("holdfast_in_flight", "Requests being handled."),
            waiting_requests: r.gauge("holdfast_waiting_requests", "Requests that wait for a model load."),
            connections: r.family("holdfast_connections", "Open connections.", [listener], ()),
            connections_refused: r.family(CONNECTIONS_REFUSED.0, CONNECTIONS_REFUSED.1, [reason], ()),
            limited: r.family(LIMITED.0, LIMITED.1, ["scope", "limit", "mode"].map(Label::closed), ()),
            upstream_attempts: r.family(UPSTREAM_ATTEMPTS.0, UPSTREAM_ATTEMPTS.1, [pool, outcome], ()),
            retries: r.family("holdfast_retries_total", "Requests sent again, by reason.", [pool, reason], ()),
            retry_budget_exhausted: r.family(RETRY_BUDGET_EXHAUSTED.0, RETRY_BUDGET_EXHAUSTED.1, [pool], ()),
            routed: RoutedPlain::register(r),
            shadow: r.family(SHADOW.0, SHADOW.1, [outcome], ()),
            wrong_version: r.family(WRONG_VERSION.0, WRONG_VERSION.1, [pool, replica], ()),
            violations: violations(r),
            loads: r.family("holdfast_loads_total", "Model loads that ended, by outcome.", [pool, outcome], ()),
            load_seconds: r.family("holdfast_load_seconds", "How long model loads took.", [pool], &LOAD),
            evictions: r.family("holdfast_evictions_total", "Model versions unloaded to make room.", [pool], ()),
            load_asks: r.family(
                "holdfast_load_asks_total",
                "Loads that other gateways were asked for, by outcome.",
                [outcome],
                (),
            ),
            alarms: r.family("holdfast_alarms_total", "Alarms raised, by kind.", [kind], ()),
            config: ConfigMetrics::register(r),
            table_revision: r.gauge("holdfast_table_revision", "The routing table in force."),
            collectors: Collectors::register(r),
            access_records_dropped: r.counter(ACCESS_RECORDS_DROPPED.0, ACCESS_RECORDS_DROPPED.1),
            audit: audit(r, reason),
            exposures: ExposureLosses::register(r),
            registry,
        };
        process::register(&metrics.registry);
        metrics
    }

    /// The handles of one route: make them once and keep them with the route. Takes locks; not for each request.
    #[must_use]
    pub fn route(&self, tenant: &TenantId, model: &ModelName, version: &Version) -> RouteHandles {
        let series = self.routes.series(tenant, Some((model.clone(), version.clone())));
        RouteHandles::new(series, self.accounts.of(tenant))
    }

    /// The counters of an arm or a rule: of requests that went well, and of those that did not. Takes a lock: keep them.
    #[must_use]
    pub fn routed_by(&self, rule: &str) -> [Counter; 2] {
        self.routed.by(rule)
    }

    /// The handles for a known tenant's request that was not resolved: model and version are shown empty.
    #[must_use]
    pub fn unresolved(&self, tenant: &TenantId) -> RouteHandles {
        RouteHandles::new(self.routes.series(tenant, None), self.accounts.of(tenant))
    }

    /// Counts a request that has ended, everywhere it counts: requests, latencies, errors, the tenant's account. `route` is None for a
    /// request whose tenant is not known. About a dozen relaxed adds.
    pub fn finish(&self, route: Option<&RouteHandles>, outcome: &Outcome) {
        match route {
            Some(route) => route.finish(outcome),
            None => self.nobody.finish(outcome),
        }
        if let Some(kind) = outcome.error {
            self.error(kind);
        }
    }

    /// Counts a failure that no call of [`GatewayMetrics::finish`] counts, such as a connection refused before there is a request.
    pub fn error(&self, kind: FailureKind) {
        if let Some(counter) = self.errors.get(kind as usize) {
            counter.inc();
        }
    }

    /// Counts a promise that something tried to break, also where the answer was refused in time. The caller says what happened.
    pub fn invariant_violated(&self, invariant: Invariant) {
        self.violations.get([invariant.id()]).inc();
    }

    /// Notes that a configuration was taken and is in force.
    pub fn config_taken(&self, revision: Revision) {
        self.config.revision.set_u64(revision.0);
        self.config.last_reload.set_u64(Clock::wall_millis() / 1000);
        self.config.error.set(0);
        self.config.taken.inc();
    }

    /// Notes that a configuration was refused; the one in force stays.
    pub fn config_refused(&self, revision: Revision) {
        self.config.failed_revision.set_u64(revision.0);
        self.config.error.set(1);
        self.config.refused.inc();
    }

    /// Has values that live elsewhere read at each scrape, on the scraping thread. The last callback for a [`Collected`] wins.
    pub fn collect(&self, what: Collected, read: impl Fn(&mut Sink<'_>) + Send + Sync + 'static) {
        self.collectors.set(what, read);
    }

    /// Appends the whole exposition ([`Registry::CONTENT_TYPE`]). Reads `/proc` and takes milliseconds when there are many series: call it
    /// where blocking is allowed.
    pub fn render(&self, out: &mut String) {
        self.registry.render(out);
    }

    /// What tenants used, by name: at most `limit` of those after `after`. The lock is held for one page only.
    #[must_use]
    pub fn usage(&self, after: Option<&TenantId>, limit: usize) -> Vec<Usage> {
        self.accounts.page(after, limit)
    }

    /// One tenant's use.
    #[must_use]
    pub fn usage_of(&self, tenant: &TenantId) -> Option<Usage> {
        self.accounts.find(tenant).map(|account| account.read(Some(tenant.clone())))
    }

    /// The use of all tenants that have no account of their own, if there are any.
    #[must_use]
    pub fn usage_of_rest(&self) -> Option<Usage> {
        self.accounts.rest()
    }

    /// Frees series and names that no route holds any more. Call it about once a minute, off the request path; a series goes at the second
    /// call after its last holder did, so that its last value is scraped.
    pub fn forget_unused(&self) {
        self.routes.forget_unused();
        self.routed.forget_unused();
    }

    /// For metrics beside these.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// A metric's name and help.
type Named = (&'static str, &'static str);

const CONNECTIONS_REFUSED: Named = ("holdfast_connections_refused_total", "Connections refused, by reason.");
const LIMITED: Named = (
    "holdfast_limited_total",
    "Requests over a limit, by scope and what is counted; refused, or only counted in shadow mode.",
);
const UPSTREAM_ATTEMPTS: Named =
    ("holdfast_upstream_attempts_total", "Requests sent to model servers, retries included, by outcome.");
const RETRY_BUDGET_EXHAUSTED: Named =
    ("holdfast_retry_budget_exhausted_total", "Retries not made because the pool's retry budget was spent.");
const SHADOW: Named =
    ("holdfast_shadow_total", "Requests chosen to be copied to another version, by what became of the copy.");
const WRONG_VERSION: Named =
    ("holdfast_wrong_version_total", "Answers that named another model or version than was asked, by replica.");
const ACCESS_RECORDS_DROPPED: Named =
    ("holdfast_access_records_dropped_total", "Access records that found the queue full or could not be written.");

/// Shown from the start, so that a loss is a rise.
fn audit(r: &Registry, reason: Label) -> AuditLosses {
    let lost: Family<Counter, 1> = r.family(
        "holdfast_audit_lost_total",
        "Audit records that were lost, by reason: the queue was full, or the disk did not take them.",
        [reason],
        (),
    );
    AuditLosses {
        written: r.counter("holdfast_audit_records_total", "Audit records written."),
        queue_full: lost.get(["queue_full"]),
        write_failed: lost.get(["write_failed"]),
    }
}

/// Shown from the start, at 0: an alert on a rise cannot see a series appear.
const INVARIANTS: [Invariant; 7] = [
    Invariant::Pin1,
    Invariant::Pin2,
    Invariant::Pin3,
    Invariant::Route1,
    Invariant::Load1,
    Invariant::Load2,
    Invariant::Acct1,
];

fn violations(registry: &Registry) -> Family<Counter, 1> {
    let help = "Promises that something tried to break, by the invariant's id; PIN-1 counts refused answers of replicas that served another version.";
    let family = registry.family("holdfast_invariant_violations_total", help, [Label::closed("id")], ());
    INVARIANTS.iter().for_each(|invariant| drop(family.get([invariant.id()])));
    family
}

fn errors(registry: &Registry, kind: Label) -> [Counter; FailureKind::ALL.len()] {
    let family = registry.family("holdfast_errors_total", "Failed requests, by kind.", [kind], ());
    FailureKind::ALL.map(|kind| family.get([kind.as_str()]))
}

fn build_info(registry: &Registry, options: &MetricsOptions) {
    let (version, commit) = (options.version, options.commit);
    registry.collector(
        "holdfast_build_info",
        "What this process was built from.",
        Kind::Gauge,
        &["version", "commit"],
        Box::new(move |sink| sink.sample(&[version, commit], 1.0)),
    );
}

/// What became of the configurations offered.
#[derive(Debug)]
struct ConfigMetrics {
    revision: Gauge,
    failed_revision: Gauge,
    last_reload: Gauge,
    error: Gauge,
    taken: Counter,
    refused: Counter,
}

impl ConfigMetrics {
    fn register(r: &Registry) -> Self {
        const FAILED: &str = "The last configuration that was refused; 0 if none was.";
        const LAST: &str = "When a configuration was last taken, in seconds since 1970.";
        const RELOAD: &str = "Configurations offered, by outcome.";
        let reload: Family<Counter, 1> =
            r.family("holdfast_config_reload_total", RELOAD, [Label::closed("outcome")], ());
        Self {
            revision: r.gauge("holdfast_config_revision", "The configuration in force."),
            failed_revision: r.gauge("holdfast_config_failed_revision", FAILED),
            last_reload: r.gauge("holdfast_config_last_reload_timestamp_seconds", LAST),
            error: r.gauge("holdfast_config_error", "1 while the last configuration offered was refused."),
            taken: reload.get(["taken"]),
            refused: reload.get(["refused"]),
        }
    }
}

#[cfg(test)]
mod tests;
