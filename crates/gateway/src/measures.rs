//! What canaries with a condition are measured by: answers of both versions of a split pin, counted since a step of it came in force. The control plane
//! judges; a gateway counts and tells.
//!
//! While nothing is measured a request asks one flag.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use holdfast_assign::window::Sketch;
use holdfast_decide::Reason;
use holdfast_plane::{Figures, Measured, Measuring};
use holdfast_telemetry::{Endpoint, Outcome};
use holdfast_types::{ModelName, TenantId};

use crate::exchange::Resolution;

/// The status of a request whose client left before its answer: nobody's failure.
const GIVEN_UP: u16 = 499;

type Plan = HashMap<(TenantId, ModelName), Arc<Cell>>;

/// See the module.
#[derive(Default)]
pub struct Measures {
    any: AtomicBool,
    plan: ArcSwap<Plan>,
}

struct Cell {
    order: Measuring,
    /// The canary's, and the baseline's.
    counts: Mutex<[Counts; 2]>,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    errors: u64,
    micros: u64,
    sketch: Sketch,
}

impl Counts {
    fn figures(&self) -> Figures {
        Figures {
            requests: self.requests,
            errors: self.errors,
            micros: self.micros,
            latency: self.sketch.slots().collect(),
        }
    }
}

impl Measures {
    /// Takes orders. What is measured already goes on; another step of the same pin begins anew. One caller at a time.
    pub fn follow(&self, orders: &[Measuring]) {
        let before = self.plan.load_full();
        if before.len() == orders.len() && orders.iter().all(|order| before.values().any(|cell| cell.order == *order)) {
            return;
        }
        let cell = |order: &Measuring| {
            let place = (order.tenant.clone(), order.model.clone());
            let known = before.get(&place).filter(|cell| cell.order == *order).cloned();
            (place, known.unwrap_or_else(|| Arc::new(Cell { order: order.clone(), counts: Mutex::default() })))
        };
        let plan: Plan = orders.iter().map(cell).collect();
        self.any.store(!plan.is_empty(), Relaxed);
        self.plan.store(Arc::new(plan));
    }

    /// Notes an inference that has ended. Only what came to its version by the pin or its split.
    #[inline]
    pub fn ended(&self, resolution: &Resolution, outcome: &Outcome) {
        if self.any.load(Relaxed) {
            self.count(resolution, outcome);
        }
    }

    #[cold]
    fn count(&self, resolution: &Resolution, outcome: &Outcome) {
        if resolution.reason != Reason::Pin || outcome.endpoint != Endpoint::Infer || outcome.status == GIVEN_UP {
            return;
        }
        let route = &resolution.route;
        let plan = self.plan.load();
        let Some(cell) = plan.get(&(route.tenant.clone(), route.model.clone())) else { return };
        let side = match &route.version {
            version if *version == cell.order.new => 0,
            version if *version == cell.order.old => 1,
            _ => return,
        };
        let mut counts = cell.counts.lock();
        let Some(counts) = counts.get_mut(side) else { return };
        counts.requests += 1;
        if outcome.status >= 500 {
            counts.errors += 1;
        } else if outcome.status < 400 {
            let micros = u64::try_from(outcome.timing.total.as_micros()).unwrap_or(u64::MAX);
            counts.micros = counts.micros.saturating_add(micros);
            counts.sketch.add(micros);
        }
    }

    /// What has come of all orders so far.
    pub fn totals(&self) -> Vec<Measured> {
        let plan = self.plan.load();
        let mut all: Vec<Measured> = plan
            .values()
            .map(|cell| {
                let counts = cell.counts.lock();
                let [canary, baseline] = &*counts;
                let Measuring { rollout, pin, step, .. } = cell.order;
                Measured { rollout, pin, step, canary: canary.figures(), baseline: baseline.figures() }
            })
            .collect();
        all.sort_by_key(|measured| (measured.rollout, measured.pin));
        all
    }
}
