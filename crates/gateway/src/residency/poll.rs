//! Each replica has a task that asks it what it holds, which is also its health probe.
//!
//! Repository replicas are asked for their index; static ones are asked, version by version, whether they are ready. A poll that fails counts as
//! a failed probe; what a replica holds is unknown, hence nothing, once it is ejected.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::Residency;
use holdfast_placement::health::{HealthEvent, Transition};
use holdfast_placement::residency::{Event, Proof, State, Strange, VersionIx};
use holdfast_telemetry::Clock;
use holdfast_types::{Bytes, Mono};

use super::server::{self, CallError};
use super::{Driver, verify};
use crate::fleet::{Pool, Replica};
use crate::random::Random;

/// What a poll has shown.
#[derive(Default)]
struct Seen {
    held: Vec<VersionIx>,
    loading: Vec<VersionIx>,
    strange: Strange,
}

/// The longest wait while the end of a load is known by polls alone.
const SOON: Duration = Duration::from_millis(500);
/// The longest wait after a poll that failed.
const AGAIN: Duration = Duration::from_secs(2);

/// A tenth of jitter either way, so that replicas are not asked all at once: 0.9 to 1.1 of `interval`, as `share` goes from 0 to 1.
fn jittered(interval: Duration, share: f64) -> Duration {
    interval.mul_f64(0.9) + interval.mul_f64(0.2 * share)
}

impl Driver {
    /// Starts the polling of replicas that are new.
    pub fn poll_replicas(self: &Arc<Self>, replicas: &[Arc<Replica>]) {
        for replica in replicas {
            let (me, replica) = (self.clone(), replica.clone());
            self.tasks.spawn(async move { me.poll_loop(&replica).await });
        }
    }

