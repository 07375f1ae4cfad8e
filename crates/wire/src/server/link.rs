//! One gateway's link: what its view becomes is told, and what it says is put into its status.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::{Status, Streaming};
use tracing::{error, info, warn};

use holdfast_plane::{self as plane, ControlEnd, Orders, View, pair};
use holdfast_types::GatewayName;

use super::Plane;
use super::hub::{Hub, Seat};
use crate::held::Stamp;
use crate::parts::parts;
use crate::proto::{self, from_control, from_gateway};
use crate::words;

pub(super) type Out = mpsc::Sender<Result<proto::FromControl, Status>>;

pub(super) struct Link {
    pub(super) gateway: GatewayName,
    /// What the gateway said it has.
    pub(super) has: Option<Stamp>,
    pub(super) release: String,
    pub(super) read_within: Duration,
    pub(super) dead_after: Duration,
    pub(super) keep_alive: Duration,
    pub(super) plane: Arc<dyn Plane>,
    pub(super) hub: Arc<Hub>,
    pub(super) out: Out,
}

pub(super) const fn says(what: from_control::What) -> proto::FromControl {
    proto::FromControl { what: Some(what) }
}

pub(super) fn welcome(release: &str, current: Option<Stamp>, vouched: Result<(), &'static str>) -> proto::FromControl {
    let (current, doubt) = (current.map(Stamp::wire), vouched.err().unwrap_or_default().to_owned());
    says(from_control::What::Welcome(proto::Welcome { release: release.to_owned(), current, doubt }))
}

impl Link {
    pub(super) async fn run(self, inbound: Streaming<proto::FromGateway>, mut seat: Seat) {
        let (end, ControlEnd { view, status }) = pair(self.gateway.clone(), self.plane.view(&self.gateway));
        self.plane.attach(end);
        let whole = Notify::new();
        let mut telling = Telling {
            known: self.has,
            orders: None,
            said: None,
            disagreed: None,
            doubt: None,
            tokens: 0,
            out: &self.out,
            hub: &self.hub,
            plane: &*self.plane,
            gateway: &self.gateway,
            within: self.read_within,
        };
        let why = tokio::select! {
            biased;
            why = seat.left() => why,
            why = hear(inbound, &self.gateway, &status, &whole, self.dead_after) => why,
            why = telling.run(view, &whole, &self.release, self.keep_alive) => why,
        };
        info!(gateway = %self.gateway, why = why.message(), "a gateway's link has ended");
        // Closed before the seat is given up: what comes next under this name comes after.
        drop(status);
        drop(seat);
        let _ = self.out.try_send(Err(why));
    }
}

/// Takes what the gateway says until it says no more.
async fn hear(
    mut inbound: Streaming<proto::FromGateway>,
    gateway: &GatewayName,
    status: &watch::Sender<Arc<plane::Status>>,
    whole: &Notify,
    dead_after: Duration,
) -> Status {
    loop {
        let message = match timeout(dead_after, inbound.message()).await {
            Err(_) => return Status::deadline_exceeded("nothing was heard of the gateway"),
            Ok(Err(error)) => return error,
            Ok(Ok(None)) => return Status::cancelled("the gateway has left"),
            Ok(Ok(Some(message))) => message,
        };
        if status.is_closed() {
            return Status::unavailable("the control plane has let the gateway go");
        }
        match message.what {
            Some(from_gateway::What::Status(said)) => {
                status.send_replace(Arc::new(words::status_in(gateway.clone(), &said)));
            }
            Some(from_gateway::What::Heartbeat(_)) => status.send_modify(|_| ()),
            Some(from_gateway::What::Goodbye(_)) => {
                status.send_modify(|said| Arc::make_mut(said).left = true);
                return Status::cancelled("the gateway has stopped in order");
            }
            Some(from_gateway::What::NeedWhole(need)) => {
                warn!(%gateway, why = need.why, "a gateway asks for the whole table");
                whole.notify_one();
            }
            // A hello again means nothing; what a later release says is passed over.
            Some(from_gateway::What::Hello(_)) | None => {}
        }
    }
}

struct Telling<'a> {
    /// What the gateway has once it has read what was sent.
    known: Option<Stamp>,
    orders: Option<Arc<Orders>>,
    /// The table that the gateway was last told to be the one here. Before it knows that, it takes no orders.
    said: Option<Stamp>,
    /// The table that was last found not to follow from what the gateway has, so that it is told of once.
    disagreed: Option<Stamp>,
    /// The doubt that it was last told of, if it was told of any.
    doubt: Option<&'static str>,
    /// The stamp of the tokens' keys that it was told.
    tokens: u64,
    out: &'a Out,
    hub: &'a Hub,
    plane: &'a dyn Plane,
    gateway: &'a GatewayName,
    within: Duration,
}

