//! Roll-outs and gateways as the API asks for them, from those who keep them in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use holdfast_decide::rollout::{Command, RolloutId};
use holdfast_placement::seats::Seating;
use holdfast_store::Error as StoreError;

use super::cold::{self, KEEPING, Retained};
use super::fleet::{Fleet, FleetError, Later, NodeView, RolloutView};
use crate::rollouts::{CommandError, Head, Rollouts, Sessions, Shown, Standing};
use crate::seats::Seats;

/// The fleet of one control plane.
pub struct Driven {
    rollouts: Arc<Rollouts>,
    sessions: Arc<Sessions>,
    seats: Option<Arc<Seats>>,
}

impl Driven {
    /// These roll-outs, over these gateways.
    #[must_use]
    pub const fn new(rollouts: Arc<Rollouts>, sessions: Arc<Sessions>) -> Self {
        Self { rollouts, sessions, seats: None }
    }

    /// With who of the gateways loads where.
    #[must_use]
    pub fn seated(mut self, seats: Option<Arc<Seats>>) -> Self {
        self.seats = seats;
        self
    }

    async fn view(&self, id: RolloutId) -> Result<RolloutView, FleetError> {
        let shown = self.rollouts.get(id.0).await.map_err(unavailable)?.ok_or(FleetError::NotFound)?;
        let Shown { meta, progress, .. } = shown;
        let over = progress.waiting_for.is_empty() && progress.pins.iter().all(|pin| pin.stage.is_final());
        let (author, reason, created_ms) = (meta.author, meta.reason, meta.created_ms);
        let back = meta.back;
        Ok(RolloutView { progress: Arc::new(progress), over, author, reason, created_ms, back })
    }
}

fn unavailable(error: StoreError) -> FleetError {
    FleetError::Unavailable(error.public())
}

impl Fleet for Driven {
    fn rollouts(&self, before: Option<RolloutId>, limit: usize) -> Later<'_, Vec<RolloutView>> {
        Box::pin(async move {
            let heads = self.rollouts.list().await.map_err(unavailable)?;
            let below = |id: &u64| before.is_none_or(|before| *id < before.0);
            let mut ids: Vec<u64> = heads.iter().map(|head| head.id).filter(below).collect();
            ids.sort_unstable_by(|a, b| b.cmp(a));
            let mut views = Vec::new();
            for id in ids.into_iter().take(limit) {
                match self.view(RolloutId(id)).await {
                    Ok(view) => views.push(view),
                    // Forgotten since the list was read.
                    Err(FleetError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(views)
        })
    }

    fn rollout(&self, id: RolloutId) -> Later<'_, RolloutView> {
        Box::pin(self.view(id))
    }

    fn retained(&self) -> Later<'_, Retained> {
        Box::pin(async move {
            let mut all = Retained::new();
            let keeps = |head: &Head| KEEPING.iter().any(|stage| head.stages.contains_key(stage.as_str()));
            for head in self.rollouts.list().await.map_err(unavailable)?.iter().filter(|head| keeps(head)) {
                match self.view(RolloutId(head.id)).await {
                    Ok(view) => all.extend(cold::retained([&view])),
                    // Forgotten since the list was read.
                    Err(FleetError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(all)
        })
    }

    fn command(&self, id: RolloutId, command: Command, author: &str) -> Later<'_, ()> {
        tracing::info!(rollout = id.0, command = command.as_str(), author, "a roll-out is told something");
        let author = author.to_owned();
        Box::pin(async move {
            self.rollouts.command(id.0, command, &author).await.map_err(|error| match error {
                CommandError::Unknown(_) => FleetError::NotFound,
                CommandError::Refused(refusal) => FleetError::Refused(refusal),
                CommandError::Undesired(words) => FleetError::Undesired(words),
                CommandError::NotLeading | CommandError::Late | CommandError::Unavailable(_) => {
                    FleetError::Unavailable(error.to_string())
                }
            })
        })
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.rollouts.watch()
    }

    fn nodes(&self) -> Vec<NodeView> {
        let nodes: BTreeMap<_, _> = self.sessions.nodes().into_iter().map(|node| (node.name.clone(), node)).collect();
        let view = |node: crate::rollouts::Node| NodeView {
            status: node.status,
            live: node.leased,
            silent_ms: u64::try_from(node.silent.as_millis()).unwrap_or(u64::MAX),
        };
        nodes.into_values().map(view).collect()
    }

    fn follows(&self) -> bool {
        *self.rollouts.standing().borrow() == Standing::Follows
    }

    fn seating(&self) -> Option<(Seating, Option<u64>)> {
        self.seats.as_ref()?.shown()
    }

    fn waits(&self) -> BTreeMap<Arc<str>, String> {
        self.rollouts.waiting().into_iter().map(|waits| (waits.pin, waits.words)).collect()
    }
}
