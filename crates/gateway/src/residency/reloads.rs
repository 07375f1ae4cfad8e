//! A version that is about to be loaded: other gateways are told, so that they prove the new copy before they use it.
//!
//! A copy that a server has dropped by itself and that is loaded again between two polls of another gateway looks to that one as if nothing had
//! happened. Whoever can be reached knows before the load begins. Who gives no answer does not keep the load from beginning: it is told again,
//! for as long as it has a seat.

use std::sync::Arc;
use std::time::Duration;

use holdfast_placement::residency::{Event, ReplicaIx, VersionIx};
use holdfast_placement::seats::Seat;
use holdfast_plane::Wish;

use super::Driver;
use super::company::Company;

/// How long a load waits for the answers.
const TELL: Duration = Duration::from_millis(300);
/// How long one that is told again may take, and how long it is waited before.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is told again: a gateway that is silent for so long has no seat any more, or has seen with its polls what is there.
const TIMES: u32 = 20;

impl Driver {
    /// Tells all others of a load that is about to begin on a server of this gateway.
    pub(super) async fn tell_of_load(&self, version: VersionIx, replica: ReplicaIx) {
        let Some(company) = self.company.get().filter(|company| !company.is_alone()) else { return };
        let Some(wish) = self.wish(version, &[replica]) else { return };
        let owners = company.owners();
        let others = owners.seating.seats.iter().filter(|s| s.name != company.me && s.peer.is_some());
        let told: Vec<_> = others
            .map(|seat| {
                let call = company.others.reloads(seat, wish.clone(), TELL);
                (seat, tokio::spawn(async move { tokio::time::timeout(TELL, call).await.unwrap_or(false) }))
            })
            .collect();
        for (seat, answer) in told {
            if !answer.await.unwrap_or(false) {
                self.tasks.spawn(tell_again(company.clone(), seat.clone(), wish.clone()));
            }
        }
    }

    /// Another gateway is about to load the version on servers of its own.
    pub fn reloads(&self, wish: &Wish) {
        let Some((version, replicas)) = self.meaning(wish, false) else { return };
        for replica in replicas {
            self.apply(Event::Reloads { replica, version });
            self.refresh(replica);
        }
    }
}

async fn tell_again(company: Arc<Company>, seat: Seat, wish: Wish) {
    for _ in 0..TIMES {
        tokio::time::sleep(AGAIN).await;
        if !company.owners().seating.seats.contains(&seat) {
            return;
        }
        let call = company.others.reloads(&seat, wish.clone(), AGAIN);
        if tokio::time::timeout(AGAIN, call).await.unwrap_or(false) {
            return;
        }
    }
}
