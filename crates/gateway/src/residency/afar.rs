//! A version is wanted on servers of which others start the loads.
//!
//! The candidates are taken in the key's order, and those of one owner together. Whoever owns the first of them is asked first; only if it cannot
//! does another one load it. However many requests wait for one version, its owner is asked once, and no longer than somebody waits. Meanwhile the
//! requests wait here as for a load of this gateway's own: what they wait for is that a poll shows the version.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use holdfast_decide::rollout::Artifact;
use holdfast_placement::residency::{Event, Outcome, ReplicaIx, Shed, VersionIx, Word};
use holdfast_placement::seats::Seat;
use holdfast_plane::Wish;
use holdfast_telemetry::Clock;
use holdfast_types::{GatewayName, Mono};

use super::Driver;
use super::company::{Afar, Company, Parting, server_name};

/// How long a wish of another gateway, which it tells again and again, is worked at.
const WISH: Duration = Duration::from_secs(5);
/// An ask that ends so much sooner than a request's time is made again for it.
const SOONER: Duration = Duration::from_millis(100);
/// The shortest time that an owner is asked for: a request that does not wait leaves its wish behind.
const LEAST: Duration = Duration::from_millis(100);
/// What is used on a server was used this short a while ago.
const IN_USE: Duration = Duration::from_secs(1);
/// How long others may take to answer whether a version may go.
const MAY_GO: Duration = Duration::from_secs(2);

type Key = (VersionIx, GatewayName);

/// Questions to owners that are under way, one for each version and owner; as many as requests wait at most.
#[derive(Default)]
pub(super) struct Asks(Mutex<HashMap<Key, Weak<Ask>>>);

