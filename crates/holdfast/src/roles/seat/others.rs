//! How the residency driver asks other gateways: by calls, and by way of the control plane where a gateway cannot be called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use holdfast_gateway::{Afar, Call, Others, Parting};
use holdfast_placement::seats::Seat;
use holdfast_plane::Wish;
use holdfast_telemetry::Clock;
use holdfast_types::Mono;
use holdfast_wire::seats::{Leave, Loaded, Phone};

/// How long a wish is told. Whoever waits longer wishes again with the next request.
const TOLD: Duration = Duration::from_secs(10);
/// The most wishes at once.
const MOST: usize = 256;

/// What is to be told to the control plane.
#[derive(Clone, Default)]
pub(super) struct Wishes(Arc<Mutex<BTreeMap<Wish, Mono>>>);

impl Wishes {
    /// Those that still stand.
    pub(super) fn take(&self) -> Vec<Wish> {
        let (mut wishes, now) = (self.0.lock(), Clock::now());
        wishes.retain(|_, until| *until > now);
        wishes.keys().cloned().collect()
    }

    fn add(&self, wish: Wish) -> bool {
        let (mut wishes, until) = (self.0.lock(), Clock::now().after(TOLD));
        let room = wishes.len() < MOST;
        match wishes.get_mut(&wish) {
            Some(told) => {
                *told = until;
                false
            }
            None if room => wishes.insert(wish, until).is_none(),
            None => false,
        }
    }
}

/// See the module.
pub(super) struct Switchboard {
    phone: Arc<Phone>,
    wishes: Wishes,
    wake: Arc<Notify>,
}

impl Switchboard {
    pub(super) fn new(phone: Arc<Phone>, wishes: Wishes, wake: Arc<Notify>) -> Self {
        Self { phone, wishes, wake }
    }
}

impl Others for Switchboard {
    fn load(&self, owner: &Seat, wish: Wish, within: Duration) -> Call<Afar> {
        let (phone, peer) = (self.phone.clone(), owner.peer.clone());
        Box::pin(async move {
            let Some(peer) = peer else { return Afar::Silent };
            match phone.load(&peer, &wish, within).await {
                Ok(Loaded::Ready(server)) => Afar::Ready(server),
                Ok(Loaded::Shed { retry, why }) => Afar::Shed { retry, why },
                Ok(Loaded::Failed(why)) => Afar::Failed(why),
                Ok(Loaded::NotOwner) => Afar::NotOwner,
                Err(error) => {
                    tracing::debug!(%peer, %error, "another gateway gives no answer");
                    Afar::Silent
                }
            }
        })
    }

    fn leaves(&self, seat: &Seat, wish: Wish, parting: Parting) -> Call<bool> {
        let (phone, peer) = (self.phone.clone(), seat.peer.clone());
        Box::pin(async move {
            let (Some(peer), Some(server)) = (peer, wish.servers.into_iter().next()) else { return false };
            let Parting { word, within, renews, taken_back } = parting;
            let leave = Leave { artifact: wish.artifact, server, within, taken_back, word, renews };
            phone.leaves(&peer, &leave, within).await.unwrap_or(false)
        })
    }

    fn reloads(&self, seat: &Seat, wish: Wish, within: Duration) -> Call<bool> {
        let (phone, peer) = (self.phone.clone(), seat.peer.clone());
        Box::pin(async move {
            let (Some(peer), Some(server)) = (peer, wish.servers.first()) else { return false };
            phone.reloads(&peer, &wish.artifact, server, within).await.is_ok()
        })
    }

    fn wish(&self, wish: Wish) {
        if self.wishes.add(wish) {
            self.wake.notify_one();
        }
    }
}

/// An answer for the wire.
pub(super) fn loaded(afar: Afar) -> Loaded {
    match afar {
        Afar::Ready(server) => Loaded::Ready(server),
        Afar::Shed { retry, why } => Loaded::Shed { retry, why },
        Afar::Failed(why) => Loaded::Failed(why),
        Afar::NotOwner | Afar::Silent => Loaded::NotOwner,
    }
}