impl Telling<'_> {
    async fn run(
        &mut self,
        mut view: watch::Receiver<View>,
        whole: &Notify,
        release: &str,
        keep_alive: Duration,
    ) -> Status {
        let mut tick = interval(keep_alive);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let current = Stamp::of(&view.borrow().table);
        let vouched = self.plane.vouches();
        if let Err(why) = self.send(welcome(release, current, vouched)).await {
            return why;
        }
        self.doubt = vouched.err();
        self.said = current;
        let mut from_nothing = false;
        loop {
            let now = view.borrow_and_update().clone();
            if let Err(why) = self.tell(&now, from_nothing).await {
                return why;
            }
            from_nothing = false;
            if let Err(why) = self.tell_tokens(&now.tokens).await {
                return why;
            }
            // Listened to before it is looked at: no turn is missed.
            let turned = self.plane.turned();
            if self.plane.vouches().err() != self.doubt
                && let Err(why) = self.keep_alive(Stamp::of(&now.table)).await
            {
                return why;
            }
            tokio::select! {
                () = turned => {}
                changed = view.changed() => if changed.is_err() {
                    return Status::unavailable("the control plane has let the gateway go");
                },
                () = whole.notified() => from_nothing = true,
                _ = tick.tick() => {
                    if let Err(why) = self.keep_alive(Stamp::of(&now.table)).await {
                        return why;
                    }
                },
            }
        }
    }

    async fn tell(&mut self, view: &View, from_nothing: bool) -> Result<(), Status> {
        let Some(makes) = Stamp::of(&view.table) else { return Ok(()) };
        self.hub.remember(&view.table);
        if !from_nothing && self.known == Some(makes) {
            if self.said != Some(makes) {
                self.keep_alive(Some(makes)).await?;
            }
            return self.tell_orders(&view.orders).await;
        }
        if self.known.is_some_and(|known| known != makes && known.revision >= makes.revision) {
            self.disagree(makes);
            return Ok(());
        }
        let base = self.known.filter(|_| !from_nothing).and_then(|known| self.hub.table(known));
        let orders = Some(words::orders_out(&view.orders));
        for part in parts(base.as_deref(), &view.table, orders).into_iter().flatten() {
            self.send(says(from_control::What::Table(part))).await?;
        }
        (self.known, self.said, self.orders) = (Some(makes), Some(makes), Some(view.orders.clone()));
        Ok(())
    }

    async fn tell_orders(&mut self, orders: &Arc<Orders>) -> Result<(), Status> {
        let said = self.orders.as_ref().is_some_and(|said| Arc::ptr_eq(said, orders) || said == orders);
        if said {
            return Ok(());
        }
        self.send(says(from_control::What::Orders(words::orders_out(orders)))).await?;
        self.orders = Some(orders.clone());
        Ok(())
    }

    async fn tell_tokens(&mut self, tokens: &plane::TokenState) -> Result<(), Status> {
        if tokens.stamp <= self.tokens {
            return Ok(());
        }
        let (stamp, content) = (tokens.stamp, tokens.content.to_vec().into());
        self.send(says(from_control::What::Tokens(proto::Tokens { stamp, content }))).await?;
        self.tokens = stamp;
        Ok(())
    }

    async fn keep_alive(&mut self, current: Option<Stamp>) -> Result<(), Status> {
        self.said = current;
        self.doubt = self.plane.vouches().err();
        let doubt = self.doubt.unwrap_or_default().to_owned();
        let alive = proto::KeepAlive { current: current.map(Stamp::wire), doubt };
        self.send(says(from_control::What::KeepAlive(alive))).await
    }

    /// The gateway would refuse it. It is told once there is a later one.
    fn disagree(&mut self, makes: Stamp) {
        if self.disagreed.replace(makes) == Some(makes) {
            return;
        }
        let (gateway, has) = (self.gateway, self.known.map(|known| known.revision.0));
        if has == Some(makes.revision.0) {
            error!(%gateway, revision = makes.revision.0, "a gateway has another content under this revision");
        } else {
            warn!(%gateway, revision = makes.revision.0, has, "a gateway has a later table than this control plane");
        }
    }

    async fn send(&self, message: proto::FromControl) -> Result<(), Status> {
        match timeout(self.within, self.out.send(Ok(message))).await {
            Err(_) => Err(Status::deadline_exceeded("the gateway does not read")),
            Ok(Err(_)) => Err(Status::cancelled("the gateway has left")),
            Ok(Ok(())) => Ok(()),
        }
    }
}
