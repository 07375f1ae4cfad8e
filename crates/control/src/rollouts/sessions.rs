//! The links to gateways: one session for each name, what each says, and what all are told.
//!
//! A gateway is live while it holds a lease. One in this process holds it for as long as its link is there; one elsewhere renews it by
//! every word, whether or not the word is new ([`Sessions::heard`]). A lease is granted in the store before the gateway is told of any table
//! ([`Sessions::attach`]). One whose lease has ended and who speaks again is given another one when it has the table in force.
//!
//! Gateways of the roster without a link here (they spoke to the control plane before this one) are live and silent until their lease ends, and
//! hold flips up until then. One that was in the process of another control plane has gone with it.

mod roster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_plane::{GatewayEnd, Status, TokenState, View};
use holdfast_store::{RecordWrite, Result, Store};
use holdfast_types::{GatewayName, Mono, Revision};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::Now;
pub use roster::MAX_GATEWAYS;
use roster::Roster;

/// Where a gateway is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// In this process.
    Local,
    /// Elsewhere. Without a word it is live for so long.
    Remote {
        /// The lease.
        lease: Duration,
    },
}

/// A gateway, for people.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: GatewayName,
    /// Where it is.
    pub link: Link,
    /// Whether flips wait for it.
    pub leased: bool,
    /// How long ago it spoke.
    pub silent: Duration,
    /// What it says.
    pub status: Arc<Status>,
}

/// All gateways at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet {
    /// Leases granted, all of whose gateways are in the list.
    pub(super) roster: u64,
    pub(super) gateways: Vec<Seen>,
}

/// A gateway as the driver sees it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) leased: bool,
    /// It is not linked to this process: nothing of it is known.
    pub(super) stranger: bool,
    pub(super) status: Arc<Status>,
}

struct Session {
    end: GatewayEnd,
    link: Link,
    heard: Mono,
    leased: bool,
    follower: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

#[derive(Default)]
struct Inner {
    view: View,
    sessions: BTreeMap<GatewayName, Session>,
    roster: Roster,
    /// Gateways of the roster without a link: their grant, and when they were last known of. None: they have stopped in order, and nobody waits for them.
    strangers: BTreeMap<GatewayName, (u64, Option<Mono>)>,
    /// How many of them were waited for when it was last looked.
    waited: usize,
}

/// See the module.
pub struct Sessions {
    store: Arc<dyn Store>,
    now: Now,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

impl Sessions {
    /// No gateways yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, now: Now) -> Arc<Self> {
        Arc::new(Self { store, now, inner: Mutex::default(), changed: watch::Sender::new(0) })
    }

    /// Grants a lease, and takes the link in; one of the same name is replaced. The gateway is told the latest view.
    ///
    /// # Errors
    /// The lease could not be written down. Try again; the link is lost.
    pub async fn attach(self: &Arc<Self>, end: GatewayEnd, link: Link) -> Result<()> {
        let lease = match link {
            Link::Local => None,
            Link::Remote { lease } => Some(lease),
        };
        let name = end.gateway.clone();
        let roster = Roster::grant(&self.store, &name, lease).await?;
        let follower = self.follow(&name, end.status.clone());
        let session = Session { end, link, heard: (self.now)(), leased: true, follower };
        let mut inner = self.inner.lock();
        session.end.view.send_replace(inner.view.clone());
        inner.strangers.remove(&name);
        inner.sessions.insert(name, session);
        inner.take(roster, (self.now)());
        drop(inner);
        self.bump();
        Ok(())
    }

    /// Every word of a gateway renews its lease, and is news.
    fn follow(self: &Arc<Self>, name: &GatewayName, mut status: watch::Receiver<Arc<Status>>) -> AbortHandle {
        let (me, name) = (Arc::downgrade(self), name.clone());
        let task = tokio::spawn(async move {
            loop {
                let open = status.changed().await.is_ok();
                let Some(me) = me.upgrade() else { return };
                if !open {
                    me.closed(&name);
                    return;
                }
                if status.borrow().left {
                    me.left(&name);
                    return;
                }
                me.heard(&name);
                me.bump();
            }
        });
        task.abort_handle()
    }

