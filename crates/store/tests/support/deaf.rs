//! A way to the server on which answers to COMMIT get lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const THROUGH: u8 = 0;
const SWALLOW: u8 = 1;
const CUT: u8 = 2;

/// Forwards connections on a port of its own to the server.
pub struct Proxy {
    port: u16,
    mode: Arc<AtomicU8>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(AtomicU8::new(THROUGH));
        let of_task = Arc::clone(&mode);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                let deaf = Arc::new(AtomicU8::new(THROUGH));
                tokio::spawn(ask(from_client, to_server, Arc::clone(&of_task), Arc::clone(&deaf)));
                tokio::spawn(answer(from_server, to_client, deaf));
            }
        });
        Self { port, mode, task }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on a connection that sends COMMIT hears nothing more, or is cut when the answer comes.
    pub fn swallow_answers_to_commits(&self, cut: bool) {
        self.mode.store(if cut { CUT } else { SWALLOW }, Ordering::SeqCst);
    }

    pub fn let_through(&self) {
        self.mode.store(THROUGH, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, mode: Arc<AtomicU8>, deaf: Arc<AtomicU8>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = client.read(&mut buffer).await {
        // A statement of its own, so its bytes are together.
        if buffer[..length].windows(7).any(|bytes| bytes == b"COMMIT\0") {
            deaf.store(mode.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        if server.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn answer(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, deaf: Arc<AtomicU8>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = server.read(&mut buffer).await {
        match deaf.load(Ordering::SeqCst) {
            SWALLOW => {}
            CUT => return,
            _ if client.write_all(&buffer[..length]).await.is_err() => return,
            _ => {}
        }
    }
}
