//! Changed pins on their way into force: the driver of [`decide::rollout`](holdfast_decide::rollout), and the links to the gateways.
//!
//! ```text
//!             Truth                 View                    Status
//!   Desk --------------> Driver ----------> Sessions <====> gateways
//!        <-- activate --   |                   |
//!                          +-- records --> Store <-- leases
//! ```
//!
//! The driver is level-triggered (`policy`): whatever pin is desired elsewhere than it is in force, and is on no way there, gets a roll-out
//! (`planning`), together with those of the same change. Each roll-out is one machine (`running`); what it wants done is carried out (`carry`)
//! by orders to the gateways and by jobs against the store (`jobs`), and what they say comes back as events, many at a time (`drive`).
//!
//! * **One leads.** Only who holds the store's leadership drives; every write carries its term. Who does not, or no longer, goes on telling
//!   its gateways what is in force.
//! * **Nothing is held only here.** A driver that is dropped at any moment leaves records from which the next one goes on ([`forms`]). A number
//!   of a roll-out is never given twice.
//! * **One transaction.** An activation is the desk's, with the record at its version, the roster of leases and the note of the step in it. If
//!   its outcome is not known, the machine saves and reads; what it reads is the store at that moment and no cached picture.
//! * **All live gateways.** A replica holds a version when every live gateway that has it in service says so (`reports`).
//! * **A try is a load that failed.** Gateways count them; a status that says the same again is none (`tries`).
//! * **An abort and a revert are wishes.** Whoever asks for one wants what was in force before: that is desired first, in a revision of its own
//!   (`withdraw`), so that nothing later brings the new version into force unseen.
//! * **A canary is a split.** A step of it leaves the pin where it is and puts a share of its traffic in force beside it; the last one moves the
//!   pin. Its subset is held and prepared before the first share like that of any flip.

mod again;
mod board;
mod carry;
mod causes;
mod drive;
pub mod forms;
mod gone;
mod guarded;
mod jobs;
mod moved;
mod needed;
mod places;
mod planning;
mod policy;
mod reconcile;
mod records;
mod reports;
mod running;
mod sessions;
mod takeover;
mod tries;
mod withdraw;
pub mod words;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_decide::rollout::{Command, Phase, Refusal, Rollout};
use holdfast_plane::{Orders, Pending, Table, View};
use holdfast_telemetry::Throttled;
use holdfast_types::Mono;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::desk::Desk;
pub(crate) use again::failed;
use board::{ALARM_AGAIN, Ask, MAX_ALARMS, Order, Parts};
pub use board::{Alarmed, CommandError, Settings, Shown, Waits};
use drive::Driver;
pub use forms::{By, Head, Meta};
pub use sessions::{Link, MAX_GATEWAYS, Node, Sessions};

/// A source of time.
pub type Now = Arc<dyn Fn() -> Mono + Send + Sync>;

/// Questions to the driver that may wait.
const MAX_ASKS: usize = 64;
/// How long an answer of the driver is waited for. A command may wait for an activation to be resolved.
const ANSWER: Duration = Duration::from_secs(30);

/// Which of the control planes over one store this one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// The store has not said.
    #[default]
    Unknown,
    /// It leads.
    Leads {
        /// Its term.
        term: u64,
    },
    /// Another one leads.
    Follows,
}

/// The roll-outs of one control plane, whether it leads or not.
pub struct Rollouts {
    parts: Arc<Parts>,
    asks: mpsc::Sender<Ask>,
    inbox: Mutex<Option<mpsc::Receiver<Ask>>>,
    standing: watch::Sender<Standing>,
}

