//! What a control plane tells the gateways that come to it. Only the leader takes gateways in: a roll-out rests on what all of them say, and the
//! leader has to hear it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use holdfast_control::rollouts::{Link, Sessions, Standing};
use holdfast_control::seats::Seats;
use holdfast_net::Tasks;
use holdfast_plane::{GatewayEnd, View};
use holdfast_types::GatewayName;
use holdfast_wire::seats::{Answered, Asked};
use holdfast_wire::server::Plane;

/// See the module.
pub struct Leading {
    /// The links.
    pub sessions: Arc<Sessions>,
    /// Who starts loads where.
    pub seats: Arc<Seats>,
    /// Who leads. While nobody knows, gateways stay where they are.
    pub standing: watch::Receiver<Standing>,
    /// How long a silent gateway is waited for.
    pub lease: Duration,
    /// Where leases are granted.
    pub tasks: Tasks,
}

impl Plane for Leading {
    fn takes(&self) -> Result<(), &'static str> {
        match *self.standing.borrow() {
            Standing::Follows => Err("another control plane leads"),
            Standing::Leads { .. } | Standing::Unknown => Ok(()),
        }
    }

    /// Who knows that it leads knows what is in force. One that has lost its store may be the last to hear that another leads.
    fn vouches(&self) -> Result<(), &'static str> {
        match *self.standing.borrow() {
            Standing::Leads { .. } => Ok(()),
            Standing::Unknown => Err("the control plane does not know whether it leads: its store gives no answer"),
            Standing::Follows => Err("another control plane leads"),
        }
    }

    fn turned(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut standing = self.standing.clone();
        standing.mark_unchanged();
        Box::pin(async move {
            if standing.changed().await.is_err() {
                // Nobody says it any more.
                std::future::pending::<()>().await;
            }
        })
    }

    /// Nothing before there is a lease: what a gateway serves, roll-outs must wait for.
    fn view(&self, gateway: &GatewayName) -> View {
        self.sessions.told(gateway).unwrap_or_default()
    }

    fn sit(&self, asked: Asked) -> Option<Answered> {
        let (told, wishes, telling) = self.seats.sit(asked.sit, asked.wishes, asked.telling)?;
        Some(Answered { told, wishes, telling })
    }

    fn attach(&self, end: GatewayEnd) {
        let (sessions, standing, link) =
            (self.sessions.clone(), self.standing.clone(), Link::Remote { lease: self.lease });
        self.tasks.spawn(async move {
            let gateway = end.gateway.clone();
            if let Err(error) = sessions.attach(end, link).await {
                // The link ends with its end; the gateway comes again.
                tracing::warn!(%gateway, %error, "no lease could be written down; the gateway is sent away");
            }
            if *standing.borrow() == Standing::Follows {
                sessions.let_go();
            }
        });
    }
}

impl Leading {
    /// Lets all gateways go whenever another control plane is found to lead.
    pub async fn let_go(sessions: Arc<Sessions>, mut standing: watch::Receiver<Standing>) {
        loop {
            let follows = *standing.borrow_and_update() == Standing::Follows;
            if follows {
                sessions.let_go();
            }
            if standing.changed().await.is_err() {
                return;
            }
        }
    }
}
