//! The control plane's metrics: read from who knows, at each scrape.

use std::sync::Arc;

use holdfast_decide::rollout::Phase;
use holdfast_telemetry::{Kind, Registry, Sink};

use crate::desk::Desk;
use crate::keeper::Keeper;
use crate::pulse::Pulse;
use crate::rollouts::Rollouts;

/// Registers `holdfast_control_*`.
pub fn register(
    registry: &Registry,
    desk: &Arc<Desk>,
    rollouts: &Arc<Rollouts>,
    keeper: &Arc<Keeper>,
    pulse: &Arc<Pulse>,
) {
    leading(registry, desk, rollouts);
    store(registry, pulse);
    table(registry, desk, keeper);
    moving(registry, rollouts);
}

type Named = (&'static str, &'static str);

fn gauge(registry: &Registry, (name, help): Named, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
    number(registry, Kind::Gauge, (name, help), read);
}

fn number(registry: &Registry, kind: Kind, named: Named, read: impl Fn() -> Option<f64> + Send + Sync + 'static) {
    let show = move |sink: &mut Sink<'_>| {
        if let Some(value) = read() {
            sink.sample(&[], value);
        }
    };
    registry.collector(named.0, named.1, kind, &[], Box::new(show));
}

fn leading(registry: &Registry, desk: &Arc<Desk>, rollouts: &Arc<Rollouts>) {
    const LEADS: Named = ("holdfast_control_leads", "Whether this control plane drives the roll-outs (1) or not (0).");
    const TERM: Named = ("holdfast_control_term", "The highest term of a leader that is known here.");
    let driver = rollouts.clone();
    gauge(registry, LEADS, move || Some(f64::from(u8::from(driver.leads()))));
    let (desk, driver) = (desk.clone(), rollouts.clone());
    gauge(registry, TERM, move || Some(desk.truth().head.term.max(driver.term().unwrap_or_default()) as f64));
}

fn store(registry: &Registry, pulse: &Arc<Pulse>) {
    const UP: Named =
        ("holdfast_control_store_up", "Whether the store's last read and its last write succeeded (1) or not (0).");
    const AGE: Named = ("holdfast_control_store_last_success_age_seconds", "How long ago the store has answered last.");
    const COMMIT: Named =
        ("holdfast_control_commit_seconds", "How long the last commit took. Absent before the first.");
    let of = pulse.clone();
    gauge(registry, UP, move || Some(f64::from(u8::from(of.state().ok))));
    let of = pulse.clone();
    gauge(registry, AGE, move || Some(of.age().as_secs_f64()));
    let of = pulse.clone();
    gauge(registry, COMMIT, move || of.last_commit().map(|took| took.as_secs_f64()));
}

fn table(registry: &Registry, desk: &Arc<Desk>, keeper: &Arc<Keeper>) {
    const DESIRED: Named = ("holdfast_control_desired_revision", "The last revision that changed what is desired.");
    const IN_FORCE: Named = ("holdfast_control_in_force_revision", "The last revision that changed what is in force.");
    const FLOOR: Named = ("holdfast_control_floor_revision", "The oldest revision that is kept.");
    const PENDING: Named = ("holdfast_control_pins_pending", "Pins that are desired and not in force yet.");
    let of = desk.clone();
    gauge(registry, DESIRED, move || Some(of.truth().head.desired.0 as f64));
    let of = desk.clone();
    gauge(registry, IN_FORCE, move || Some(of.truth().head.in_force.0 as f64));
    let (of, keeper) = (desk.clone(), keeper.clone());
    // A prune is no revision, so a desk may not have heard of it.
    gauge(registry, FLOOR, move || Some(of.truth().head.floor.max(keeper.floor()).0 as f64));
    let of = desk.clone();
    gauge(registry, PENDING, move || Some(of.truth().pending.len() as f64));
}

fn moving(registry: &Registry, rollouts: &Arc<Rollouts>) {
    const RUNNING: Named = ("holdfast_control_rollouts", "Roll-outs that run, by where they are.");
    const FAILED: Named = ("holdfast_control_rollouts_failed_total", "Roll-outs that ended with a pin that failed.");
    const ALARMS: Named = (
        "holdfast_control_rollout_alarms_total",
        "What a person should know of roll-outs and finds in the log, a broken condition of a canary among it.",
    );
    let of = rollouts.clone();
    let show = move |sink: &mut Sink<'_>| {
        let phases = of.phases();
        for (phase, name) in PHASES {
            sink.sample(&[name], phases.get(&phase).copied().unwrap_or_default() as f64);
        }
    };
    registry.collector(RUNNING.0, RUNNING.1, Kind::Gauge, &["phase"], Box::new(show));
    let of = rollouts.clone();
    number(registry, Kind::Counter, FAILED, move || Some(of.failed() as f64));
    let of = rollouts.clone();
    number(registry, Kind::Counter, ALARMS, move || Some(of.alarmed() as f64));
}

/// Those in which a roll-out runs.
const PHASES: [(Phase, &str); 10] = [
    (Phase::Planned, "planned"),
    (Phase::PreWarm, "pre_warm"),
    (Phase::Verify, "verify"),
    (Phase::Shadow, "shadow"),
    (Phase::Prepare, "prepare"),
    (Phase::Activate, "activate"),
    (Phase::Canary, "canary"),
    (Phase::Drain, "drain"),
    (Phase::Retain, "retain"),
    (Phase::Collect, "collect"),
];
