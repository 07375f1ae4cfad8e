//! A gateway's seat in its fleet: it asks the control planes again and again, and the other gateways while none answers, and tells the residency
//! driver what it may load on and until when. The rules are [`holdfast_placement::seats`].

mod home;
mod others;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use holdfast_decide::rollout::Artifact;
use holdfast_gateway::{Company, Driver, Parting};
use holdfast_placement::seats::{Heard, Holder, Seat, Sit, Told};
use holdfast_plane::Wish;
use holdfast_telemetry::Clock;
use holdfast_types::Mono;
use holdfast_wire::seats::{Answered, Asked, Ballot, Leave, Loaded, Peer, Phone, Unseated, Usher};

pub use home::Home;
use others::{Switchboard, loaded};

/// How often a gateway asks that has no seat, or whose seating is about to change.
const SOON: Duration = Duration::from_millis(100);
/// The longest time between two questions.
const SELDOM: Duration = Duration::from_secs(1);
/// How long one question may take at most, and at least.
const ANSWER: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(2));

/// What the parts of a seat share.
struct Shared {
    holder: Mutex<Holder>,
    wishes: others::Wishes,
    wake: Arc<Notify>,
}

/// A seat that is not kept yet.
pub struct Keeper {
    shared: Arc<Shared>,
    home: Home,
    usher: Usher,
    phone: Arc<Phone>,
    /// How the residency driver asks other gateways.
    pub company: Arc<Company>,
}

/// Gives the seat up in order.
pub struct Leaving {
    ask: mpsc::Sender<oneshot::Sender<()>>,
}

impl Keeper {
    /// A seat for the gateway that has this home.
    pub fn new(seat: Seat, home: Home, usher: Usher, phone: Phone) -> Self {
        let (phone, wake) = (Arc::new(phone), Arc::new(Notify::new()));
        let wishes = others::Wishes::default();
        let board = Switchboard::new(phone.clone(), wishes.clone(), wake.clone());
        let company = Company::new(seat.name.clone(), Arc::new(board));
        let holder = Mutex::new(Holder::new(seat, home.promised()));
        Self { shared: Arc::new(Shared { holder, wishes, wake }), home, usher, phone, company }
    }

    /// What answers other gateways.
    pub fn desk(&self, driver: &Arc<Driver>) -> Arc<Desk> {
        Arc::new(Desk { shared: self.shared.clone(), driver: driver.clone() })
    }

    /// Keeps the seat, until it is given up.
    pub fn run(self, driver: Arc<Driver>) -> (Leaving, impl Future<Output = ()> + Send + 'static) {
        let (ask, mut asked) = mpsc::channel::<oneshot::Sender<()>>(1);
        let Self { shared, home, usher, phone, .. } = self;
        let wake = shared.wake.clone();
        let mut work = Work { usher, ear: Ear { shared, home, phone, driver }, known: false, failing: false };
        let run = async move {
            loop {
                let pause = work.ask(false).await;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = wake.notified() => {}
                    leave = asked.recv() => {
                        if let Some(done) = leave {
                            work.leave().await;
                            // Who waited may have lost patience.
                            let _ = done.send(());
                        }
                        return;
                    }
                }
            }
        };
        (Leaving { ask }, run)
    }
}

impl Leaving {
    /// Starts no more loads, and says so.
    pub async fn leave(self) {
        let (done, heard) = oneshot::channel();
        if self.ask.send(done).await.is_ok() {
            let _ = tokio::time::timeout(ANSWER.1, heard).await;
        }
    }
}

struct Work {
    usher: Usher,
    ear: Ear,
    /// A control plane has told of seats.
    known: bool,
    /// The last question was not answered by a lease.
    failing: bool,
}

impl Work {
    /// One question to the control planes, and one to the others while none grants a lease. Gives the time until the next.
    async fn ask(&mut self, leaving: bool) -> Duration {
        let lease = Some(self.ear.shared.holder.lock().seating().lease).filter(|lease| !lease.is_zero());
        let lease = lease.unwrap_or(SELDOM * 4);
        let within = (lease / 4).clamp(ANSWER.0, ANSWER.1);
        let (asked, sent, failing) = (self.ear.says(leaving), Clock::now(), self.failing);
        let (ear, usher) = (&self.ear, &mut self.usher);
        let votes = async {
            if failing {
                ear.ask_others(within).await;
            }
        };
        let (answered, ()) = tokio::join!(usher.sit(&asked, within), votes);
        match answered {
            Ok(Answered { told, wishes, telling }) => {
                let Told { seating, next, granted } = told;
                self.known = true;
                self.ear.driver.in_company();
                self.ear.driver.telling(telling);
                self.failing = !granted && next.is_none();
                self.ear.hear(Heard::Control { sent, seating, next, granted }).await;
                self.ear.driver.wished(wishes);
            }
            Err(why) => {
                tracing::debug!(%why, "no control plane gives a lease");
                let promised = self.ear.shared.holder.lock().promised();
                // Who has ever heard of seats stays with them: others may be seated.
                if why == Unseated::Unknown && !self.known && promised == 0 {
                    self.ear.driver.alone();
                }
                if !failing {
                    self.ear.ask_others(within).await;
                }
                self.failing = true;
            }
        }
        let left = self.ear.lease();
        if left > lease / 2 { (lease / 8).min(SELDOM) } else { SOON }
    }

