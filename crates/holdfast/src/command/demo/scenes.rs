//! The five scenes. Each says first what will happen, then checks that it did.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::board::Board;
use super::calls::{Calls, Judges, Verdict, ask};
use super::tally::told;
use super::world::{LOAD_TIME, MODEL, SUBSET, TENANTS, World};
use crate::command::Failure;

/// What a scene works with.
pub struct Stage {
    /// The processes.
    pub world: World,
    /// What is seen meanwhile.
    pub board: Board,
    /// How long traffic is watched.
    pub length: Duration,
}

type Playing<'a> = Pin<Box<dyn Future<Output = Result<String, Failure>> + 'a>>;

/// One scene.
pub struct Scene {
    /// Its title.
    pub title: &'static str,
    /// What is told before it.
    pub promise: &'static str,
    play: fn(&mut Stage) -> Playing<'_>,
}

impl Scene {
    /// Plays it, and says what was found.
    ///
    /// # Errors
    /// It did not come out as told.
    pub fn play<'a>(&self, stage: &'a mut Stage) -> Playing<'a> {
        (self.play)(stage)
    }
}

/// In the order in which they are played.
pub const SCENES: [Scene; 5] = [
    Scene {
        title: "Every tenant is judged by its own version",
        promise: "Four tenants ask for the same model. None names a version; each is judged by the one that it pinned.",
        play: |stage| Box::pin(own_versions(stage)),
    },
    Scene {
        title: "A version that no replica holds is loaded once, and waited for",
        promise: "Eight requests of initech name version 5. They wait for one load, and the next request does not wait.",
        play: |stage| Box::pin(cold_load(stage)),
    },
    Scene {
        title: "A request that cannot wait is told when to come back",
        promise: "A request of initech names version 6 and has 100 ms. A load takes longer: it is refused, not served by another.",
        play: |stage| Box::pin(shed(stage)),
    },
    Scene {
        title: "A replica dies under traffic",
        promise: "One model server is killed. Its tenants are served by the others, by the same versions as before.",
        play: |stage| Box::pin(death(stage)),
    },
    Scene {
        title: "A pin changes",
        promise: "acme's pin is set to another version. That is loaded first; only then does every request move to it.",
        play: |stage| Box::pin(pin_change(stage)),
    },
];

fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if is_so { Ok(()) } else { Err(Failure::failed(what())) }
}

async fn own_versions(stage: &mut Stage) -> Result<String, Failure> {
    let before = stage.board.tally.mark();
    stage.board.watch(stage.length).await;
    let after = stage.board.tally.mark();
    let errors = after.errors_since(&before);
    ensure(errors.is_empty(), || told(&errors))?;
    for (tenant, version) in TENANTS {
        let answers = after.answers_since(&before, tenant, version);
        ensure(answers > 0, || format!("{tenant} got no answer by version {version}"))?;
    }
    Ok(format!("{} requests, each answered by its tenant's own version", after.requests - before.requests))
}

/// A client of initech, whose requests name a version.
struct Named {
    calls: Calls,
    judges: Judges,
}

impl Named {
    fn new(world: &World) -> Result<Self, Failure> {
        let calls = Calls::new(world.data())?.with("x-tenant", "initech")?;
        Ok(Self { calls, judges: Judges::read(&world.models())? })
    }

    async fn ask(&self, stage: &Stage, version: &str) -> Verdict {
        let verdict = ask(&self.calls, &self.judges, 0, Some(version)).await;
        stage.board.tally.count("initech", &verdict, Some(version));
        verdict
    }
}

async fn cold_load(stage: &mut Stage) -> Result<String, Failure> {
    let holders = stage.world.holders("5").await?;
    ensure(holders.is_empty(), || format!("version 5 is held already by {holders:?}"))?;
    let client = Named::new(&stage.world)?;
    let begun = Instant::now();
    let asks = || client.ask(stage, "5");
    let (a, b, c, d, e, f, g, h) = tokio::join!(asks(), asks(), asks(), asks(), asks(), asks(), asks(), asks());
    let waited = begun.elapsed();
    for verdict in [a, b, c, d, e, f, g, h] {
        let Verdict { status, error, version, .. } = verdict;
        ensure(status == 200 && version == "5", || format!("a request for version 5 got {status} {error} {version}"))?;
    }
    ensure(waited >= LOAD_TIME, || format!("the load took only {} ms", waited.as_millis()))?;
    let holders = stage.world.holders("5").await?;
    ensure(holders.len() == 1, || format!("one load was due, and now {holders:?} hold version 5"))?;
    let next = client.ask(stage, "5").await;
    ensure(next.status == 200 && next.took < LOAD_TIME, || format!("the next request took {:?}", next.took))?;
    Ok(format!(
        "8 requests waited {} ms for one load on {}; the next took {:.1} ms",
        waited.as_millis(),
        holders.concat(),
        next.took.as_secs_f64() * 1000.0
    ))
}

