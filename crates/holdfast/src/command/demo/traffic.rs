//! Steady requests of all tenants, for as long as the demo runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::calls::{Calls, Judges, ask};
use super::tally::Tally;
use super::world::{TENANTS, World};
use crate::command::Failure;

/// Clients of each tenant, and the pause between an answer and the next request of one.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(40);

/// See the module. Dropping it ends the clients at once.
pub struct Traffic {
    tally: Tally,
    stop: watch::Sender<bool>,
    clients: JoinSet<()>,
}

impl Traffic {
    /// Starts the clients.
    pub fn start(world: &World) -> Result<Self, Failure> {
        let judges = Arc::new(Judges::read(&world.models())?);
        let (stop, stopped) = watch::channel(false);
        let mut traffic = Self { tally: Tally::default(), stop, clients: JoinSet::new() };
        for (tenant, _) in TENANTS {
            let calls = Calls::new(world.data())?.with("x-tenant", tenant)?;
            for number in 0..CLIENTS {
                let client =
                    Client { tenant, calls: calls.clone(), judges: judges.clone(), tally: traffic.tally.clone() };
                traffic.clients.spawn(client.run(number, stopped.clone()));
            }
        }
        Ok(traffic)
    }

    /// What they see.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Lets every client finish what it has begun.
    pub async fn stop(mut self) -> Tally {
        let _ = self.stop.send(true);
        while self.clients.join_next().await.is_some() {}
        self.tally
    }
}

struct Client {
    tenant: &'static str,
    calls: Calls,
    judges: Arc<Judges>,
    tally: Tally,
}

impl Client {
    async fn run(self, number: usize, stopped: watch::Receiver<bool>) {
        let mut turn = number;
        while !*stopped.borrow() {
            let verdict = ask(&self.calls, &self.judges, turn, None).await;
            self.tally.count(self.tenant, &verdict, None);
            turn = turn.wrapping_add(1);
            tokio::time::sleep(PAUSE).await;
        }
    }
}
