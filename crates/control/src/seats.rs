//! Who of the gateways starts loads on which model server: the driver of [`Registrar`].
//!
//! Whoever leads takes the record over ([`form`]) and holds it by replacing it again and again; each replacement is compared with the version before
//! and with the term. After any failure it is read and taken over anew: what became of the last write is then known. Gateways ask by themselves
//! ([`Seats::sit`]); nothing is ever sent to them.

mod form;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_placement::seats::{MAX_SEATS, Record, Registrar, Rules, Seating, Sit, Told};
use holdfast_plane::Wish;
use holdfast_store::{Commit, Error, RecordWrite, Result, Store};
use holdfast_types::{GatewayName, Mono, PoolName};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::rollouts::{Now, Standing};

/// The record's kind and id.
const RECORD: (&str, &str) = ("seats", "seating");
/// The wait after a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// How often it is looked whether the seating has to change.
const LOOK: Duration = Duration::from_millis(200);
/// How long what a gateway wants of others is handed on.
const WISHED: Duration = Duration::from_secs(3);
/// The most versions that one gateway wants of others at once.
pub const MAX_WISHES: usize = 256;

/// See the module.
pub struct Seats {
    store: Arc<dyn Store>,
    now: Now,
    rules: Rules,
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Default)]
struct Inner {
    registrar: Option<Registrar>,
    wishes: BTreeMap<GatewayName, (Mono, Vec<Wish>)>,
    telling: BTreeSet<PoolName>,
}

impl Seats {
    /// Over this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, rules: Rules, now: Now) -> Arc<Self> {
        Arc::new(Self { store, now, rules, inner: Mutex::default(), wake: Notify::new() })
    }

    /// Answers a gateway, if this control plane has the record; with it what others want loaded and could not ask for, and the pools of which any
    /// gateway has said that their servers tell what they are loading.
    pub fn sit(&self, sit: Sit, wishes: Vec<Wish>, telling: Vec<PoolName>) -> Option<(Told, Vec<Wish>, Vec<PoolName>)> {
        let (mut inner, now) = (self.inner.lock(), (self.now)());
        let name = sit.seat.name.clone();
        let told = inner.registrar.as_mut()?.sit(now, sit);
        let room = MAX_WISHES.saturating_sub(inner.telling.len());
        inner.telling.extend(telling.into_iter().take(room));
        inner.wishes.retain(|_, (at, _)| now.since(*at) <= WISHED);
        if inner.wishes.len() < MAX_SEATS && !wishes.is_empty() {
            inner.wishes.insert(name.clone(), (now, wishes.into_iter().take(MAX_WISHES).collect()));
        } else {
            inner.wishes.remove(&name);
        }
        let others = inner.wishes.iter().filter(|(who, _)| **who != name).flat_map(|(_, (_, wishes))| wishes.clone());
        let others = others.take(MAX_WISHES).collect();
        let telling = inner.telling.iter().cloned().collect();
        drop(inner);
        self.wake.notify_one();
        Some((told, others, telling))
    }

    /// The seating in force, if this control plane has the record, and the number of the one to come.
    #[must_use]
    pub fn shown(&self) -> Option<(Seating, Option<u64>)> {
        let inner = self.inner.lock();
        let record = inner.registrar.as_ref()?.record();
        Some((record.seating.clone(), record.next.as_ref().map(|next| next.epoch)))
    }

    /// Has the record while this control plane leads, until `stop`.
    pub async fn run(self: Arc<Self>, mut standing: watch::Receiver<Standing>, stop: impl Future<Output = ()> + Send) {
        let rule = async {
            loop {
                let leads = standing.wait_for(|standing| matches!(standing, Standing::Leads { .. })).await;
                let Ok(Standing::Leads { term }) = leads.map(|standing| *standing) else {
                    return std::future::pending::<()>().await;
                };
                let ruled = self.rule(term, standing.clone()).await;
                self.inner.lock().registrar = None;
                if let Err(error) = ruled {
                    tracing::warn!(%error, "the seats of gateways cannot be written down; they are read anew");
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::select! {
            () = rule => {}
            () = stop => {}
        }
        self.inner.lock().registrar = None;
    }

    async fn rule(&self, term: u64, mut standing: watch::Receiver<Standing>) -> Result<()> {
        let (version, record) = self.read().await?;
        let record = Record { term, ..record };
        let rules = self.rules;
        let sent = (self.now)();
        let mut version = self.write(version, &record).await?;
        tracing::info!(term, epoch = record.seating.epoch, "gives the seats of gateways");
        self.inner.lock().registrar = Some(Registrar::new(rules, record, sent, (self.now)()));
        let mut confirm_at = sent;
        loop {
            if *standing.borrow_and_update() != (Standing::Leads { term }) {
                return Ok(());
            }
            let now = (self.now)();
            let wanted = self.wanted(now, confirm_at);
            if let Some(record) = wanted {
                let changes = self.inner.lock().registrar.as_ref().is_some_and(|r| *r.record() != record);
                version = self.write(Some(version), &record).await?;
                if changes {
                    tell(&record);
                }
                confirm_at = now.after(record.seating.lease.max(rules.lease) / 8);
                if let Some(registrar) = self.inner.lock().registrar.as_mut() {
                    registrar.written(now, record);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.wake.notified() => {}
                _ = standing.changed() => {}
            }
        }
    }

    /// What the record is to be replaced by: another seating, or itself, to be sure that nobody else has taken it over.
    fn wanted(&self, now: Mono, confirm_at: Mono) -> Option<Record> {
        let mut inner = self.inner.lock();
        let registrar = inner.registrar.as_mut()?;
        registrar.wants(now).or_else(|| (now >= confirm_at).then(|| registrar.record().clone()))
    }

    async fn read(&self) -> Result<(Option<u64>, Record)> {
        let Some(record) = self.store.record(RECORD.0.to_owned(), RECORD.1.to_owned()).await? else {
            return Ok((None, Record::default()));
        };
        let damaged = || Error::Corrupt { what: "the record of the gateways' seats".to_owned() };
        Ok((Some(record.version), form::read(record.value.as_bytes()).ok_or_else(damaged)?))
    }

    async fn write(&self, expected: Option<u64>, record: &Record) -> Result<u64> {
        let (kind, id) = (RECORD.0.to_owned(), RECORD.1.to_owned());
        let write = RecordWrite { kind, id, expected, value: Some(form::written(record)?) };
        let commit = Commit { records: vec![write], term: Some(record.term), ..Commit::default() };
        let done = self.store.commit(commit).await?;
        let version = done.versions.into_iter().next().flatten();
        version.ok_or_else(|| Error::Corrupt { what: "a record that was written has no version".to_owned() })
    }
}

fn tell(record: &Record) {
    let names = |seating: &Seating| seating.seats.iter().map(|s| s.name.to_string()).collect::<Vec<_>>().join(", ");
    match &record.next {
        Some(next) => tracing::info!(epoch = next.epoch, seats = names(next), "a seating of gateways is prepared"),
        None => {
            let Seating { epoch, unsure, .. } = record.seating;
            tracing::info!(epoch, unsure, seats = names(&record.seating), "a seating of gateways is in force");
        }
    }
}
