//! Connections to one replica: kept open, bounded, and honest about what a failed request may have done.
//!
//! One HTTP/1.1 request at a time on a connection. A connection is given back only when its answer has been read to the end; anything else
//! closes it, so no answer can ever be read by the wrong request. Idle connections are used newest first and closed after a stated time, which
//! should be shorter than the replica's own: a replica that closes an idle connection at the moment it is used leaves the request in doubt.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::bound::{Bound, Place};
use crate::patience::{Patience, Patient};
use crate::resolve::Target;
use crate::room::Found;
use crate::tasks::Tasks;
use crate::turns::Turn;

const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10)).with_retries(3);

/// How to reach a replica. Shared by all workers.
#[derive(Debug)]
pub struct Connector {
    target: Target,
}

impl Connector {
    /// No connections yet.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self { target }
    }

    /// Opens a plain TCP connection.
    ///
    /// # Errors
    /// What the operating system says, or that it took longer than `most`.
    pub async fn connect(&self, most: Duration) -> io::Result<TcpStream> {
        let opened = async {
            let stream = TcpStream::connect(self.target.address(most).await?).await?;
            stream.set_nodelay(true)?;
            // A server that has vanished without a word is noticed also by who waits for an answer without a deadline.
            SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
            Ok(stream)
        };
        let timed_out = || Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"));
        tokio::time::timeout(most, opened).await.unwrap_or_else(|_| timed_out())
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Checkout {
    /// All are in use, and as many requests wait for one as may wait.
    #[error("all connections to the replica are in use, and too many requests wait for one")]
    Full,
    /// It could not be opened. Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
}

/// A request that got no answer head.
#[derive(Debug)]
pub struct SendError<B> {
    /// The request, if no byte of it can have been read by the replica. Then, and only then, it may be sent again without a second execution.
    pub unsent: Option<Box<Request<B>>>,
    /// What happened.
    pub cause: hyper::Error,
}

/// What the first half of sending ends with.
pub type Answered<B> = Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<B>>>;

struct Idle<B> {
    /// Whether it is idle: one that ends while it is was closed by the replica.
    idle: Arc<AtomicBool>,
    patience: Arc<Patience>,
    sender: http1::SendRequest<B>,
    since: Instant,
}

/// A worker's connections to one replica. `B` is the request body's type.
///
/// Whoever is over the [`Bound`] waits for its turn, in order.
pub struct ReplicaPool<B> {
    connector: Arc<Connector>,
    idle: Mutex<VecDeque<Idle<B>>>,
    pub(crate) bound: Arc<Bound<B>>,
    opened: AtomicU64,
    lost: Arc<Notify>,
    tasks: Tasks,
}

/// A connection in use.
pub struct ReplicaConn<B> {
    idle: Arc<AtomicBool>,
    patience: Arc<Patience>,
    sender: http1::SendRequest<B>,
    /// Whose it is: another worker's, if that had one to spare and no more may be open.
    pool: Arc<ReplicaPool<B>>,
    /// Given back after the connection is, so that who waits for it finds the connection.
    turn: Turn,
    /// Whether it has carried a request before.
    reused: bool,
}

impl<B> ReplicaPool<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// No connections yet, and no more together with all others of this bound than it says. Connection tasks run in `tasks`.
    #[must_use]
    pub fn new(connector: Arc<Connector>, bound: &Arc<Bound<B>>, tasks: Tasks) -> Arc<Self> {
        let this = Arc::new(Self {
            connector,
            idle: Mutex::default(),
            bound: bound.clone(),
            opened: AtomicU64::new(0),
            lost: Arc::default(),
            tasks,
        });
        bound.add(Arc::downgrade(&this));
        this
    }

    /// For how long look-ups of the replica's name have failed ([`Target::failing`]).
    #[must_use]
    pub fn name_failing(&self) -> Option<Duration> {
        self.connector.target.failing()
    }

    /// How many connections have been opened so far.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Waits until the replica closes a connection that is idle here. One that was closed since the last call counts.
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Whether a request would have its turn at once.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        self.bound.has_turn()
    }

    /// The newest idle connection that is still open, if its turn is now.
    #[must_use]
    pub fn take_idle(self: &Arc<Self>, idle: Duration) -> Option<ReplicaConn<B>> {
        let turn = self.bound.try_turn()?;
        self.newest_idle(idle, turn).ok()
    }

    pub(crate) fn newest_idle(self: &Arc<Self>, idle: Duration, turn: Turn) -> Result<ReplicaConn<B>, Turn> {
        loop {
            let Some(found) = self.idle.lock().pop_back() else { return Err(turn) };
            found.idle.store(false, Ordering::SeqCst);
            if found.sender.is_ready() && found.since.elapsed() < idle {
                return Ok(ReplicaConn {
                    idle: found.idle,
                    patience: found.patience,
                    sender: found.sender,
                    pool: self.clone(),
                    turn,
                    reused: true,
                });
            }
        }
    }

    /// A connection: an idle one, or a new one within `connect`. Waits for its turn for as long as the caller lets it.
    ///
    /// # Errors
    /// [`Checkout`]. Nothing has been sent then.
    ///
    /// # Cancel safety
    /// Cancel safe: a turn is given back, a connection being opened is dropped.
    pub async fn checkout(self: &Arc<Self>, idle: Duration, connect: Duration) -> Result<ReplicaConn<B>, Checkout> {
        let turn = match self.bound.try_turn() {
            Some(turn) => turn,
            None => self.bound.turn().await.ok_or(Checkout::Full)?,
        };
        match self.newest_idle(idle, turn) {
            Ok(conn) => Ok(conn),
            Err(turn) => self.open_or_borrow(turn, idle, connect).await,
        }
    }

    /// A new connection; or, where no more may be open, one that is idle at another worker, or a new one in the place of one that is just being closed.
    async fn open_or_borrow(
        self: &Arc<Self>,
        turn: Turn,
        idle: Duration,
        connect: Duration,
    ) -> Result<ReplicaConn<B>, Checkout> {
        match self.bound.place_or(turn, idle, connect, Ok).await? {
            Found::Place(place, turn) => self.open_with(turn, place, connect).await,
            Found::Idle(conn) => Ok(conn),
        }
    }

    /// Opens a connection, to be kept for later, unless as many are open already or all that may be are in use. Says whether it does.
    pub fn open_spare(self: &Arc<Self>, fewer_than: u32, connect: Duration) -> bool {
        let Some(turn) = self.bound.try_turn() else { return false };
        // Counted at once, so that who looks next sees it.
        let Some(place) = Place::take_below(&self.bound, fewer_than) else { return false };
        let this = self.clone();
        self.tasks.spawn(async move {
            if let Ok(conn) = this.open_with(turn, place, connect).await {
                conn.give_back();
            }
        });
        true
    }

    async fn open_with(
        self: &Arc<Self>,
        turn: Turn,
        place: Place<B>,
        connect: Duration,
    ) -> Result<ReplicaConn<B>, Checkout> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let stream = self.connector.connect(connect).await?;
        let patience = Arc::new(Patience::default());
        let io = TokioIo::new(Patient::new(stream, patience.clone()));
        let handshake = http1::Builder::new().max_buf_size(256 * 1024).handshake(io).await;
        let (sender, conn) = handshake.map_err(io::Error::other)?;
        let idle = Arc::new(AtomicBool::new(false));
        let (was_idle, lost, came) = (idle.clone(), self.lost.clone(), patience.clone());
        self.tasks.spawn(async move {
            // How the connection ends is seen by whoever uses it.
            let _ = conn.await;
            if came.has_strayed() {
                place.note_stray();
            }
            // Its socket is closed.
            drop(place);
            if was_idle.swap(false, Ordering::SeqCst) {
                lost.notify_one();
            }
        });
        Ok(ReplicaConn { idle, patience, sender, pool: self.clone(), turn, reused: false })
    }

    /// Closes connections that have been idle for too long or that the replica has closed.
    pub fn reap(&self, idle: Duration) {
        self.idle.lock().retain(|conn| conn.sender.is_ready() && conn.since.elapsed() < idle);
    }
}

