//! What is known of a control plane, for who asks at its admin port.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use holdfast_config::Frame;
use holdfast_control::desk::Desk;
use holdfast_control::rollouts::{Sessions, Standing};
use holdfast_control::seats::Seats;
use holdfast_gateway::Also;
use holdfast_store::Store;
use holdfast_telemetry::{Gauge, Registry};

use super::Both;

/// How often the store is asked whether it is there.
const PROBE: Duration = Duration::from_secs(1);
/// The most series of one metric.
const SERIES: usize = 64;

/// See the module.
pub struct Board {
    /// Why the store gives no answer; empty while it does.
    trouble: watch::Sender<Arc<str>>,
    open: OnceLock<Open>,
    seats: OnceLock<Arc<Seats>>,
    registry: Registry,
    gateways: Gauge,
}

/// What there is once the store has been reached.
struct Open {
    desk: Arc<Desk>,
    sessions: Arc<Sessions>,
    standing: watch::Receiver<Standing>,
    also: Option<Also>,
}

impl Board {
    /// Nothing is known yet.
    pub fn new() -> Arc<Self> {
        let registry = Registry::new(SERIES);
        let gateways = registry.gauge("holdfast_control_gateways", "Gateways that are linked to this control plane.");
        let trouble = watch::Sender::new("the store has not been reached yet".into());
        Arc::new(Self { trouble, open: OnceLock::new(), seats: OnceLock::new(), registry, gateways })
    }

    /// The metrics of this process.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The store gives no answer.
    pub fn waits(&self, why: &str) {
        self.trouble.send_replace(why.into());
    }

    /// The store has been reached, and there is a picture of the truth. `also` answers what this port does not know by itself.
    pub fn open(&self, both: &Both, also: Option<Also>) {
        let (desk, sessions, standing) = (both.desk.clone(), both.sessions.clone(), both.rollouts.standing());
        both.register(&self.registry);
        // It is opened once.
        let _ = self.open.set(Open { desk, sessions, standing, also });
        self.trouble.send_replace("".into());
    }

    /// Who of the gateways loads where.
    pub fn seats(&self, seats: Arc<Seats>) {
        // It is told once.
        let _ = self.seats.set(seats);
    }

    /// Takes other settings for the checks to come. False: there is nothing yet that has checks.
    pub fn reframe(&self, frame: Frame) -> bool {
        let Some(open) = self.open.get() else { return false };
        open.desk.set_frame(frame);
        true
    }

    /// Asks the store again and again whether it is there.
    pub async fn probe(self: Arc<Self>, store: Arc<dyn Store>) {
        loop {
            let trouble = store.head().await.err().map(|error| error.public()).unwrap_or_default();
            let news = self.trouble.send_if_modified(|was| {
                let news = was.is_empty() != trouble.is_empty();
                *was = trouble.as_str().into();
                news
            });
            match (news, trouble.is_empty()) {
                (true, true) => tracing::info!("the store answers again"),
                (true, false) => {
                    tracing::error!(why = %trouble, "the store gives no answer: gateways keep their table, and changes are refused");
                }
                (false, _) => {}
            }
            tokio::time::sleep(PROBE).await;
        }
    }

    /// Answers the resources of the control plane, once they are there.
    pub fn also(&self) -> Option<Also> {
        self.open.get().and_then(|open| open.also.clone())
    }

    /// Ready: the store answers, and a picture of the truth is held.
    pub fn ready(&self, verbose: bool) -> (bool, Value) {
        let (trouble, open) = (self.trouble.borrow().clone(), self.open.get());
        let ready = trouble.is_empty() && open.is_some();
        let mut body = json!({ "ready": ready });
        if verbose && let Some(object) = body.as_object_mut() {
            let why = (!trouble.is_empty()).then_some(&*trouble);
            object.insert("store".to_owned(), json!({ "up": trouble.is_empty(), "why": why }));
            if let Some((seating, next)) = self.seats.get().and_then(|seats| seats.shown()) {
                let seats: Vec<&str> = seating.seats.iter().map(|seat| seat.name.as_str()).collect();
                object.insert("seating".to_owned(), json!({ "epoch": seating.epoch, "seats": seats, "next": next }));
            }
            if let (Some(open), Value::Object(told)) = (open, open.map(Open::told).unwrap_or_default()) {
                object.extend(told);
                object.insert("pending_pins".to_owned(), open.desk.truth().pending.len().into());
            }
        }
        (ready, body)
    }

    /// The metrics page.
    pub fn metrics(&self) -> String {
        if let Some(open) = self.open.get() {
            self.gateways.set_u64(open.sessions.nodes().len() as u64);
        }
        let mut text = String::new();
        self.registry.render(&mut text);
        text
    }
}

impl Open {
    fn term(&self) -> Option<u64> {
        match *self.standing.borrow() {
            Standing::Leads { term } => Some(term),
            Standing::Follows | Standing::Unknown => None,
        }
    }

    fn told(&self) -> Value {
        let standing = match *self.standing.borrow() {
            Standing::Leads { .. } => "leads",
            Standing::Follows => "follows",
            Standing::Unknown => "unknown",
        };
        let head = self.desk.truth().head.clone();
        let gateways = self.sessions.nodes().into_iter().map(|node| {
            json!({
                "name": node.name.as_str(), "leased": node.leased, "silent_ms": node.silent.as_millis() as u64,
                "in_force": node.status.in_force.0, "refused": node.status.refused.as_ref().map(|r| &r.words),
            })
        });
        json!({
            "standing": standing, "leads": self.term().is_some(), "term": self.term(),
            "revision": head.revision.0, "in_force": head.in_force.0, "gateways": gateways.collect::<Vec<_>>(),
        })
    }
}
