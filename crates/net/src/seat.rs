//! A place among a replica's connections for one that is no request's: a socket that is passed through, for as long as it lives.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::time::Instant;

use crate::bound::Place;
use crate::client::{Checkout, ReplicaPool};
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
        let mut turn = match self.bound.try_turn() {
            Some(turn) => turn,
            None => self.bound.turn().await.ok_or(Checkout::Full)?,
        };
        let until = Instant::now() + within;
        let short = self.bound.look();
        loop {
            let mut room = std::pin::pin!(short.room());
            // From here on nothing that comes is missed.
            room.as_mut().enable();
            if let Some(place) = Place::take(&self.bound) {
                return Ok(Seat { _place: place, _turn: turn });
            }
            for pool in self.bound.pools() {
                match pool.newest_idle(idle, turn) {
                    // It is closed, and its place is free a moment later.
                    Ok(conn) => {
                        turn = conn.into_turn();
                        break;
                    }
                    Err(back) => turn = back,
                }
            }
            if tokio::time::timeout_at(until, room).await.is_err() {
                let why = "connections that are being closed do not end";
                return Err(Checkout::Connect(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
        }
    }
}
