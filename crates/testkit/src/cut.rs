//! A way to a server that can be cut without a word: no byte gets through in either direction, and nothing is closed.

use std::net::SocketAddr;

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
    _serving: JoinSet<()>,
}

impl Cut {
    /// Begins to listen on the loopback address.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", crate::free_port())).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (open, is_open) = watch::channel(true);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, SocketAddr::from(([127, 0, 0, 1], port)), is_open));
        Self { port: own, open, _serving: serving }
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
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

async fn serve(listener: TcpListener, to: SocketAddr, open: watch::Receiver<bool>) {
    let mut pipes = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let mut is_open = open.clone();
        pipes.spawn(async move {
            // Until then it is a connection that nobody answers on.
            if is_open.wait_for(|open| *open).await.is_err() {
                return;
            }
            let Ok(far) = TcpStream::connect(to).await else { return };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::select! {
                () = pump(near_in, far_out, is_open.clone()) => {}
                () = pump(far_in, near_out, is_open) => {}
            }
        });
    }
}

/// Carries bytes until one side ends.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut open: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        if open.wait_for(|open| *open).await.is_err() || read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
