//! What the data plane keeps with a route: made at the first request, shared by all that follow.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::uri::PathAndQuery;

use holdfast_codec::answer::Expected;
use holdfast_codec::oip::{ModelOp, upstream_path};
use holdfast_decide::Route;
use holdfast_placement::residency::{ReplicaIx, VersionIx};
use holdfast_telemetry::{Counter, Family, GatewayMetrics, RouteHandles};

use holdfast_types::{Mono, PoolName};

use crate::answer::AnswerRule;
use crate::fleet::{Cell, Pool};
use crate::limits::RouteLimits;
use crate::pause::Pause;
use crate::receipts::RouteFacts;
use crate::residency::Driver;
use crate::table::{Leaving, Table};

/// See the module.
pub struct RouteState {
    /// The pool, as it was configured when the route was made.
    pub pool: Arc<Pool>,
    /// The version's number.
    pub version: VersionIx,
    /// The cells of the route's members, in its order of preference.
    pub cells: Box<[Arc<Cell>]>,
    /// The pauses that the members asked of this route, in the same order.
    pub pauses: Box<[Pause]>,
    /// Former holders of the key, if its replicas have changed.
    pub leaving: Option<Arc<Leaving>>,
    /// What an answer is held to.
    pub rule: Arc<AnswerRule>,
    /// Where an inference goes.
    pub infer: PathAndQuery,
    /// Where a question for metadata goes.
    pub metadata: PathAndQuery,
    /// The model as a stamp.
    pub model_stamp: HeaderValue,
    /// The version as a stamp.
    pub version_stamp: HeaderValue,
    /// The tenant, for the replica.
    pub tenant_header: HeaderValue,
    /// A hash of the tenant.
    pub tenant_number: u64,
    /// What its requests count into.
    pub metrics: RouteHandles,
    /// What receipts say of it.
    pub facts: Arc<RouteFacts>,
    /// What its requests may use. None: as much as they like.
    pub limits: Option<Box<RouteLimits>>,
    /// What its attempts count into.
    pub attempts: AttemptCounters,
}

/// Attempts at replicas by outcome. The common outcome has its counter at hand.
pub struct AttemptCounters {
    ok: Counter,
    all: Family<Counter, 2>,
    pool: PoolName,
}

impl AttemptCounters {
    fn new(metrics: &GatewayMetrics, pool: &PoolName) -> Self {
        let all = metrics.upstream_attempts.clone();
        Self { ok: all.get([pool.as_str(), "ok"]), all, pool: pool.clone() }
    }

    /// Counts one; the outcome is a word of a closed list.
    pub fn count(&self, outcome: &'static str) {
        match outcome {
            "ok" => self.ok.inc(),
            other => self.all.get([self.pool.as_str(), other]).inc(),
        }
    }
}

impl RouteState {
    /// The route's state, if a request has made it.
    pub fn made(route: &Route) -> Option<Arc<Self>> {
        route.handles.get()?.clone().downcast().ok()
    }

    /// The pause that a member asked of this route.
    pub fn pause(&self, replica: ReplicaIx) -> Option<&Pause> {
        let member = self.cells.iter().position(|cell| cell.replica.ix == replica)?;
        self.pauses.get(member)
    }

    /// When the first of the holders that asked for a pause may be asked again. Nothing if there is one that did not.
    pub fn pause_left(&self, subset: u8, now: Mono) -> Duration {
        let members = self.cells.iter().zip(&self.pauses).filter(|(cell, _)| cell.replica.in_service());
        let holders = members.take(usize::from(subset)).filter(|(cell, _)| cell.holds() && cell.replica.usable());
        holders.map(|(_, pause)| pause.left(now)).min().unwrap_or_default()
    }

    /// The route's state. None if the fleet no longer has the route's version: the table has been replaced meanwhile.
    pub fn of(table: &Table, route: &Route, driver: &Driver, metrics: &GatewayMetrics) -> Option<Arc<Self>> {
        if let Some(kept) = route.handles.get() {
            return kept.clone().downcast().ok();
        }
        let made = Arc::new(Self::make(table, route, driver, metrics)?);
        // Two first requests at once may both make one; all later ones use the one that was kept.
        let kept = route.handles.get_or_init(|| made);
        kept.clone().downcast().ok()
    }

    fn make(table: &Table, route: &Route, driver: &Driver, metrics: &GatewayMetrics) -> Option<Self> {
        let pool = table.pools.get(route.pool as usize)?.clone();
        let facts = pool.version(&route.model, &route.version)?.clone();
        let members = route.order.iter().map(|at| pool.replicas.get(*at as usize));
        // A replica that is gone already, because the next table is about to take this one's place, is out of service; the others are not.
        let cells: Box<[_]> = members.filter_map(|r| driver.fleet.cell(r?.ix, facts.ix)).collect();
        if cells.is_empty() && !route.order.is_empty() {
            return None;
        }
        let leaving = table.handover.of(route);
        let leavers = leaving.iter().flat_map(|leaving| leaving.cells());
        let facts_told = RouteFacts {
            tenant: route.tenant.clone(),
            model: route.model.clone(),
            version: route.version.clone(),
            pool: pool.name.clone(),
            subset: route.subset,
            members: cells.iter().chain(leavers).map(|cell| cell.replica.name.clone()).collect(),
        };
        let path = |op| upstream_path(&facts.upstream_model, &facts.upstream_version, op).parse().ok();
        let rule = AnswerRule {
            expected: Expected {
                upstream_model: facts.upstream_model.clone(),
                upstream_version: facts.answer_version().to_owned(),
                model: route.model.to_string(),
                version: route.version.to_string(),
            },
            check: pool.config.upstream.answer,
            name_tells_version: pool.config.upstream.model.names_version(),
        };
        Some(Self {
            version: facts.ix,
            pauses: cells.iter().map(|_| Pause::default()).collect(),
            cells,
            leaving,
            rule: Arc::new(rule),
            infer: path(ModelOp::Infer)?,
            metadata: path(ModelOp::Metadata)?,
            model_stamp: HeaderValue::from_str(route.model.as_str()).ok()?,
            version_stamp: HeaderValue::from_str(route.version.as_str()).ok()?,
            tenant_header: HeaderValue::from_str(route.tenant.as_str()).ok()?,
            tenant_number: xxhash_rust::xxh3::xxh3_64(route.tenant.as_str().as_bytes()),
            metrics: metrics.route(&route.tenant, &route.model, &route.version),
            facts: Arc::new(facts_told),
            limits: table.limits.route(&route.tenant, &route.model),
            attempts: AttemptCounters::new(metrics, &pool.name),
            pool,
        })
    }
}
