//! A leadership is taken up, and questions are answered: roll-outs come from the store into the driver's hands.

use std::sync::Arc;

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{Artifact, Event, ResumeError};
use holdfast_plane::Entries;
use holdfast_store::{Key, Leader, Place, Space};
use holdfast_types::{IdError, ModelName, PoolName, Version};

use super::board::{Ask, Order, Shown};
use super::drive::{AGAIN, Driver};
use super::forms::is_unsettled;
use super::jobs::Outcome;
use super::needed::Needed;
use super::policy;
use super::records::{self, LoadError, Stored};
use super::running::{Reply, Running};

fn artifact(pool: &str, model: &str, version: &str) -> Result<Artifact, IdError> {
    let (pool, model) = (PoolName::parse(pool)?, ModelName::parse(model)?);
    Ok(Artifact { pool, model, version: Version::parse(version)? })
}

impl Driver {
    /// Takes a leadership up: goes on with what runs, and remembers what has ended badly. False: the leadership is lost.
    pub(super) async fn load(&mut self, leader: &mut Leader) -> bool {
        loop {
            match self.try_load().await {
                Ok(()) => return true,
                Err(words) => tracing::warn!(%words, "the roll-outs could not be read; it is tried again"),
            }
            tokio::select! {
                () = leader.lost() => return false,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    async fn try_load(&mut self) -> Result<(), String> {
        let (store, desk) = (self.parts.store.clone(), self.parts.desk.clone());
        self.truth = desk.refresh().await.map_err(|e| e.to_string())?;
        self.needed = Needed::of(&Entries::default(), &self.truth.in_force);
        self.parts.sessions.refresh().await.map_err(|e| e.to_string())?;
        let (heads, damaged) = records::heads(&*store).await.map_err(|e| e.to_string())?;
        damaged.into_iter().for_each(|words| self.parts.alarm(None, words));
        let mut ready = Vec::new();
        for head in heads {
            if head.is_over() {
                self.finished.insert(head.id);
            }
            if !head.is_over() || head.unsettled {
                ready.extend(records::load(&*store, head.id).await.map_err(|e| e.to_string())?);
            }
        }
        for stored in ready {
            if stored.head.is_over() {
                self.remember(&stored).await?;
            } else {
                self.resume(stored, None);
            }
        }
        Ok(())
    }

    /// Pins that a finished roll-out has left elsewhere, unless they were desired anew since it was planned.
    async fn remember(&mut self, stored: &Stored) -> Result<(), String> {
        for pin in stored.saved.pins.iter().filter(|pin| is_unsettled(pin)) {
            let name: Arc<str> = format!("{}/{}", pin.tenant, pin.model).into();
            let wish = self.truth.pending.get(&name).filter(|wish| wish.to.as_str() == pin.new.version);
            if wish.is_none() {
                continue;
            }
            let key = Key::new(ResourceKind::Pin.as_str(), &name).map_err(|e| e.to_string())?;
            let place = Place { space: Space::Desired, key };
            let desired = self.parts.store.get(place, None).await.map_err(|e| e.to_string())?;
            if desired.is_some_and(|d| d.revision.0 <= stored.head.meta.desired) {
                self.tries.doubt(artifact(&pin.new.pool, &pin.model, &pin.new.version).map_err(|e| e.to_string())?);
                self.stuck.insert(name, policy::stuck(stored.head.id, stored.head.meta.desired, pin));
            }
        }
        Ok(())
    }

    fn resume(&mut self, stored: Stored, ask: Option<(Order, Reply)>) {
        let (id, over) = (stored.head.id, stored.head.is_over());
        match Running::resume(self.now(), self.term, stored) {
            Ok(mut running) => {
                let mut ask = ask;
                if let Some((order, reply)) = ask.take() {
                    ask = self.before_order(&running, order, reply);
                    // What has ended need not be taken in hand to say no, nor before what is desired has changed.
                    if over && ask.is_none() {
                        return;
                    }
                }
                self.finished.remove(&id);
                let mut events = vec![Event::Tick];
                if let Some((order, reply)) = ask {
                    self.next_ask += 1;
                    running.asks.insert(self.next_ask, reply);
                    events.push(running.order(self.next_ask, order));
                    self.withdrawing.remove(&id);
                }
                self.running.insert(id, running);
                self.feed(id, events);
            }
            Err(ResumeError::Fenced { .. }) => self.fenced = true,
            Err(error) => self.parts.alarm(Some(id), error.to_string()),
        }
    }

    pub(super) fn loaded(
        &mut self,
        id: u64,
        stored: Result<Option<Box<Stored>>, LoadError>,
        ask: Option<(Order, Reply)>,
    ) {
        match stored {
            Ok(Some(stored)) if !self.running.contains_key(&id) => self.resume(*stored, ask),
            Ok(Some(_)) => {
                if let Some((order, reply)) = ask {
                    self.ask(Ask::Command { id, order, reply });
                }
            }
            // Dropping the answer tells that there is none.
            Ok(None) => _ = self.withdrawing.remove(&id),
            Err(error) => {
                self.withdrawing.remove(&id);
                tracing::warn!(rollout = id, %error, "a roll-out could not be read");
            }
        }
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Show { id, reply } => {
                let shown = self.running.get(&id).and_then(|running| {
                    let options = running.saved.as_ref()?.options.clone();
                    let mut progress = running.machine.progress();
                    for (ix, pin) in progress.pins.iter_mut().enumerate() {
                        let both = self.room_for(running, ix).into_iter().chain(pin.words.take());
                        pin.words = both.reduce(|room, failure| format!("{room}; {failure}"));
                    }
                    Some(Shown { meta: running.meta.clone(), options, progress })
                });
                let _ = reply.send(shown);
            }
            Ask::Command { id, order, reply } => match self.running.remove(&id) {
                Some(running) => {
                    let ask = self.before_order(&running, order, reply);
                    self.running.insert(id, running);
                    ask.into_iter().for_each(|(order, reply)| self.order_of(id, order, reply));
                }
                None => self.order_of(id, order, reply),
            },
        }
    }

    pub(super) fn order_of(&mut self, id: u64, order: Order, reply: Reply) {
        match self.running.get_mut(&id) {
            Some(running) => {
                self.withdrawing.remove(&id);
                self.next_ask += 1;
                running.asks.insert(self.next_ask, reply);
                let event = running.order(self.next_ask, order);
                self.feed(id, vec![event]);
            }
            None => {
                let store = self.parts.store.clone();
                let ask = Some((order, reply));
                self.jobs.spawn(async move {
                    Outcome::Loaded { id, stored: records::load(&*store, id).await.map(|s| s.map(Box::new)), ask }
                });
            }
        }
    }
}