impl Rollouts {
    /// Over the store of the desk. Nothing is driven before [`Rollouts::run`].
    #[must_use]
    pub fn new(desk: Arc<Desk>, sessions: Arc<Sessions>, settings: Settings, now: Now) -> Arc<Self> {
        let (asks, inbox) = mpsc::channel(MAX_ASKS);
        let pending = desk.truth().pending.values().cloned().collect();
        let first = Orders { pending, ..Orders::default() };
        let parts = Parts {
            store: desk.store().clone(),
            desk,
            sessions,
            settings,
            now,
            orders: watch::Sender::new(Arc::new(first)),
            waiting: Mutex::default(),
            alarms: Mutex::default(),
            lines: Throttled::new(ALARM_AGAIN, MAX_ALARMS),
            changes: watch::Sender::new(0),
            phases: Mutex::default(),
            failed: AtomicU64::new(0),
            alarmed: AtomicU64::new(0),
        };
        let (parts, inbox) = (Arc::new(parts), Mutex::new(Some(inbox)));
        Arc::new(Self { parts, asks, inbox, standing: watch::Sender::default() })
    }

    /// Publishes to the gateways, and drives while it leads. Dropping it at any moment is safe. Runs once.
    pub async fn run(self: Arc<Self>, stop: impl Future<Output = ()> + Send) {
        let Some(mut inbox) = self.inbox.lock().take() else { return };
        tokio::select! {
            () = stop => {}
            () = self.publish() => {}
            () = self.lead(&mut inbox) => {}
        }
        self.standing.send_replace(Standing::Unknown);
    }

    async fn lead(&self, inbox: &mut mpsc::Receiver<Ask>) {
        loop {
            match self.parts.store.lead().await {
                Ok(Some(leader)) => {
                    let term = leader.term();
                    tracing::info!(term, "leads");
                    self.standing.send_replace(Standing::Leads { term });
                    Driver::new(self.parts.clone(), term).run(leader, inbox).await;
                    self.standing.send_replace(Standing::Unknown);
                    self.parts.waiting.lock().clear();
                    self.parts.phases.lock().clear();
                    tracing::warn!(term, "leads no longer");
                    // Who asked this leader is answered by none.
                    while inbox.try_recv().is_ok() {}
                }
                Ok(None) => {
                    self.standing
                        .send_if_modified(|was| std::mem::replace(was, Standing::Follows) != Standing::Follows);
                }
                Err(error) => {
                    self.standing.send_if_modified(|was| std::mem::take(was) != Standing::Unknown);
                    tracing::warn!(%error, "the store does not say who leads");
                }
            }
            tokio::time::sleep(self.parts.settings.lead).await;
        }
    }

    /// Tells the gateways what is in force, and the last orders.
    async fn publish(&self) {
        let (mut truths, mut orders) = (self.parts.desk.watch(), self.parts.orders.subscribe());
        let mut table: Arc<Table> = Arc::default();
        loop {
            let truth = truths.borrow_and_update().clone();
            if table.revision != truth.head.in_force {
                table = Arc::new(truth.table());
            }
            let view = View { table: table.clone(), orders: orders.borrow_and_update().clone(), ..View::default() };
            self.parts.sessions.publish(view);
            tokio::select! {
                changed = truths.changed() => if changed.is_err() { return },
                changed = orders.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Whether this control plane drives the roll-outs.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.term().is_some()
    }

    /// The term under which it does.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        match *self.standing.borrow() {
            Standing::Leads { term } => Some(term),
            Standing::Follows | Standing::Unknown => None,
        }
    }

    /// Follows who leads, as the store says.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// How many roll-outs are in this driver's hands, by where they are.
    #[must_use]
    pub fn phases(&self) -> BTreeMap<Phase, u64> {
        self.parts.phases.lock().clone()
    }