/// One question. It ends when nobody holds it any more.
struct Ask {
    answer: watch::Receiver<Option<Afar>>,
    since: Mono,
    until: Mono,
    task: tokio::task::AbortHandle,
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The candidates of one owner. None: nobody's.
type Group = (Option<Seat>, Vec<ReplicaIx>);

impl Driver {
    /// See the module.
    ///
    /// # Cancel safety
    /// Cancel safe: nobody is asked any more once the last who waits is gone.
    pub(super) async fn want_of_all(
        &self,
        company: &Company,
        version: VersionIx,
        candidates: Vec<ReplicaIx>,
        deadline: Mono,
    ) -> Option<Outcome> {
        let owners = company.owners();
        let mut groups: Vec<Group> = Vec::new();
        for replica in candidates.iter().copied() {
            let owner = owners.of(replica).cloned();
            match groups.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, members)) => members.push(replica),
                None => groups.push((owner, vec![replica])),
            }
        }
        let mut refused = None;
        for (owner, members) in groups {
            let outcome = match owner {
                Some(owner) if owner.name != company.me => {
                    self.ask_owner(company, &owner, version, members, deadline).await
                }
                _ => self.want_here(version, members, deadline).await,
            };
            match outcome {
                Some(Outcome::Ready(replica)) => return Some(Outcome::Ready(replica)),
                Some(outcome) => refused = Some(milder(refused, outcome)),
                None => {}
            }
            if Clock::now() >= deadline {
                break;
            }
        }
        match refused {
            Some(outcome) => Some(outcome),
            // No owner could be asked; it may have been told otherwise.
            None => self.want_here(version, candidates, deadline).await,
        }
    }

    /// None: the owner could not be asked, or is none.
    async fn ask_owner(
        &self,
        company: &Company,
        owner: &Seat,
        version: VersionIx,
        members: Vec<ReplicaIx>,
        deadline: Mono,
    ) -> Option<Outcome> {
        let wish = self.wish(version, &members)?;
        if owner.peer.is_none() {
            company.others.wish(wish);
            self.metrics.load_asks.get(["relayed"]).inc();
            return None;
        }
        let waits = self.want_here(version, members.clone(), deadline);
        tokio::pin!(waits);
        loop {
            let ask = self.asks(company, owner, version, &wish, deadline);
            let mut answer = ask.answer.clone();
            let afar = tokio::select! {
                biased;
                outcome = &mut waits => {
                    if deadline <= Clock::now() {
                        // Whoever has no time leaves the question behind, so that the next one finds the version.
                        let mut answer = ask.answer.clone();
                        self.tasks.spawn(async move {
                            drop(answer.wait_for(Option::is_some).await);
                            drop(ask);
                        });
                    }
                    return outcome;
                }
                told = answer.wait_for(Option::is_some) => told.ok().and_then(|told| told.clone()).unwrap_or(Afar::Silent),
            };
            let (sooner, since) = (deadline.since(ask.until) > SOONER, ask.since);
            drop(ask);
            match afar {
                Afar::Ready(server) => {
                    self.arrived(version, &members, &server, since);
                    return waits.await;
                }
                Afar::Shed { .. } if sooner => {}
                Afar::Shed { retry, why } => return Some(Outcome::Shed { retry_after: retry, why: word(&why) }),
                Afar::Failed(why) => return Some(Outcome::Failed { why }),
                Afar::NotOwner => return None,
                Afar::Silent => {
                    company.others.wish(wish);
                    return None;
                }
            }
        }
    }

    fn asks(&self, company: &Company, owner: &Seat, version: VersionIx, wish: &Wish, deadline: Mono) -> Arc<Ask> {
        let key = (version, owner.name.clone());
        let mut asks = company.asks.0.lock();
        if let Some(ask) = asks.get(&key).and_then(Weak::upgrade).filter(|ask| ask.answer.borrow().is_none()) {
            return ask;
        }
        asks.retain(|_, ask| ask.strong_count() > 0);
        let since = Clock::now();
        let within = deadline.since(since).max(LEAST);
        let call = company.others.load(owner, wish.clone(), within);
        let (tell, answer) = watch::channel(None);
        let metrics = self.metrics.clone();
        let task = tokio::spawn(async move {
            let afar = call.await;
            metrics.load_asks.get([outcome(&afar)]).inc();
            tell.send_replace(Some(afar));
        });
        let ask = Arc::new(Ask { answer, since, until: since.after(within), task: task.abort_handle() });
        asks.insert(key, Arc::downgrade(&ask));
        ask
    }

    /// Its owner says that the version is there: it is looked at now, and not with the next poll. A word that was given after the question was asked
    /// is kept: the owner may have answered before it asked for that.
    fn arrived(&self, version: VersionIx, members: &[ReplicaIx], server: &str, since: Mono) {
        for replica in members.iter().filter_map(|ix| self.fleet.replica(*ix)) {
            if *server_name(&replica.endpoint) == *server {
                self.apply(Event::TakeUp { replica: replica.ix, version, over: Word::Before(since) });
                replica.refresh.notify_one();
            }
        }
    }

    pub(super) fn wish(&self, version: VersionIx, replicas: &[ReplicaIx]) -> Option<Wish> {
        let facts = self.fleet.version(version)?;
        let replicas: Vec<_> = replicas.iter().filter_map(|ix| self.fleet.replica(*ix)).collect();
        let pool = replicas.first()?.pool.clone();
        let artifact = Artifact { pool, model: facts.model.clone(), version: facts.version.clone() };
        Some(Wish { artifact, servers: replicas.iter().map(|r| server_name(&r.endpoint)).collect() })
    }

    /// What a wish means here: the version, and those of the servers that this gateway owns.
    pub(super) fn meaning(&self, wish: &Wish, owned: bool) -> Option<(VersionIx, Vec<ReplicaIx>)> {
        let pool = self.fleet.pool(&wish.artifact.pool)?;
        let version = pool.version(&wish.artifact.model, &wish.artifact.version)?.ix;
        let named = pool.replicas.iter().filter(|r| wish.servers.contains(&server_name(&r.endpoint)));
        let meant: Vec<ReplicaIx> = named.map(|r| r.ix).filter(|ix| !owned || self.may_act(*ix)).collect();
        (!meant.is_empty()).then_some((version, meant))
    }

    /// Another gateway would have a version loaded here.
    ///
    /// # Cancel safety
    /// Cancel safe: a load that has begun goes on.
    pub async fn load_for(&self, wish: Wish, within: Duration) -> Afar {
        let Some((version, replicas)) = self.meaning(&wish, true) else { return Afar::NotOwner };
        let within = within.min(Duration::from_secs(3_600));
        match self.want_here(version, replicas, Clock::now().after(within)).await {
            Some(Outcome::Ready(replica)) => match self.fleet.replica(replica) {
                Some(replica) => Afar::Ready(server_name(&replica.endpoint)),
                None => Afar::NotOwner,
            },
            Some(Outcome::Shed { retry_after, why }) => Afar::Shed { retry: retry_after, why: why.as_str().to_owned() },
            Some(Outcome::Failed { why }) => Afar::Failed(why),
            None => Afar::Silent,
        }
    }

    /// Other gateways have wished for these, and tell so again as long as they do.
    pub fn wished(&self, wishes: Vec<Wish>) {
        let (Some(company), Some(me)) = (self.company.get(), self.arc()) else { return };
        for wish in wishes {
            if self.meaning(&wish, true).is_none() || !company.granting.lock().insert(wish.clone()) {
                continue;
            }
            let (me, company) = (me.clone(), company.clone());
            self.tasks.spawn(async move {
                me.load_for(wish.clone(), WISH).await;
                company.granting.lock().remove(&wish);
            });
        }
    }

    /// The owner of a server is about to unload a version there. True: it is used here no more, for so long.
    #[must_use]
    pub fn leaves(&self, wish: &Wish, parting: Parting) -> bool {
        let Some((version, replicas)) = self.meaning(wish, false) else { return true };
        let Parting { word, within, renews, taken_back } = parting;
        replicas.iter().all(|replica| {
            let stays = || {
                self.apply(Event::TakeUp { replica: *replica, version, over: Word::Number(word) });
                self.refresh(*replica);
            };
            if taken_back {
                stays();
                return true;
            }
            let Some(cell) = self.fleet.cell(*replica, version) else { return true };
            // Another owner may be about to unload the other copy, and have asked for that at the same time.
            if !renews && self.state.lock().machine.relies_on(*replica, version) {
                return false;
            }
            let now = Clock::now();
            if cell.in_flight() > 0 || cell.last_used().is_some_and(|at| now.since(at) < IN_USE) {
                return false;
            }
            // The flag goes first, and the count is looked at second: no request is overlooked.
            self.apply(Event::Yield { replica: *replica, version, until: now.after(within), word });
            let free = cell.in_flight() == 0;
            if !free {
                stays();
            }
            free
        })
    }

    /// Asks all others whether a version may go from a server. All of them have to say so.
    pub(super) async fn others_let_go(&self, version: VersionIx, replica: ReplicaIx, within: Duration) -> bool {
        let Some(company) = self.company.get().filter(|company| !company.is_alone()) else { return true };
        let Some(wish) = self.wish(version, &[replica]) else { return false };
        let owners = company.owners();
        let others: Vec<&Seat> =
            owners.seating.seats.iter().filter(|s| s.name != company.me && s.peer.is_some()).collect();
        let asked_at = Clock::now();
        let renews = self.state.lock().machine.renews(replica, version);
        let ask = |seat: &Seat, taken_back: bool| {
            let parting = Parting { word: asked_at.0, within, renews, taken_back };
            let call = company.others.leaves(seat, wish.clone(), parting);
            tokio::spawn(async move { tokio::time::timeout(MAY_GO, call).await.unwrap_or(false) })
        };
        let asked: Vec<_> = others.iter().map(|seat| ask(seat, false)).collect();
        let mut all = true;
        for answer in asked {
            all &= answer.await.unwrap_or(false);
        }
        // A word is good for a while; a process that stood still does not know for how long it has been.
        all &= Clock::now().since(asked_at) <= MAY_GO + SOONER;
        if !all {
            others.iter().for_each(|seat| drop(ask(seat, true)));
        }
        all
    }
}

/// Of two refusals the one that says when to come back, and sooner.
fn milder(before: Option<Outcome>, outcome: Outcome) -> Outcome {
    match (before, outcome) {
        (Some(Outcome::Shed { retry_after: a, why }), Outcome::Shed { retry_after: b, .. }) if a <= b => {
            Outcome::Shed { retry_after: a, why }
        }
        (Some(shed @ Outcome::Shed { .. }), Outcome::Failed { .. }) => shed,
        (_, outcome) => outcome,
    }
}

const fn outcome(afar: &Afar) -> &'static str {
    match afar {
        Afar::Ready(_) => "ready",
        Afar::Shed { .. } => "shed",
        Afar::Failed(_) => "failed",
        Afar::NotOwner => "not_owner",
        Afar::Silent => "silent",
    }
}

/// What another release calls otherwise is a want of time.
fn word(why: &str) -> Shed {
    let all = [
        Shed::Deadline,
        Shed::Budget,
        Shed::TooManyWaiters,
        Shed::NoReplica,
        Shed::Static,
        Shed::Quarantined,
        Shed::NoRoom,
        Shed::Thrashing,
        Shed::Backoff,
    ];
    all.into_iter().find(|shed| shed.as_str() == why).unwrap_or(Shed::Budget)
}
