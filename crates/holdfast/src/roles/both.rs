//! Both planes in one process: the truth in one file, and a link that leaves memory nowhere.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_config::Truth;
use holdfast_control::backup::Backups;
use holdfast_control::desk::{Adopted, Desk, DeskError, DeskSettings};
use holdfast_control::keeper::{Keeper, Rhythm};
use holdfast_control::metrics;
use holdfast_control::pulse::{Pulse, Watched};
use holdfast_control::rollouts::{Link, Now, Rollouts, Sessions, Settings};
use holdfast_control::tokens::Tokens;
use holdfast_decide::rollout::Options;
use holdfast_gateway::StoreProbe;
use holdfast_identity::issuing::rotation::Plan;
use holdfast_net::Tasks;
use holdfast_plane::{ControlEnd, Orders, View, pair};
use holdfast_store::{Embedded, EmbeddedOptions, ErrorKind, Store};
use holdfast_telemetry::{Clock, Registry};
use holdfast_types::GatewayName;
use serde_json::json;

use super::differs::{NOT_TAKEN, declared, differs};
use crate::command::Failure;
use crate::config_file::Read;
use crate::lock_holder;

/// The control plane of one process.
pub struct Both {
    /// Where changes are asked for.
    pub desk: Arc<Desk>,
    /// The links to gateways: one.
    pub sessions: Arc<Sessions>,
    /// What is on its way.
    pub rollouts: Arc<Rollouts>,
    /// Keeps the history bounded.
    pub keeper: Arc<Keeper>,
    /// The keys of the gateways' own tokens, if there are any.
    pub tokens: Option<Arc<Tokens>>,
    pulse: Arc<Pulse>,
    store: Arc<dyn Store>,
}

/// Opens the store, takes the file in and gives the gateway's end of the link, with the first table in it.
///
/// # Errors
/// The store cannot be opened, or refuses the file.
pub async fn open(read: Read) -> Result<(Both, ControlEnd), Failure> {
    let store = store(&read.split.loaded.config.state).await?;
    let both = over(store, &read).await.map_err(refused)?;
    let (desk, sessions) = (&both.desk, &both.sessions);
    let name = GatewayName::parse("local").map_err(|e| Failure::failed(e.to_string()))?;
    let (gateway, control) = pair(name, first(desk));
    sessions.attach(gateway, Link::Local).await.map_err(|e| Failure::failed(e.to_string()))?;
    Ok((both, control))
}

/// A control plane over a store, which has taken the file in and has no gateways yet.
///
/// # Errors
/// The store gives no answer, or refuses the file.
pub async fn over(store: Arc<dyn Store>, read: &Read) -> Result<Both, DeskError> {
    let config = &read.split.loaded.config;
    let now: Now = Arc::new(Clock::now);
    let pulse = Pulse::new(now.clone());
    let store = Watched::over(store, pulse.clone());
    let settings = DeskSettings { owner: config.truth, ..DeskSettings::default() };
    let (split, frame) = (read.split.clone(), read.frame.clone());
    let declared = declared(&split);
    let desk = Desk::open(store.clone(), frame.clone(), settings).await?;
    let adopted = desk.adopt_file(split, frame, Clock::wall_millis(), Default::default(), None).await;
    tell(config.truth, &adopted?, differs(&desk.truth().desired, &declared));
    let sessions = Sessions::new(store.clone(), now.clone());
    sessions.publish(first(&desk));
    let settings = Settings { options: options(&config.rollouts), ..Settings::default() };
    let rollouts = Rollouts::new(desk.clone(), sessions.clone(), settings, now);
    let tokens = config.auth.as_ref().and_then(|auth| auth.tokens.as_ref());
    let tokens = tokens.map(|of| Tokens::new(store.clone(), sessions.clone(), rollouts.clone(), plan(of)));
    let (history, rhythm) = (config.history.clone(), Rhythm::default());
    let keeper = Keeper::new(store.clone(), sessions.clone(), rollouts.clone(), history, rhythm);
    Ok(Both { desk, sessions, rollouts, keeper, pulse, store, tokens })
}

/// How keys for tokens follow one another.
fn plan(of: &holdfast_config::OwnTokens) -> Plan {
    let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Plan { rotate: millis(of.rotate), lead: millis(of.publish), life: millis(of.refresh.max(of.access)) }
}

