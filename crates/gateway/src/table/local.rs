//! The process's own part of the configuration: what of it was taken, what was refused, what waits for a restart.

use std::path::PathBuf;

use holdfast_config::Config;
use holdfast_types::Revision;

/// A configuration that was refused.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Its number in the count of configurations.
    pub revision: Revision,
    /// When, in milliseconds since 1970 (UTC).
    pub wall_millis: u64,
    /// Every fault.
    pub faults: String,
}

/// How the file stands.
#[derive(Clone, Debug)]
pub struct ConfigStatus {
    /// Which of the configurations offered so far was taken last; the one at the start is the first.
    pub revision: Revision,
    /// The last one that was refused, if none was taken since.
    pub failed: Option<Failed>,
    /// Changes that only a restart brings in force.
    pub restart_needed: Vec<&'static str>,
}

/// Counts configurations.
pub(super) struct Offers {
    offered: u64,
    taken: u64,
    failed: Option<Failed>,
    /// What this process started with of the parts that it does not change while it runs.
    started_with: Fixed,
    now: Fixed,
}

impl Offers {
    pub(super) fn new(config: &Config) -> Self {
        let fixed = Fixed::of(config);
        Self { offered: 1, taken: 1, failed: None, started_with: fixed.clone(), now: fixed }
    }

    pub(super) fn next(&mut self) -> Revision {
        self.offered += 1;
        Revision(self.offered)
    }

    pub(super) fn taken(&mut self, number: Revision, config: &Config) {
        self.taken = number.0;
        self.failed = None;
        self.now = Fixed::of(config);
    }

    pub(super) fn refused(&mut self, failed: Failed) {
        self.failed = Some(failed);
    }

    pub(super) fn status(&self) -> ConfigStatus {
        ConfigStatus {
            revision: Revision(self.taken),
            failed: self.failed.clone(),
            restart_needed: self.started_with.differing(&self.now),
        }
    }
}

/// Where and how limits are shared: the connection to the store lives as long as the process.
#[derive(Clone, Debug, PartialEq)]
struct SharedLimits {
    store: Option<holdfast_config::RedisUrl>,
    access: holdfast_config::RedisAccess,
    nodes: Vec<holdfast_config::RedisUrl>,
    within: std::time::Duration,
    namespace: Box<str>,
    gateways: u32,
}

impl SharedLimits {
    fn of(limits: &holdfast_config::Limits) -> Self {
        Self {
            store: limits.store.clone(),
            access: limits.store_access.clone(),
            nodes: limits.store_nodes.clone(),
            within: limits.store_within,
            namespace: limits.store_namespace.clone(),
            gateways: limits.store_gateways,
        }
    }
}

/// The parts of a configuration that only a restart brings in force.
#[derive(Clone, Debug, PartialEq)]
struct Fixed {
    listen: holdfast_config::Listen,
    workers: Option<std::num::NonZeroU32>,
    state: PathBuf,
    truth: holdfast_config::Truth,
    rollouts: holdfast_config::Rollouts,
    log: holdfast_config::Log,
    metrics: holdfast_config::Metrics,
    audit: holdfast_config::Audit,
    exposures: holdfast_config::Exposures,
    results: Option<holdfast_config::Results>,
    receipts: holdfast_config::Receipts,
    route_token: Option<holdfast_config::RouteToken>,
    ledger: Option<holdfast_config::Ledger>,
    shared_limits: SharedLimits,
    gateway: Option<holdfast_config::GatewaySection>,
}

impl Fixed {
    fn of(config: &Config) -> Self {
        Self {
            listen: config.listen.clone(),
            workers: config.workers,
            state: config.state.clone(),
            truth: config.truth,
            rollouts: config.rollouts.clone(),
            log: config.log.clone(),
            metrics: config.metrics.clone(),
            audit: config.audit.clone(),
            exposures: config.exposures.clone(),
            results: config.results.clone(),
            receipts: config.receipts.clone(),
            route_token: config.route_token.clone(),
            ledger: config.ledger.clone(),
            shared_limits: SharedLimits::of(&config.limits),
            gateway: config.gateway.clone(),
        }
    }

    /// The names of those parts in which another one differs.
    fn differing(&self, other: &Self) -> Vec<&'static str> {
        let parts = [
            ("listen", self.listen != other.listen),
            ("workers", self.workers != other.workers),
            ("state", self.state != other.state),
            ("truth", self.truth != other.truth),
            ("rollouts", self.rollouts != other.rollouts),
            ("log", self.log != other.log),
            ("metrics", self.metrics != other.metrics),
            ("audit", self.audit != other.audit),
            ("exposures", self.exposures != other.exposures),
            ("results", self.results != other.results),
            ("receipts", self.receipts != other.receipts),
            ("route_token", self.route_token != other.route_token),
            ("ledger", self.ledger != other.ledger),
            ("limits.store", self.shared_limits != other.shared_limits),
            ("gateway", self.gateway != other.gateway),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}
