//! Loads, unloads and proofs as tasks: what the machine asked for is done, and the answer goes back as an event.
//!
//! A proof asks, in this order: does the server call this very version ready; does its metadata name the version and, if one is declared, the
//! digest; do the declared questions get their known answers from an answer that names the version. Only then is the version shown.

use std::time::Duration;

use serde_json::Value;

use holdfast_config::Digest;
use holdfast_net::Fetch;
use holdfast_placement::residency::{Event, LoadError, Op, Proof, ReplicaIx, VersionIx};
use holdfast_telemetry::Clock;
use holdfast_types::Mono;

use super::Driver;
use super::server::{self, CallError};
use crate::fleet::VersionFacts;
use crate::golden;

impl Driver {
    pub(super) fn start_load(&self, op: Op, replica: ReplicaIx, version: VersionIx, deadline: Mono) {
        let (Some(me), Some(target)) = (self.arc(), self.fleet.replica(replica)) else { return };
        let Some(facts) = self.fleet.version(version) else { return };
        self.tasks.spawn(async move {
            let begun = Clock::now();
            me.tell_of_load(version, replica).await;
            if !me.may_act(replica) {
                let error = LoadError { text: "another gateway loads on this server now".to_owned(), permanent: false };
                return me.apply(Event::LoadDone { op, result: Err(error) });
            }
            me.see_if_it_tells(&target);
            let _loading = target.begin_load();
            // For as long as it takes: a load that nobody waits for any more is still a load.
            let mut result = server::load(&target.fetch, &facts.upstream_model).await;
            if result.is_ok() {
                result = wait_ready(&target.fetch, &facts, deadline).await;
            }
            if let Err(error) = &result {
                tracing::warn!(replica = %target.name, model = %facts.model, version = %facts.version, %error, "load failed");
            }
            me.load_finished(op, replica, result, Clock::now().since(begun));
        });
    }

    pub(super) fn start_unload(&self, op: Op, replica: ReplicaIx, version: VersionIx, deadline: Mono) {
        let (Some(me), Some(target)) = (self.arc(), self.fleet.replica(replica)) else { return };
        let Some(facts) = self.fleet.version(version) else { return };
        self.tasks.spawn(async move {
            let within = deadline.since(Clock::now());
            if !me.others_let_go(version, replica, within).await || !me.may_act(replica) {
                let why = "another gateway uses it, or unloads here now".to_owned();
                return me.apply(Event::UnloadDone { op, result: Err(why) });
            }
            me.metrics.evictions.get([target.pool.as_str()]).inc();
            let result = server::unload(&target.fetch, &facts.upstream_model, deadline.since(Clock::now())).await;
            me.apply(Event::UnloadDone { op, result: result.map_err(|e| e.to_string()) });
        });
    }

    pub(super) fn start_verify(&self, op: Op, replica: ReplicaIx, version: VersionIx, deadline: Mono) {
        let (Some(me), Some(target)) = (self.arc(), self.fleet.replica(replica)) else { return };
        let Some(facts) = self.fleet.version(version) else { return };
        if self.quarantines.is_inherited(replica, version) {
            let proof = Proof::Wrong("quarantined under the server's former name".to_owned());
            self.tasks.spawn(async move { me.apply(Event::Verified { op, proof }) });
            return;
        }
        self.tasks.spawn(async move {
            let proof = prove(&target.fetch, &facts, deadline.since(Clock::now())).await;
            me.apply(Event::Verified { op, proof });
        });
    }
}

/// How long to wait before the first look whether a version is ready that was said to be loaded; twice as long before each further one, to a
/// second.
const FIRST_LOOK: Duration = Duration::from_millis(20);

/// Some servers answer a load before they have done it. Until it is ready it is a load in flight: counted, and not begun anew.
async fn wait_ready(fetch: &Fetch, facts: &VersionFacts, deadline: Mono) -> Result<(), CallError> {
    let mut pause = FIRST_LOOK;
    loop {
        let left = deadline.since(Clock::now());
        if left.is_zero() {
            return Err(CallError::NotReady);
        }
        let asked = server::is_ready(fetch, &facts.upstream_model, &facts.upstream_version, left).await;
        match asked {
            Ok(true) => return Ok(()),
            Err(error) if error.is_broken() => return Err(error),
            Ok(false) | Err(_) => tokio::time::sleep(pause.min(left)).await,
        }
        pause = pause.saturating_mul(2).min(Duration::from_secs(1));
    }
}

/// Whether the server holds the version, and whether it is what it is said to be.
pub(super) async fn prove(fetch: &Fetch, facts: &VersionFacts, most: Duration) -> Proof {
    match tokio::time::timeout(most, ask(fetch, facts, most)).await {
        Ok(Ok(())) => Proof::Proven,
        Ok(Err(Doubt::Wrong(why))) => Proof::Wrong(why),
        Ok(Err(Doubt::Unknown(why))) => Proof::Unknown(why),
        Err(_) => Proof::Unknown(format!("no proof within {most:?}")),
    }
}

enum Doubt {
    Wrong(String),
    Unknown(String),
}

impl From<CallError> for Doubt {
    fn from(error: CallError) -> Self {
        Self::Unknown(error.to_string())
    }
}

async fn ask(fetch: &Fetch, facts: &VersionFacts, most: Duration) -> Result<(), Doubt> {
    let (model, version) = (facts.upstream_model.as_str(), facts.upstream_version.as_str());
    if !server::is_ready(fetch, model, version, most).await? {
        return Err(Doubt::Unknown("the server does not call the version ready".to_owned()));
    }
    if let Some(digest) = &facts.digest {
        let metadata = server::metadata(fetch, model, version, most).await?;
        check_digest(&metadata, digest)?;
    }
    for golden in &facts.golden {
        let answer = server::infer(fetch, model, version, &golden.input, most).await?;
        check_names(&answer, facts)?;
        golden::compare(&golden.output, &answer, golden.tolerance)
            .map_err(|why| Doubt::Wrong(format!("a known question has another answer: {why}")))?;
    }
    Ok(())
}

/// Servers tell the digest of what they have loaded in the metadata's `parameters.digest`.
fn check_digest(metadata: &Value, digest: &Digest) -> Result<(), Doubt> {
    let told = metadata.pointer("/parameters/digest").and_then(Value::as_str);
    let declared = golden::digest_text(digest);
    match told {
        Some(told) if told.eq_ignore_ascii_case(&declared) => Ok(()),
        Some(told) => Err(Doubt::Wrong(format!(
            "the server has loaded {}, declared is {declared}",
            told.get(..80).unwrap_or(told)
        ))),
        None => Err(Doubt::Wrong("a digest is declared, but the server's metadata tells none".to_owned())),
    }
}

fn check_names(answer: &Value, facts: &VersionFacts) -> Result<(), Doubt> {
    for (member, want) in [("model_name", facts.upstream_model.as_str()), ("model_version", facts.answer_version())] {
        let got = answer.get(member).and_then(Value::as_str).filter(|got| !got.is_empty());
        if got.is_some_and(|got| got != want) {
            return Err(Doubt::Wrong(format!("an answer has {member} {got:?} where {want:?} was asked")));
        }
    }
    Ok(())
}