    async fn leave(&mut self) {
        self.ear.shared.holder.lock().leave();
        self.ear.driver.leased(None);
        if self.ear.driver.drained_of_loads()
            && let Err(error) = self.ear.home.end().await
        {
            tracing::warn!(%error, "it cannot be noted that this gateway has ended well");
        }
        self.ask(true).await;
    }
}

/// Takes in what is heard.
struct Ear {
    shared: Arc<Shared>,
    home: Home,
    phone: Arc<Phone>,
    driver: Arc<Driver>,
}

impl Ear {
    fn says(&self, leaving: bool) -> Asked {
        let sit = Sit {
            seat: self.shared.holder.lock().me().clone(),
            promised: self.home.promised(),
            drained: self.driver.drained_of_loads(),
            clean: self.home.clean(),
            leaving,
        };
        Asked { sit, wishes: self.shared.wishes.take(), telling: self.driver.that_tell() }
    }

    async fn ask_others(&self, within: Duration) {
        let (epoch, peers) = {
            let holder = self.shared.holder.lock();
            let epoch = holder.seating().epoch;
            if !holder.is_seated() || holder.promised() > epoch {
                return;
            }
            (epoch, holder.peers().filter_map(|seat| seat.peer.clone()).collect::<Vec<_>>())
        };
        let mut calls = JoinSet::new();
        for peer in peers {
            let phone = self.phone.clone();
            calls.spawn(async move {
                let sent = Clock::now();
                phone.vote(&peer, epoch, within).await.map(|ballot| (sent, ballot))
            });
        }
        while let Some(answer) = calls.join_next().await {
            let Ok(Ok((sent, Ballot { name, home, yes }))) = answer else { continue };
            self.hear(Heard::Vote { sent, peer: name, home, epoch, yes }).await;
        }
    }

    async fn hear(&self, heard: Heard) {
        let (news, seating, promised) = {
            let mut holder = self.shared.holder.lock();
            let news = holder.hear(heard);
            (news, holder.seating().clone(), holder.promised())
        };
        if news.promised || news.seated {
            // Before anybody is told: nothing is started any more under the one before.
            self.driver.leased(None);
        }
        if news.seated {
            let names: Vec<&str> = seating.seats.iter().map(|seat| seat.name.as_str()).collect();
            let (epoch, unsure) = (seating.epoch, seating.unsure);
            tracing::info!(epoch, unsure, seats = names.join(", "), "another seating is in force");
            self.phone.keep(&seating.seats);
            self.driver.seated(seating);
        }
        if news.promised
            && let Err(error) = self.home.promise(promised).await
        {
            tracing::error!(%error, "a promise cannot be saved; it is not told");
        }
        self.lease();
    }

    /// Tells the driver until when it may start loads, and gives the time that is left.
    fn lease(&self) -> Duration {
        let (lease, margin) = {
            let holder = self.shared.holder.lock();
            (holder.lease(), holder.seating().lease / 10)
        };
        // What is decided is on its way a moment later.
        let margin = u64::try_from(margin.as_nanos()).unwrap_or(u64::MAX);
        let until = lease.map(|lease| Mono(lease.until.0.saturating_sub(margin)));
        let (until, now) = (until.filter(|until| *until > Clock::now()), Clock::now());
        self.driver.leased(until);
        until.map_or(Duration::ZERO, |until| until.since(now))
    }
}

/// Answers other gateways.
pub struct Desk {
    shared: Arc<Shared>,
    driver: Arc<Driver>,
}

#[holdfast_wire::async_trait]
impl Peer for Desk {
    fn vote(&self, epoch: u64) -> Ballot {
        let holder = self.shared.holder.lock();
        let me = holder.me();
        Ballot { name: me.name.clone(), home: me.home, yes: holder.votes_for(Clock::now(), epoch) }
    }

    async fn load(&self, wish: Wish, within: Duration) -> Loaded {
        loaded(self.driver.load_for(wish, within).await)
    }

    fn reloads(&self, artifact: Artifact, server: Box<str>) {
        self.driver.reloads(&Wish { artifact, servers: vec![server] });
    }

    async fn leaves(&self, leave: Leave) -> bool {
        let Leave { artifact, server, within, taken_back, word, renews } = leave;
        let wish = Wish { artifact, servers: vec![server] };
        let within = within.min(Duration::from_secs(60));
        self.driver.leaves(&wish, Parting { word, within, renews, taken_back })
    }
}
