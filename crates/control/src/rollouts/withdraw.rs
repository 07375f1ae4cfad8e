//! An abort and a revert change what is desired: whoever asks for one wants the pins where they were, and no later change of something else may bring
//! the new versions back unseen. So what is desired is changed first, as one revision in the words of whoever asks; then the roll-out is told.
//!
//! Between the two nothing is held: should the process end there, the next driver finds pins that are desired elsewhere than their roll-out takes
//! them, and the policy has it aborted or reverted. Where the file is the truth it says what is desired, and the roll-out alone is told.

use std::sync::Arc;

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{Command, Refusal};
use holdfast_plane::Edit;
use holdfast_telemetry::Clock;

use super::board::{CommandError, Order};
use super::drive::Driver;
use super::jobs::Outcome;
use super::policy::Wishes;
use super::running::{Reply, Running};
use crate::desk::{Ask, Desk, DeskError, Retired, Truth, What};

/// How often the change is worked out anew because others have written meanwhile.
const TRIES: usize = 8;

/// A pin, the version that it is not to be desired at any more, and the one that it was.
struct Withdrawn {
    pin: Arc<str>,
    from: String,
    to: String,
}

impl Driver {
    /// What comes before an order: its refusal, or the change of what is desired. The order comes back if it can be told to the roll-out now.
    pub(super) fn before_order(&mut self, running: &Running, order: Order, reply: Reply) -> Option<(Order, Reply)> {
        let (id, command) = (running.id().0, order.command);
        if order.withdrawn {
            return Some((order, reply));
        }
        let withdraws = matches!(command, Command::Abort | Command::Revert { .. });
        let busy = || (withdraws && self.withdrawing.contains_key(&id)).then_some(Refusal::Busy);
        let refusal = self.refuses(running, command).or_else(busy).or_else(|| running.machine.refusal(command));
        if let Some(refusal) = refusal {
            let _ = reply.send(Err(CommandError::Refused(refusal)));
            return None;
        }
        if !withdraws || !self.parts.desk.is_truth() {
            return Some((order, reply));
        }
        let pins = withdrawn(running);
        self.withdrawing.insert(id, pins.iter().map(|pin| pin.pin.clone()).collect());
        let (desk, term) = (self.parts.desk.clone(), self.term);
        self.jobs.spawn(async move {
            let done = withdraw(&desk, term, id, &order, &pins).await;
            Outcome::Withdrawn { id, order, reply, done }
        });
        None
    }

    /// Tells the roll-out, now that what is desired says the same.
    pub(super) fn withdrawn(&mut self, id: u64, mut order: Order, reply: Reply, done: Result<(), CommandError>) {
        self.due.policy = true;
        if let Err(error) = done {
            self.withdrawing.remove(&id);
            let _ = reply.send(Err(error));
            return;
        }
        order.withdrawn = true;
        self.order_of(id, order, reply);
    }

    /// What the policy leaves to an order that is about to come.
    pub(super) fn leave_withdrawn(&self, wishes: &mut Wishes) {
        wishes.abort.retain(|id| !self.withdrawing.contains_key(id));
        wishes.revert.retain(|id| !self.withdrawing.contains_key(id));
        wishes.plan.retain(|name| !self.withdrawing.values().flatten().any(|pin| pin == name));
    }
}

/// The pins of a roll-out that are its own.
fn withdrawn(running: &Running) -> Vec<Withdrawn> {
    let saved = running.saved.iter().flat_map(|saved| &saved.pins);
    let own = saved.zip(&running.pins).filter(|(pin, _)| !pin.overtaken);
    let pin = own.filter_map(|(pin, of)| {
        let (pin, from, to) = (of.name.clone(), pin.new.version.clone(), pin.old.as_ref()?.version.clone());
        Some(Withdrawn { pin, from, to })
    });
    pin.collect()
}

/// Where somebody desires a pin elsewhere by now, that stands. A version that has left the catalogue cannot be desired.
fn edits(truth: &Truth, pins: &[Withdrawn]) -> Vec<Edit> {
    let is_desired = |pin: &&Withdrawn| {
        let (_, model) = pin.pin.split_once('/').unwrap_or_default();
        let known = truth.desired.get(ResourceKind::Version, &format!("{model}/{}", pin.to)).is_some();
        known && truth.desired.get(ResourceKind::Pin, &pin.pin).and_then(|version| version.as_str()) == Some(&pin.from)
    };
    let edit = |pin: &Withdrawn| Edit {
        kind: ResourceKind::Pin,
        name: pin.pin.clone(),
        value: Some(Arc::new(pin.to.as_str().into())),
    };
    pins.iter().filter(is_desired).map(edit).collect()
}

async fn withdraw(desk: &Desk, term: u64, id: u64, order: &Order, pins: &[Withdrawn]) -> Result<(), CommandError> {
    let what = if order.command == Command::Abort { "aborted" } else { "reverted" };
    for _ in 0..TRIES {
        let truth = desk.truth();
        let edits = edits(&truth, pins);
        if edits.is_empty() {
            return Ok(());
        }
        let ask = Ask {
            base: Some(truth.head.revision),
            author: order.by.author.clone(),
            reason: format!("roll-out {id} {what}"),
            at_ms: Clock::wall_millis(),
            what: What::Edits(edits),
            dry_run: false,
            options: None,
            retired: Retired::new(),
            term: Some(term),
        };
        match desk.change(ask).await {
            Ok(_) => return Ok(()),
            // Somebody has changed what is desired since.
            Err(DeskError::Conflict { .. }) => {}
            Err(error) => return Err(told(error)),
        }
    }
    Err(CommandError::Unavailable("others write faster than this can be worked out; try again".to_owned()))
}

fn told(error: DeskError) -> CommandError {
    match error {
        DeskError::Fenced => CommandError::NotLeading,
        DeskError::Store(error) => CommandError::Unavailable(error.public()),
        DeskError::Unavailable(words) => CommandError::Unavailable(words),
        error => CommandError::Undesired(format!("the pins cannot be desired as they were before: {error}")),
    }
}