async fn shed(stage: &mut Stage) -> Result<String, Failure> {
    let holders = stage.world.holders("6").await?;
    ensure(holders.is_empty(), || format!("version 6 is held already by {holders:?}"))?;
    let mut client = Named::new(&stage.world)?;
    client.calls = client.calls.with("x-request-timeout-ms", "100")?;
    // Not counted with the traffic: it is refused on purpose.
    let Verdict { status, error, retry_after, took, .. } = ask(&client.calls, &client.judges, 0, Some("6")).await;
    ensure(status == 503 && error == "no_holder", || format!("it got {status} {error}"))?;
    let Some(seconds) = retry_after else { return Err(Failure::failed("it was not told when to come back")) };
    ensure(took < LOAD_TIME, || format!("it was kept for {} ms", took.as_millis()))?;
    let millis = took.as_secs_f64() * 1000.0;
    Ok(format!("refused after {millis:.1} ms: 503 {error}, come back in {seconds} s"))
}

/// The replica that holds acme's version and answers it.
async fn victim(stage: &Stage) -> Result<&'static str, Failure> {
    let holders = stage.world.holders(TENANTS[0].1).await?;
    let victim = super::world::REPLICAS.into_iter().find(|name| holders.iter().any(|holder| holder == name));
    victim.ok_or_else(|| Failure::failed("no replica holds acme's version"))
}

async fn death(stage: &mut Stage) -> Result<String, Failure> {
    let victim = victim(stage).await?;
    let Some(port) = stage.world.port_of(victim) else { return Err(Failure::failed("the replica has no port")) };
    let before = stage.board.tally.mark();
    stage.world.kill(victim);
    stage.board.watch(stage.length.max(Duration::from_secs(2))).await;
    let middle = stage.board.tally.mark();
    for (tenant, version) in TENANTS {
        let answers = middle.answers_since(&before, tenant, version);
        ensure(answers > 0, || format!("{tenant} got no answer by version {version}"))?;
    }
    stage.world.start_again(victim, port)?;
    stage.world.wait_until_warm().await?;
    let after = stage.board.tally.mark();
    let errors = after.errors_since(&before);
    let foreseen = |kind: &str| ["upstream_error", "no_holder", "overloaded"].iter().any(|k| kind.ends_with(k));
    ensure(errors.keys().all(|kind| foreseen(kind)), || format!("failures of another kind: {}", told(&errors)))?;
    if let Some(wrong) = stage.board.tally.first_wrong() {
        return Err(Failure::failed(wrong));
    }
    let requests = after.requests - before.requests;
    Ok(format!("{victim} was killed and came back; {requests} requests meanwhile, {}", told(&errors)))
}

async fn pin_change(stage: &mut Stage) -> Result<String, Failure> {
    let (tenant, old) = TENANTS[0];
    let new = "7";
    let before = stage.board.tally.mark();
    stage.world.pin(tenant, new).await?;
    let asked = Instant::now();
    let mut warming = None;
    let flipped = loop {
        let table = stage.world.ask_admin("/v1/table").await?;
        if warming.is_none() && table["pending"].as_array().is_some_and(|p| !p.is_empty()) {
            warming = Some(asked.elapsed());
        }
        let rows = table["tenants"].as_array().cloned().unwrap_or_default();
        if rows.iter().any(|row| row["tenant"] == tenant && row["pins"][MODEL] == new) {
            break asked.elapsed();
        }
        ensure(asked.elapsed() < Duration::from_secs(30), || "the pin has not moved in 30 s".to_owned())?;
        stage.board.watch(Duration::from_millis(100)).await;
    };
    let holders = stage.world.holders(new).await?;
    ensure(holders.len() >= SUBSET, || format!("the pin moved while only {holders:?} held the new version"))?;
    let Some(warming) = warming else { return Err(Failure::failed("the pin moved without a warm-up")) };
    stage.board.watch(stage.length).await;
    let after = stage.board.tally.mark();
    let errors = after.errors_since(&before);
    ensure(errors.is_empty(), || told(&errors))?;
    let [by_old, by_new] = [old, new].map(|version| after.answers_since(&before, tenant, version));
    ensure(by_old > 0 && by_new > 0, || format!("{by_old} answers by {old}, {by_new} by {new}"))?;
    Ok(format!(
        "{by_old} requests by version {old} while {} warmed up for {} ms, then {by_new} by version {new}; no errors",
        holders.join(" and "),
        (flipped - warming).as_millis()
    ))
}
