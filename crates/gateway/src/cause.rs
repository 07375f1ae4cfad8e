//! What chose a version, as it is counted and stamped: by the arm or rule, or else by the reason.

use std::sync::Arc;

use http::HeaderValue;

use holdfast_decide::{Cause, Reason};
use holdfast_telemetry::{Counter, GatewayMetrics};

use crate::exchange::Resolution;

/// What the data plane keeps with an arm or a rule. Made once for each table.
struct Kept {
    stamp: Option<HeaderValue>,
    ok: Counter,
    error: Counter,
}

impl Kept {
    fn of<'c>(cause: &'c Cause, metrics: &GatewayMetrics) -> Option<&'c Self> {
        let make = || {
            let [ok, error] = metrics.routed_by(&cause.id);
            let kept: Arc<Self> = Arc::new(Self { stamp: stamp(cause), ok, error });
            kept as Arc<_>
        };
        (**cause.handles.get_or_init(make)).downcast_ref()
    }
}

/// The value of `x-holdfast-experiment`. None: it is no arm.
pub fn stamp(cause: &Cause) -> Option<HeaderValue> {
    let kept = cause.handles.get().and_then(|kept| (**kept).downcast_ref::<Kept>());
    match kept {
        Some(kept) => kept.stamp.clone(),
        None => HeaderValue::from_str(&cause.stamp).ok().filter(|stamp| !stamp.is_empty()),
    }
}

/// Counts a request that has ended, by what chose its version.
#[inline]
pub fn count(metrics: &GatewayMetrics, resolution: &Resolution, is_error: bool) {
    match &resolution.cause {
        None => metrics.routed.count(plain(resolution.reason), is_error),
        Some(cause) => count_cause(metrics, cause, is_error),
    }
}

#[cold]
fn count_cause(metrics: &GatewayMetrics, cause: &Cause, is_error: bool) {
    if let Some(kept) = Kept::of(cause, metrics) {
        if is_error { kept.error.inc() } else { kept.ok.inc() }
    }
}

/// The place of a reason that no arm or rule is behind, among those that are counted without a look-up.
const fn plain(reason: Reason) -> usize {
    match reason {
        Reason::Override => 0,
        Reason::Explicit => 1,
        Reason::Pin | Reason::Sticky | Reason::Experiment | Reason::Rule => 2,
        Reason::Replay => 3,
    }
}
