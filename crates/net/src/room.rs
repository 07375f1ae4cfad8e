//! Room for one more connection to a replica: a free place, or what can be had of a connection that is idle at some worker.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::time::Instant;

use crate::bound::{Bound, Place};
use crate::client::{Checkout, ReplicaConn};
use crate::turns::Turn;

/// What was found.
pub(crate) enum Found<B, T> {
    /// A connection may be opened, with the turn that it was looked for with.
    Place(Place<B>, Turn),
    /// What was made of an idle one.
    Idle(T),
}

impl<B> Bound<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A place; or, where no more may be open, what `using` makes of a connection that is idle at some worker. Where it closes that instead, and gives the
    /// turn back, its place is free a moment later, and no other one is looked for until then. Connections that have been idle for longer than `idle` are
    /// not used.
    ///
    /// # Errors
    /// [`Checkout::Connect`]: no connection was closed or became idle for so long.
    ///
    /// # Cancel safety
    /// Cancel safe: what was taken is given back.
    pub(crate) async fn place_or<T>(
        self: &Arc<Self>,
        mut turn: Turn,
        idle: Duration,
        within: Duration,
        using: impl Fn(ReplicaConn<B>) -> Result<T, Turn>,
    ) -> Result<Found<B, T>, Checkout> {
        if let Some(place) = Place::take(self) {
            return Ok(Found::Place(place, turn));
        }
        let until = Instant::now() + within;
        let short = self.look();
        loop {
            let mut room = std::pin::pin!(short.room());
            // From here on nothing that comes is missed.
            room.as_mut().enable();
            if let Some(place) = Place::take(self) {
                return Ok(Found::Place(place, turn));
            }
            for pool in self.pools() {
                match pool.newest_idle(idle, turn).map(&using) {
                    Ok(Ok(made)) => return Ok(Found::Idle(made)),
                    Ok(Err(back)) => {
                        turn = back;
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
