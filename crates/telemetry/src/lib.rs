//! Metrics, access records, audit records, logs: bounded, never blocking a request.
//!
//! Everything that a request touches here is a relaxed atomic add or one push into a bounded buffer. What would block (a file, a pipe, a
//! scrape) happens on threads of its own, and where such a thread falls behind, data is dropped and the drop is counted. Every label set,
//! queue and table has a bound. No payload, header value or query string has a place in any type of this crate.
//!
//! What this crate does not do: export by push, traces, sampling of histograms. It decides nothing about a request.

mod access;
mod audit;
mod clock;
mod collected;
mod exposures;
mod family;
mod gateway;
mod histogram;
pub mod lines;
mod log;
mod metric;
mod once;
mod outcome;
mod process;
mod record;
mod registry;
mod route;
mod routed;
mod routes;
mod spool;
mod text;
mod throttle;
mod usage;

pub use access::{AccessLog, AccessOptions, AccessPolicy, AccessSink, AccessWriter};
pub use audit::{
    AuditEntry, AuditFiles, AuditLog, AuditLosses, AuditOptions, AuditQuery, AuditWriter, Break, Digested, Found, Gap,
    GapWhy, Hash, Head, Removed, Report, SharedDigest, Tip, Verifier,
};
pub use clock::{Clock, Wall};
pub use collected::Collected;
pub use exposures::{Exposure, ExposureLog, ExposureLosses, ExposureOptions};
pub use family::{Family, Label};
pub use gateway::{GatewayMetrics, MetricsOptions};
pub use histogram::{Histogram, LATENCY, LOAD, Scale};
pub use log::{LogError, LogFormat, LogGuard, LogLevel, init_logging};
pub use metric::{Counter, Gauge, GaugeGuard, Metric};
pub use once::Once;
pub use outcome::{Endpoint, Outcome, Timing};
pub use record::AccessRecord;
pub use registry::{Kind, Registry, Sink};
pub use route::RouteHandles;
pub use spool::{Flushed, part, use_part};
pub use text::utc;
pub use throttle::Throttled;
pub use usage::{TenantAccount, Usage};
