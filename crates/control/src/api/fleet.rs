//! What the API has to know of roll-outs and gateways, whoever keeps them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

use holdfast_decide::rollout::{Command, Progress, Refusal, RolloutId};
use holdfast_placement::seats::Seating;
use holdfast_plane::Status;

use super::cold::{self, Retained};
use crate::desk::Retired;
use crate::rollouts::By;

/// An answer that may take a while.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, FleetError>> + Send + 'a>>;

/// A roll-out, running or over.
#[derive(Clone, Debug)]
pub struct RolloutView {
    /// Where it is.
    pub progress: Arc<Progress>,
    /// Every pin is at a final stage, and that is stored.
    pub over: bool,
    /// Who asked for what it brings into force.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When it was planned: milliseconds since 1970.
    pub created_ms: u64,
    /// Who had it go back, and why.
    pub back: Option<By>,
}

/// A gateway.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// What it said last.
    pub status: Arc<Status>,
    /// It is waited for: it holds a lease, or is in this process.
    pub live: bool,
    /// How long ago it spoke last.
    pub silent_ms: u64,
}

/// Why roll-outs could not be asked.
#[derive(Debug)]
pub enum FleetError {
    /// There is no such roll-out.
    NotFound,
    /// It refuses what is wanted of it.
    Refused(Refusal),
    /// It would change what is desired to something that cannot be, in words.
    Undesired(String),
    /// Another control plane has it, or the store does not answer; in words that may be shown.
    Unavailable(String),
}

/// The roll-outs and the gateways.
pub trait Fleet: Send + Sync {
    /// Roll-outs with a number below `before` (`None`: all), newest first.
    fn rollouts(&self, before: Option<RolloutId>, limit: usize) -> Later<'_, Vec<RolloutView>>;
    /// One of them.
    fn rollout(&self, id: RolloutId) -> Later<'_, RolloutView>;
    /// Tells one of them something, and waits until it is stored.
    fn command(&self, id: RolloutId, command: Command, author: &str) -> Later<'_, ()>;
    /// Changes whenever a roll-out may have moved.
    fn moved(&self) -> watch::Receiver<u64>;
    /// The gateways that are known, in order of their names.
    fn nodes(&self) -> Vec<NodeView>;

    /// Pins, with the versions that roll-outs keep for a way back without a load.
    fn retained(&self) -> Later<'_, Retained> {
        Box::pin(async move { Ok(cold::retained(&self.rollouts(None, usize::MAX).await?)) })
    }

    /// Whether another control plane leads, which then is the one that gateways speak to.
    fn follows(&self) -> bool {
        false
    }

    /// Who of the gateways starts loads, and the number of the seating that is to come. None: that is nobody's question here.
    fn seating(&self) -> Option<(Seating, Option<u64>)> {
        None
    }

    /// Pins (`TENANT/MODEL`) that are desired elsewhere than they are in force and are in no roll-out: what each waits for, or why it does not go.
    fn waits(&self) -> BTreeMap<Arc<str>, String> {
        BTreeMap::new()
    }

    /// What the replicas of all gateways may still hold that no table names.
    fn retired(&self) -> Retired {
        self.nodes().iter().flat_map(|node| node.status.retired.clone()).collect()
    }
}