    /// Roll-outs that this process has seen fail.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.parts.failed.load(Ordering::Relaxed)
    }

    /// How often a person should have known something, since this process started.
    #[must_use]
    pub fn alarmed(&self) -> u64 {
        self.parts.alarmed.load(Ordering::Relaxed)
    }

    /// All roll-outs by number, from the store: those that run, and the last finished ones.
    ///
    /// # Errors
    /// The store gives no answer.
    pub async fn list(&self) -> holdfast_store::Result<Vec<Head>> {
        let (heads, damaged) = records::heads(&*self.parts.store).await?;
        damaged.iter().for_each(|words| tracing::warn!(%words, "a roll-out cannot be shown"));
        Ok(heads)
    }

    /// One of them in full: from the driver, or as the store has it.
    ///
    /// # Errors
    /// The store gives no answer.
    pub async fn get(&self, id: u64) -> holdfast_store::Result<Option<Shown>> {
        if self.leads() {
            let (reply, answer) = oneshot::channel();
            let sent = self.asks.try_send(Ask::Show { id, reply }).is_ok();
            if sent && let Ok(Ok(Some(shown))) = tokio::time::timeout(ANSWER, answer).await {
                return Ok(Some(shown));
            }
        }
        let stored = match records::load(&*self.parts.store, id).await {
            Ok(stored) => stored,
            Err(records::LoadError::Store(error)) => return Err(error),
            Err(error) => return Err(holdfast_store::Error::Corrupt { what: error.to_string() }),
        };
        let Some(stored) = stored else { return Ok(None) };
        let machine = Rollout::resume(Mono::ZERO, u64::MAX, &stored.saved)
            .map_err(|e| holdfast_store::Error::Corrupt { what: e.to_string() })?;
        let mut progress = machine.progress();
        // It waits for the driver's own record, which is nobody's business here.
        progress.waiting_for.retain(|w| *w != holdfast_decide::rollout::Waiting::Store);
        Ok(Some(Shown { meta: stored.head.meta, options: stored.saved.options, progress }))
    }

    /// Has a command of somebody carried out: answered when it is written down.
    ///
    /// # Errors
    /// [`CommandError`].
    pub async fn command(&self, id: u64, command: Command, author: &str) -> Result<(), CommandError> {
        let answer = self.tell(id, command, author).await;
        // What has ended is not paused either, but that is not what its asker has to know.
        if command == Command::Resume && answer == Err(CommandError::Refused(Refusal::Nothing)) {
            let shown = self.get(id).await.ok().flatten();
            if shown.is_some_and(|shown| shown.progress.pins.iter().all(|pin| pin.stage.is_final())) {
                return Err(CommandError::Refused(Refusal::Over));
            }
        }
        answer
    }

    async fn tell(&self, id: u64, command: Command, author: &str) -> Result<(), CommandError> {
        if !self.leads() {
            return Err(CommandError::NotLeading);
        }
        let (reply, answer) = oneshot::channel();
        let by = By { author: author.to_owned(), reason: "reverted".to_owned() };
        let order = Order { command, by, withdrawn: false };
        self.asks.try_send(Ask::Command { id, order, reply }).map_err(|_| CommandError::Late)?;
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) if self.leads() => Err(CommandError::Unknown(id)),
            Ok(Err(_)) => Err(CommandError::NotLeading),
            Err(_) => Err(CommandError::Late),
        }
    }

    /// Changes whenever something of a roll-out may have.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.parts.changes.subscribe()
    }

    /// Pins that are desired and not in force yet.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        let waiting = self.waiting();
        let words: std::collections::BTreeMap<&str, &str> = waiting.iter().map(|w| (&*w.pin, &*w.words)).collect();
        let truth = self.parts.desk.truth();
        let told = |(name, wish): (&Arc<str>, &Pending)| Pending {
            words: words.get(&**name).map(|words| (*words).to_owned()),
            ..wish.clone()
        };
        truth.pending.iter().map(told).collect()
    }

    /// Of the pending pins, those that are on no way, or for which there is no room: what they wait for, or why they do not go. Known where the driver is.
    #[must_use]
    pub fn waiting(&self) -> Vec<Waits> {
        self.parts.waiting.lock().clone()
    }

    /// What a person should know, the latest last.
    #[must_use]
    pub fn alarms(&self) -> VecDeque<Alarmed> {
        self.parts.alarms.lock().clone()
    }

    /// What the gateways are asked to do.
    #[must_use]
    pub fn orders(&self) -> Arc<Orders> {
        self.parts.orders.borrow().clone()
    }
}