    /// The transport has heard from the gateway, be it nothing new.
    pub fn heard(&self, name: &GatewayName) {
        if let Some(session) = self.inner.lock().sessions.get_mut(name) {
            session.heard = (self.now)();
        }
    }

    /// A gateway in this process is gone with its link. One elsewhere may be serving: its lease runs on.
    fn closed(&self, name: &GatewayName) {
        let mut inner = self.inner.lock();
        let gone = inner.sessions.get(name).filter(|s| s.link == Link::Local && s.end.status.has_changed().is_err());
        let gone = gone.is_some().then(|| inner.sessions.remove(name));
        drop(inner);
        drop(gone);
        self.bump();
    }

    /// A gateway has stopped in order: it answers nobody any more, so nothing waits for its lease to end.
    fn left(&self, name: &GatewayName) {
        let mut inner = self.inner.lock();
        // A link that came since has another word.
        let gone = inner.sessions.get(name).is_some_and(|session| session.end.status.borrow().left);
        let gone = gone.then(|| inner.sessions.remove(name)).flatten();
        if gone.is_some() {
            let grant = inner.roster.gateways.get(name).map_or(0, |lease| lease.grant);
            inner.strangers.insert(name.clone(), (grant, None));
        }
        drop(inner);
        if gone.is_some() {
            tracing::info!(gateway = %name, "a gateway has stopped in order; nothing waits for it");
        }
        drop(gone);
        self.bump();
    }

    /// Tells all gateways of a table and of orders.
    pub fn publish(&self, view: View) {
        let mut inner = self.inner.lock();
        let view = View { tokens: inner.view.tokens.clone(), ..view };
        for session in inner.sessions.values() {
            session.end.view.send_replace(view.clone());
        }
        inner.view = view;
    }

    /// Tells all gateways of keys for their tokens.
    pub fn publish_tokens(&self, tokens: Arc<TokenState>) {
        let mut inner = self.inner.lock();
        for session in inner.sessions.values() {
            session.end.view.send_modify(|view| view.tokens = tokens.clone());
        }
        inner.view.tokens = tokens;
    }

    /// What a gateway is told, if it has a link here and a lease.
    #[must_use]
    pub fn told(&self, name: &GatewayName) -> Option<View> {
        let inner = self.inner.lock();
        inner.sessions.get(name).filter(|session| session.leased).map(|_| inner.view.clone())
    }

    /// Ends the links to gateways that are elsewhere: another control plane leads, and has to hear them.
    pub fn let_go(&self) {
        let mut inner = self.inner.lock();
        let (gone, kept) = std::mem::take(&mut inner.sessions).into_iter().partition(|(_, s)| s.link != Link::Local);
        inner.sessions = kept;
        drop(inner);
        let gone: BTreeMap<_, Session> = gone;
        if !gone.is_empty() {
            self.bump();
        }
    }

    /// Every gateway with a link here, by name.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let (inner, now) = (self.inner.lock(), (self.now)());
        let node = |(name, session): (&GatewayName, &Session)| Node {
            name: name.clone(),
            link: session.link,
            leased: session.leased,
            silent: now.since(session.heard),
            status: session.end.status.borrow().clone(),
        };
        inner.sessions.iter().map(node).collect()
    }

    /// The oldest revision that a live gateway may answer a request under: the highest there is if none is live. `None`: one of them has not
    /// said it here.
    #[must_use]
    pub fn oldest(&self) -> Option<Revision> {
        let inner = self.inner.lock();
        if inner.waited_for((self.now)()).next().is_some() {
            return None;
        }
        let live = inner.sessions.values().filter(|session| session.leased);
        let mut oldest = Revision(u64::MAX);
        for session in live {
            let status = session.end.status.borrow();
            if status.in_force == Revision(0) {
                return None;
            }
            oldest = oldest.min(status.oldest).min(status.in_force);
        }
        Some(oldest)
    }