impl<B> ReplicaConn<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Whether it has carried a request before.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// [`SendError`], which says whether the request may be sent again.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection when the connection is dropped, so that the replica sees the client leave.
    pub async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, SendError<B>> {
        let answer = self.begin(request).await;
        self.headed(answer)
    }

    /// The same in two halves, for whoever keeps many of these futures and wants them small: what is waited for, to be pinned where it is made, and what
    /// its end is to be given to.
    pub fn begin(&mut self, request: Request<B>) -> impl Future<Output = Answered<B>> + use<B> {
        self.patience.begin();
        self.sender.try_send_request(request)
    }

    /// The second half of [`Self::send`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn headed(&self, answer: Answered<B>) -> Result<Response<Incoming>, SendError<B>> {
        self.patience.end();
        answer.map_err(|mut error| SendError { unsent: error.take_message().map(Box::new), cause: error.into_error() })
    }

    /// Closes the connection; the turn goes on.
    pub(crate) fn into_turn(self) -> Turn {
        self.turn
    }

    /// Gives the connection back. To be called only when the answer has been read to its end.
    pub fn give_back(self) {
        // Idle first, closed second; the connection's task looks the other way round. So a close in between is seen by one of the two.
        self.patience.rest();
        self.idle.store(true, Ordering::SeqCst);
        if self.sender.is_closed() {
            if self.idle.swap(false, Ordering::SeqCst) {
                self.pool.lost.notify_one();
            }
            return;
        }
        let Self { idle, patience, sender, pool, turn, .. } = self;
        pool.idle.lock().push_back(Idle { idle, patience, sender, since: Instant::now() });
        drop(turn);
        pool.bound.one_is_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head and its body are two writes at times: the second must not wait for the acknowledgement of the first.
    #[tokio::test]
    async fn nothing_is_held_back_from_a_replica() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let stream = Connector::new(Target::new("127.0.0.1", port)).connect(Duration::from_secs(10)).await.unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
