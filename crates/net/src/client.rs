//! Connections to one replica: kept open, bounded, and honest about what a failed request may have done.
//!
//! One HTTP/1.1 request at a time on a connection. A connection is given back only when its answer has been read to the end; anything else
//! closes it, so no answer can ever be read by the wrong request. Idle connections are used newest first and closed after a stated time, which
//! should be shorter than the replica's own: a replica that closes an idle connection at the moment it is used leaves the request in doubt.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::resolve::Target;
use crate::tasks::Tasks;

/// How to reach a replica, and the bound on connections to it. Shared by all workers.
#[derive(Debug)]
pub struct Connector {
    target: Target,
    open: AtomicU32,
    most: AtomicU32,
}

impl Connector {
    /// At most `most` connections at a time.
    #[must_use]
    pub fn new(target: Target, most: u32) -> Self {
        Self { target, open: AtomicU32::new(0), most: AtomicU32::new(most) }
    }

    /// Sets another bound. Connections that are open stay.
    pub fn set_most(&self, most: u32) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Connections that are open or being opened.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Opens a plain TCP connection.
    ///
    /// # Errors
    /// What the operating system says, or that it took longer than `most`.
    pub async fn connect(&self, most: Duration) -> io::Result<TcpStream> {
        let opened = async {
            let stream = TcpStream::connect(self.target.address(most).await?).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let timed_out = || Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"));
        tokio::time::timeout(most, opened).await.unwrap_or_else(|_| timed_out())
    }

    fn take_place(self: &Arc<Self>) -> Option<Place> {
        let most = self.most.load(Ordering::Relaxed);
        let taken = self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        taken.is_ok().then(|| Place(self.clone()))
    }
}

/// One counted connection.
#[derive(Debug)]
struct Place(Arc<Connector>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Checkout {
    /// As many are open as may be.
    #[error("all connections to the replica are in use")]
    Full,
    /// It could not be opened. Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
}

/// A request that got no answer head.
#[derive(Debug)]
pub struct SendError<B> {
    /// The request, if no byte of it can have been read by the replica. Then, and only then, it may be sent again without a second execution.
    pub unsent: Option<Request<B>>,
    /// What happened.
    pub cause: hyper::Error,
}

struct Idle<B> {
    sender: http1::SendRequest<B>,
    place: Place,
    since: Instant,
}

/// A worker's connections to one replica. `B` is the request body's type.
pub struct ReplicaPool<B> {
    connector: Arc<Connector>,
    idle: Mutex<VecDeque<Idle<B>>>,
    tasks: Tasks,
}

/// A connection in use.
pub struct ReplicaConn<B> {
    sender: http1::SendRequest<B>,
    place: Place,
    pool: Arc<ReplicaPool<B>>,
    /// Whether it has carried a request before.
    reused: bool,
}

impl<B> ReplicaPool<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// No connections yet. Connection tasks run in `tasks`.
    #[must_use]
    pub fn new(connector: Arc<Connector>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { connector, idle: Mutex::default(), tasks })
    }

    /// The newest idle connection that is still open.
    #[must_use]
    pub fn take_idle(self: &Arc<Self>, idle: Duration) -> Option<ReplicaConn<B>> {
        loop {
            let found = self.idle.lock().pop_back()?;
            if found.sender.is_ready() && found.since.elapsed() < idle {
                return Some(ReplicaConn {
                    sender: found.sender,
                    place: found.place,
                    pool: self.clone(),
                    reused: true,
                });
            }
        }
    }

    /// A connection: an idle one, or a new one within `connect`.
    ///
    /// # Errors
    /// [`Checkout`]. Nothing has been sent then.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection being opened is dropped.
    pub async fn checkout(self: &Arc<Self>, idle: Duration, connect: Duration) -> Result<ReplicaConn<B>, Checkout> {
        match self.take_idle(idle) {
            Some(conn) => Ok(conn),
            None => self.open(connect).await,
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// [`Checkout`].
    pub async fn open(self: &Arc<Self>, connect: Duration) -> Result<ReplicaConn<B>, Checkout> {
        let place = self.connector.take_place().ok_or(Checkout::Full)?;
        let stream = self.connector.connect(connect).await?;
        let handshake = http1::Builder::new().max_buf_size(256 * 1024).handshake(TokioIo::new(stream)).await;
        let (sender, conn) = handshake.map_err(io::Error::other)?;
        self.tasks.spawn(async move {
            // How the connection ends is seen by whoever uses it.
            let _ = conn.await;
        });
        Ok(ReplicaConn { sender, place, pool: self.clone(), reused: false })
    }

    /// Closes connections that have been idle for too long or that the replica has closed. Returns how many are left.
    pub fn reap(&self, idle: Duration) -> usize {
        let mut all = self.idle.lock();
        all.retain(|conn| conn.sender.is_ready() && conn.since.elapsed() < idle);
        all.len()
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
    pub fn send(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendError<B>>> + use<B> {
        // Handed over here and not in the future, which would be larger by a whole request.
        let sent = self.sender.try_send_request(request);
        async move {
            sent.await.map_err(|mut error| {
                let unsent = error.take_message();
                SendError { unsent, cause: error.into_error() }
            })
        }
    }

    /// Gives the connection back. To be called only when the answer has been read to its end.
    pub fn give_back(self) {
        if self.sender.is_closed() {
            return;
        }
        let Self { sender, place, pool, .. } = self;
        pool.idle.lock().push_back(Idle { sender, place, since: Instant::now() });
    }
}
