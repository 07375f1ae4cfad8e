//! Who wants a roll-out to go back: before it is told to, the change that leads back is looked at. One that says how to go about it is no revert but
//! a roll-out of its own; and a way back goes into history in the words of whoever asked for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_config::ResourceKind;
use holdfast_store::Store;

use super::drive::{AGAIN, Driver};
use super::forms::By;
use super::jobs::Outcome;
use super::planning::{asker, given};
use super::running::Running;

/// What a change is that leads back.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    /// Where the pins are desired by it.
    to: Vec<String>,
    /// The last revision by which one of them was asked for again.
    again: u64,
    /// It came with options.
    own: bool,
    by: By,
}

/// A roll-out whose cause is to be read.
struct Question {
    id: u64,
    pins: Vec<Arc<str>>,
    /// Parallel to the pins: where they are desired.
    to: Vec<String>,
    again: u64,
}

impl Driver {
    /// Which of these roll-outs are to be told to go back now, and in whose words. The others are looked at first.
    pub(super) fn reverts(&mut self, wanted: &BTreeSet<u64>) -> Vec<(u64, By)> {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for running in wanted.iter().filter_map(|id| self.running.get(id)) {
            let id = running.id().0;
            match self.cause(running) {
                Some(cause) => known.push((id, cause.by.clone())),
                None => unknown.push(self.question(running)),
            }
        }
        if !unknown.is_empty() && !self.asking {
            self.asking = true;
            self.jobs.spawn(read(self.parts.store.clone(), unknown));
        }
        known
    }

    pub(super) fn caused(&mut self, of: Vec<(u64, Cause)>) {
        self.asking = false;
        self.causes.extend(of);
        self.due.policy = true;
    }

    /// Whether the change that leads back is known to have options of its own.
    pub(super) fn is_own(&self, running: &Running) -> bool {
        self.cause(running).is_some_and(|cause| cause.own)
    }

    /// Lets go of what was read about wishes that are none any more.
    pub(super) fn keep_causes(&mut self) {
        let ids: Vec<u64> = self.causes.keys().copied().collect();
        for id in ids {
            if self.running.get(&id).is_none_or(|running| self.cause(running).is_none()) {
                self.causes.remove(&id);
            }
        }
    }

    fn cause(&self, running: &Running) -> Option<&Cause> {
        let cause = self.causes.get(&running.id().0)?;
        let same = cause.to == self.wished(running) && cause.again == self.asked_by(running);
        same.then_some(cause)
    }

    fn wished(&self, running: &Running) -> Vec<String> {
        let desired = |name| self.truth.desired.get(ResourceKind::Pin, name).and_then(|version| version.as_str());
        running.pins.iter().map(|pin| desired(&pin.name).unwrap_or_default().to_owned()).collect()
    }

    fn asked_by(&self, running: &Running) -> u64 {
        running.pins.iter().filter_map(|pin| self.again.get(&pin.name)).max().copied().unwrap_or_default()
    }

    fn question(&self, running: &Running) -> Question {
        let pins = running.pins.iter().map(|pin| pin.name.clone()).collect();
        Question { id: running.id().0, pins, to: self.wished(running), again: self.asked_by(running) }
    }
}

async fn read(store: Arc<dyn Store>, questions: Vec<Question>) -> Outcome {
    let mut causes = Vec::new();
    for question in questions {
        let id = question.id;
        match cause(&*store, question).await {
            Ok(cause) => causes.push((id, cause)),
            Err(error) => {
                tracing::warn!(rollout = id, %error, "who wants it to go back could not be read; it is tried again");
                tokio::time::sleep(AGAIN).await;
                break;
            }
        }
    }
    Outcome::Causes(causes)
}

async fn cause(store: &dyn Store, question: Question) -> holdfast_store::Result<Cause> {
    let Question { pins, to, again, .. } = question;
    let given = given(store, &pins).await?;
    let is_own = |(name, to): (&Arc<str>, &String)| given.get(&**name).is_some_and(|g| g.to == *to && g.options.any());
    let own = pins.iter().zip(&to).any(is_own);
    Ok(Cause { own, by: asker(store, &pins, again).await?, to, again })
}
