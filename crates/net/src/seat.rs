//! A place among a replica's connections for one that is no request's: a socket that is passed through, for as long as it lives.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;

use crate::bound::Place;
use crate::client::{Checkout, ReplicaConn, ReplicaPool};
use crate::room::Found;
use crate::turns::Turn;

/// See the module. Given back when it is dropped, the place before the turn.
pub struct Seat<B> {
    _place: Place<B>,
    _turn: Turn,
}

impl<B> ReplicaPool<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A place for a connection that the caller opens. Waits for its turn for as long as the caller lets it; where no more may be open, an idle connection is
    /// closed for it.
    ///
    /// # Errors
    /// [`Checkout::Full`]: too many wait. [`Checkout::Connect`]: no connection that is closed ends within the time.
    ///
    /// # Cancel safety
    /// Cancel safe: what was taken is given back.
    pub async fn seat(self: &Arc<Self>, idle: Duration, within: Duration) -> Result<Seat<B>, Checkout> {
        let turn = match self.bound.try_turn() {
            Some(turn) => turn,
            None => self.bound.turn().await.ok_or(Checkout::Full)?,
        };
        let closes = |conn: ReplicaConn<B>| Err::<Infallible, _>(conn.into_turn());
        match self.bound.place_or(turn, idle, within, closes).await? {
            Found::Place(place, turn) => Ok(Seat { _place: place, _turn: turn }),
            Found::Idle(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests;