    /// Changes with every word of a gateway, and with every lease.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn bump(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    pub(super) fn fleet(&self) -> Fleet {
        let (inner, now) = (self.inner.lock(), (self.now)());
        let seen = |s: &Session| Seen { leased: s.leased, stranger: false, status: s.end.status.borrow().clone() };
        let mut gateways: Vec<Seen> = inner.sessions.values().map(seen).collect();
        let silent = |name: &GatewayName| Arc::new(Status::of(name.clone()));
        let strangers = inner.waited_for(now);
        gateways.extend(strangers.map(|name| Seen { leased: true, stranger: true, status: silent(name) }));
        Fleet { roster: inner.roster.granted, gateways }
    }

    /// The roster for an activation: writing it compares it.
    pub(super) fn roster(&self, granted: u64) -> Option<Result<RecordWrite>> {
        let inner = self.inner.lock();
        (inner.roster.granted == granted && inner.roster.version.is_some()).then(|| inner.roster.write())
    }

    /// The roster has this version now, and nothing else has changed.
    pub(super) fn rewritten(&self, granted: u64, version: u64) {
        let mut inner = self.inner.lock();
        if inner.roster.granted == granted {
            inner.roster.version = Some(version);
        }
    }

    /// Reads the roster anew: how many leases were granted.
    pub(super) async fn refresh(&self) -> Result<u64> {
        let roster = Roster::read(&*self.store).await?;
        let (granted, now) = (roster.granted, (self.now)());
        let mut inner = self.inner.lock();
        let news = inner.roster.granted != granted;
        inner.take(roster, now);
        drop(inner);
        if news {
            self.bump();
        }
        Ok(granted)
    }

    /// Ends leases that are over, and grants new ones to those that speak again and have the table in force.
    pub(super) async fn keep(&self, in_force: Revision) {
        for (name, lease) in self.lapse(in_force) {
            let Ok(roster) = Roster::grant(&self.store, &name, Some(lease)).await else { continue };
            let mut inner = self.inner.lock();
            if let Some(session) = inner.sessions.get_mut(&name) {
                session.leased = true;
            }
            inner.take(roster, (self.now)());
            drop(inner);
            self.bump();
        }
    }

    /// Who may have a lease again.
    fn lapse(&self, in_force: Revision) -> Vec<(GatewayName, Duration)> {
        let (mut inner, now, mut back, mut news) = (self.inner.lock(), (self.now)(), Vec::new(), false);
        let mut gone = Vec::new();
        for (name, session) in &mut inner.sessions {
            let Link::Remote { lease } = session.link else { continue };
            let silent = now.since(session.heard) > lease;
            if silent && session.leased {
                session.leased = false;
                news = true;
            }
            if silent && session.end.status.has_changed().is_err() {
                gone.push(name.clone());
            }
            if !silent && !session.leased && session.end.status.borrow().in_force >= in_force {
                back.push((name.clone(), lease));
            }
        }
        for name in gone {
            // Its lease is over: it is known of, and not waited for.
            let grant = inner.roster.gateways.get(&name).map_or(0, |lease| lease.grant);
            let heard = inner.sessions.remove(&name).map_or(now, |session| session.heard);
            inner.strangers.insert(name, (grant, Some(heard)));
            news = true;
        }
        let waited = inner.waited_for(now).count();
        news |= std::mem::replace(&mut inner.waited, waited) != waited;
        drop(inner);
        if news {
            self.bump();
        }
        back
    }
}

impl Inner {
    /// What was read last is not always what was written last.
    fn take(&mut self, roster: Roster, now: Mono) {
        if roster.version < self.roster.version {
            return;
        }
        self.roster = roster;
        let Self { roster, sessions, strangers, .. } = self;
        strangers.retain(|name, (grant, _)| roster.gateways.get(name).is_some_and(|lease| lease.grant == *grant));
        let unknown = roster.gateways.iter().filter(|(name, l)| l.lease_ms.is_some() && !sessions.contains_key(*name));
        for (name, lease) in unknown {
            strangers.entry(name.clone()).or_insert((lease.grant, Some(now)));
        }
    }

    /// Strangers whose lease is not over.
    fn waited_for(&self, now: Mono) -> impl Iterator<Item = &GatewayName> {
        let running = move |(name, (_, since)): &(&GatewayName, &(u64, Option<Mono>))| {
            let lease = self.roster.gateways.get(*name).and_then(|lease| lease.lease_ms);
            lease.zip(*since).is_some_and(|(ms, since)| now.since(since) <= Duration::from_millis(ms))
        };
        self.strangers.iter().filter(running).map(|(name, _)| name)
    }
}