    async fn poll_loop(&self, replica: &Arc<Replica>) {
        let mut random = Random::new();
        let mut strays = 0;
        while !replica.is_removed() {
            let Some(pool) = self.fleet.pool(&replica.pool) else { return };
            let answered = self.poll_once(&pool, replica).await;
            self.tell_strays(replica, &mut strays);
            // One that does not answer is asked again soon, however seldom replicas are asked: what it holds is in doubt until it does.
            let interval = pool.config.health.interval;
            let interval = match answered {
                true if self.state.lock().machine.awaits_index(replica.ix) => interval.min(SOON),
                true => interval,
                false => interval.min(AGAIN),
            };
            let wait = jittered(interval, random.share());
            tokio::select! {
                biased;
                () = replica.probe.lost() => self.doubt(&pool, replica),
                () = replica.refresh.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// True: the replica answered.
    async fn poll_once(&self, pool: &Pool, replica: &Arc<Replica>) -> bool {
        let (started, opened) = (Clock::now(), replica.probe.opened());
        let timeout = pool.config.health.timeout;
        let observed = match pool.config.residency {
            Residency::Repository => self.ask_index(pool, replica, timeout).await,
            Residency::Static => ask_versions(pool, replica, timeout).await,
        };
        match observed {
            Ok(Seen { held, loading, strange }) => {
                replica.set_error(None);
                let known = replica.last_poll() != Mono::ZERO;
                replica.polled(Clock::now());
                self.seen(replica, HealthEvent::ProbeOk);
                let reopened = known && replica.probe.opened() != opened;
                if reopened && replica.probe.keeps() {
                    self.doubt(pool, replica);
                }
                if replica.usable() {
                    self.apply(Event::Observed { replica: replica.ix, started, held, loading, strange });
                }
                if reopened && !replica.probe.keeps() {
                    self.prove_in_service(pool, replica, timeout).await;
                }
                self.release_quarantined(pool, replica, timeout).await;
                true
            }
            Err(error) => {
                if error.is_broken() {
                    self.doubt(pool, replica);
                }
                replica.set_error(Some(error.to_string()));
                self.seen(replica, HealthEvent::ProbeFailed);
                false
            }
        }
    }

    /// A server that answers more often than it is asked may have given somebody the answer to another request, where no id could tell.
    fn tell_strays(&self, replica: &Replica, told: &mut u64) {
        let now = replica.strays();
        if now > *told {
            let detail = format!("something came over {} kept connections that nobody had asked for", now - *told);
            self.alarms.note(&self.fleet, "stray_answer", replica.ix, None, detail);
            *told = now;
        }
    }

    /// A kept connection has ended: the process may have, and another one may come, with other weights under the same names. Where proofs are
    /// declared, what was proved before does not hold any more.
    fn doubt(&self, pool: &Pool, replica: &Replica) {
        if pool.has_proofs() && replica.last_poll() != Mono::ZERO {
            self.apply(Event::ObservationLost { replica: replica.ix });
        }
    }

    /// A server that closes each connection does not tell by it that it was started anew: all that is proved there is proved again, in service.
    async fn prove_in_service(&self, pool: &Pool, replica: &Arc<Replica>, timeout: Duration) {
        for facts in pool.versions.iter().filter(|v| v.has_proof()) {
            let Some(cell) = self.fleet.cell(replica.ix, facts.ix).filter(|cell| cell.holds()) else { continue };
            if let Proof::Wrong(why) = verify::prove(&cell.replica.fetch, facts, timeout).await {
                self.disproved(replica.ix, facts.ix, why);
            }
        }
    }

    /// Tells a replica's health what was seen, and the machine what followed from it.
    pub fn seen(&self, replica: &Replica, event: HealthEvent) {
        if event == HealthEvent::TransportError {
            // It may have been started anew: what it holds is asked at once.
            replica.refresh.notify_one();
        }
        match replica.note(Clock::now(), event) {
            Some(Transition::Ejected) => {
                tracing::warn!(pool = %replica.pool, replica = %replica.name, error = replica.last_error(), "replica is down");
                self.apply(Event::ReplicaDown { replica: replica.ix });
                replica.turned(Clock::now());
                self.changed.notify_waiters();
            }
            Some(Transition::Readmitted) => {
                tracing::info!(pool = %replica.pool, replica = %replica.name, "replica is back");
                self.apply(Event::ReplicaUp { replica: replica.ix });
                replica.turned(Clock::now());
                self.changed.notify_waiters();
            }
            None => {}
        }
    }

    /// Asks quarantined versions again, at the earliest after a pause that grows with each quarantine. One is released by a full proof. Without a
    /// known answer a proof says little: then the version is loaded anew, where the server can.
    async fn release_quarantined(&self, pool: &Pool, replica: &Arc<Replica>, timeout: Duration) {
        for version in self.due_for_release(replica.ix) {
            let Some(facts) = pool.versions.iter().find(|v| v.ix == version) else { continue };
            match self.prospect(replica.ix, version).state {
                Some(State::Quarantined) => {}
                // It is on its way out.
                Some(State::Hiding | State::Unloading) => continue,
                _ => {
                    self.quarantine_asked(replica.ix, version, true);
                    continue;
                }
            }
            // On a server that another gateway unloads from, a proof has to do.
            let renews = pool.config.residency == Residency::Repository && self.may_act(replica.ix);
            if facts.golden.is_empty() && renews {
                self.quarantine_asked(replica.ix, version, false);
                self.apply(Event::Renew { replica: replica.ix, version });
                continue;
            }
            let proven = verify::prove(&replica.fetch, facts, timeout).await == Proof::Proven;
            if self.quarantine_asked(replica.ix, version, proven) {
                self.apply(Event::Released { replica: replica.ix, version });
            }
        }
    }

    /// Versions that are to be unloaded are looked for too: what is not seen counts as gone. What is being loaded goes by the name alone, as loads
    /// do, and so does what no version is called: it takes room, as far as its size is known.
    async fn ask_index(&self, pool: &Pool, replica: &Replica, timeout: Duration) -> Result<Seen, CallError> {
        let server::Index { ready, loading: names } = server::index(&replica.probe, timeout).await?;
        if !names.is_empty()
            && let Some(company) = self.company.get()
        {
            company.tells_of_loads(&pool.name);
        }
        replica.tells_of_loads(names.len());
        let retired = self.fleet.retired(&pool.name);
        let live = ready.iter().flat_map(|(name, version)| pool.matching(name, version));
        let leaving = retired.iter().filter(|v| ready.iter().any(|(name, version)| v.is_called(name, version)));
        let mut held: Vec<VersionIx> = live.chain(leaving).map(|v| v.ix).collect();
        held.sort_unstable();
        held.dedup();
        let called: HashMap<&str, VersionIx> =
            retired.iter().chain(&pool.versions).map(|v| (v.upstream_model.as_str(), v.ix)).collect();
        let loading: Vec<VersionIx> = names.iter().filter_map(|name| called.get(name.as_str()).copied()).collect();
        let strangers: BTreeSet<&str> =
            ready.iter().map(|(name, _)| name.as_str()).filter(|n| !called.contains_key(n)).collect();
        let sizes = strangers.iter().filter_map(|name| self.fleet.former_size(&pool.name, name));
        let size = Bytes(sizes.fold(0, |sum, size| sum.saturating_add(size.0)));
        replica.set_strangers(strangers.into_iter().map(str::to_owned).collect());
        let loads = u32::try_from(names.len().saturating_sub(loading.len())).unwrap_or(u32::MAX);
        Ok(Seen { held, loading, strange: Strange { loads, size } })
    }
}

async fn ask_versions(pool: &Pool, replica: &Replica, timeout: Duration) -> Result<Seen, CallError> {
    let mut held = Vec::new();
    for (model, version) in replica.declared().iter() {
        let Some(facts) = pool.version(model, version) else { continue };
        if server::is_ready(&replica.probe, &facts.upstream_model, &facts.upstream_version, timeout).await? {
            held.push(facts.ix);
        }
    }
    Ok(Seen { held, ..Seen::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_spread_by_a_tenth_either_way() {
        let of = |millis, share| jittered(Duration::from_millis(millis), share).as_millis();
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|share| of(1_000, share)), [900, 950, 1_000, 1_100]);
        assert_eq!(of(60_000, 0.0), 54_000);
    }
}
