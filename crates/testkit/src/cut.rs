//! A way to a server that can be cut without a word: no byte gets through in either direction, and nothing is closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A port that leads to another one, unless it is cut. It ends with its owner.
#[derive(Debug)]
pub struct Cut {
    port: u16,
    open: watch::Sender<bool>,
    counted: Arc<Counted>,
    _serving: JoinSet<()>,
}

/// What is counted on the way to the server.
#[derive(Debug)]
struct Counted {
    what: &'static [u8],
    seen: AtomicU64,
}

impl Cut {
    /// Begins to listen on the loopback address.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn to(port: u16) -> Self {
        Self::counting(port, "").await
    }

    /// The same; it counts how often these bytes go to the server.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn counting(port: u16, what: &'static str) -> Self {
        let counted = Arc::new(Counted { what: what.as_bytes(), seen: AtomicU64::new(0) });
        let listener = crate::proc::listen().await;
        let own = listener.local_addr().unwrap().port();
        let (open, is_open) = watch::channel(true);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, SocketAddr::from(([127, 0, 0, 1], port)), is_open, counted.clone()));
        Self { port: own, open, counted, _serving: serving }
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// How often what is counted has been sent.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.counted.seen.load(Ordering::SeqCst)
    }

    /// From now on nothing gets through.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// What waits gets through, and what comes.
    pub fn mend(&self) {
        self.open.send_replace(true);
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, open: watch::Receiver<bool>, counted: Arc<Counted>) {
    let mut pipes = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let (mut is_open, counted) = (open.clone(), counted.clone());
        pipes.spawn(async move {
            // Until then it is a connection that nobody answers on.
            if is_open.wait_for(|open| *open).await.is_err() {
                return;
            }
            let Ok(far) = TcpStream::connect(to).await else { return };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::select! {
                () = pump(near_in, far_out, is_open.clone(), Some(&counted)) => {}
                () = pump(far_in, near_out, is_open, None) => {}
            }
        });
    }
}

/// Carries bytes until one side ends.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut open: watch::Receiver<bool>,
    counted: Option<&Counted>,
) {
    let mut bytes = vec![0; 16 * 1024];
    // The end of what was carried before, in which something to be counted may have begun.
    let mut before = Vec::new();
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        if open.wait_for(|open| *open).await.is_err() || read == 0 {
            return;
        }
        if let Some(counted) = counted.filter(|counted| !counted.what.is_empty()) {
            before.extend_from_slice(&bytes[..read]);
            let seen = before.windows(counted.what.len()).filter(|part| *part == counted.what).count();
            counted.seen.fetch_add(seen as u64, Ordering::SeqCst);
            before.drain(..before.len().saturating_sub(counted.what.len() - 1));
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