/// How roll-outs go about it that have no options of their own.
fn options(of: &holdfast_config::Rollouts) -> Options {
    Options {
        loads: of.loads as usize,
        tries: of.tries,
        load: of.load,
        warm: of.warm,
        prepare: of.prepare,
        drain: of.drain,
        retain: of.retain,
        ..Options::default()
    }
}

impl Both {
    /// Runs what the control plane does by itself, until the process ends.
    pub fn run(&self, tasks: &Tasks) {
        tasks.spawn(self.work(std::future::pending));
    }

    /// What the control plane does by itself. Each part of it ends with a future of its own.
    pub fn work<F, U>(&self, until: U) -> impl Future<Output = ()> + Send + 'static + use<F, U>
    where
        F: Future<Output = ()> + Send + 'static,
        U: Fn() -> F + 'static,
    {
        let follow = self.desk.clone().follow(until());
        let drive = self.rollouts.clone().run(until());
        let keep = self.keeper.clone().run(share(), until());
        let probe = self.pulse.clone().run(self.store.clone(), until());
        let rotate = self.tokens.clone().map(|tokens| tokens.run(until()));
        let rotate = async move {
            if let Some(rotate) = rotate {
                rotate.await;
            }
        };
        async move {
            tokio::join!(follow, drive, keep, probe, rotate);
        }
    }

    /// Shows what the control plane does among the metrics.
    pub fn register(&self, registry: &Registry) {
        metrics::register(registry, &self.desk, &self.rollouts, &self.keeper, &self.pulse);
    }

    /// Takes backups; what is written for a moment is in the state folder.
    pub fn backups(&self, state: &Path) -> Arc<Backups> {
        Backups::new(self.store.clone(), state)
    }

    /// Tells how the store does.
    pub fn probe(&self) -> StoreProbe {
        let pulse = self.pulse.clone();
        Arc::new(move |in_full| {
            let state = pulse.state();
            let error = if in_full { state.error } else { state.public };
            json!({ "ok": state.ok, "error": error, "since": state.since_ms })
        })
    }
}

/// Numbers from 0 to 1. The standard library's map seed is the one source of entropy that needs no dependency.
fn share() -> impl FnMut() -> f64 + Send {
    || RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

fn first(desk: &Desk) -> View {
    let truth = desk.truth();
    let pending = truth.pending.values().cloned().collect();
    View {
        table: Arc::new(truth.table()),
        orders: Arc::new(Orders { pending, ..Orders::default() }),
        ..View::default()
    }
}

/// The store's file in the state folder.
const FILE: &str = "table.redb";

/// Where the store is in the state folder.
pub fn store_file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// The store in the state folder, which is made if it is not there.
pub async fn store(folder: &Path) -> Result<Arc<dyn Store>, Failure> {
    std::fs::create_dir_all(folder).map_err(|e| Failure::failed(format!("{}: {e}", folder.display())))?;
    let file = store_file(folder);
    match Embedded::open(&file, EmbeddedOptions::default()).await {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) if error.kind() == ErrorKind::InUse => {
            Err(Failure::failed(format!("{error}{}", lock_holder::told(&file))))
        }
        Err(error) => Err(Failure::failed(format!("{}: {error}", file.display()))),
    }
}

/// The store in the state folder, which must be there.
pub async fn stored(folder: &Path) -> Result<Arc<dyn Store>, Failure> {
    let file = store_file(folder);
    if !file.exists() {
        return Err(Failure::failed(format!("{} is not there: there is nothing to back up", file.display())));
    }
    store(folder).await
}

fn tell(truth: Truth, adopted: &Adopted, differs: Option<String>) {
    match adopted {
        Adopted::Seeded(done) => {
            tracing::info!(changes = done.changes.len(), "the empty store is seeded from the file");
        }
        Adopted::Taken(done) if !done.changes.is_empty() => {
            tracing::info!(changes = done.changes.len(), revision = done.revision.map(|r| r.0), "the file has changed");
        }
        Adopted::SettingsOnly if truth == Truth::Store => {
            tracing::info!("pools, models and tenants are those of the store; of the file only settings are looked at");
            if let Some(differs) = differs {
                tracing::warn!(differs, "{NOT_TAKEN}");
            }
        }
        Adopted::Taken(_) | Adopted::SettingsOnly => {}
    }
}

/// In words for who has started the process.
pub fn refused(error: DeskError) -> Failure {
    match error {
        DeskError::Invalid(_) => Failure::wrong(error.to_string()),
        _ => Failure::failed(error.to_string()),
    }
}
