//! A way to a server of HTTP/2 in the clear over which open calls bring nothing more: what the server says in a call that its client has not ended is
//! lost, as if the server had forgotten to say it. Calls with one question and one answer go through. So a push is lost, and a question is not.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What a client says before its first frame (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// Of a frame (RFC 9113, 4.1): length, type, flags, stream.
const HEAD: usize = 9;
/// Types of frames (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// The flag of both that a side has said all.
const END_STREAM: u8 = 1;

/// A port that leads to another one. It ends with its owner.
#[derive(Debug)]
pub struct Deaf {
    port: u16,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared {
    deaf: AtomicBool,
    lost: AtomicU64,
}

/// Streams that the client has ended.
type Ended = Arc<Mutex<BTreeSet<u32>>>;

impl Deaf {
    /// Begins to listen on the loopback address. Everything goes through until [`Deaf::deafen`].
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (own, shared) = (listener.local_addr().unwrap().port(), Arc::new(Shared::default()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, SocketAddr::from(([127, 0, 0, 1], port)), shared.clone()));
        Self { port: own, shared, _serving: serving }
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// From now on what the server says in open calls is lost, over all connections that there are and that come.
    pub fn deafen(&self) {
        self.shared.deaf.store(true, SeqCst);
    }

    /// Connections that come from now on are good. One over which something was lost stays as it is: nothing follows upon what is missing.
    pub fn mend(&self) {
        self.shared.deaf.store(false, SeqCst);
    }

    /// How many frames were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(SeqCst)
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, shared: Arc<Shared>) {
    let mut pipes = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let shared = shared.clone();
        pipes.spawn(async move {
            let Ok(far) = TcpStream::connect(to).await else { return };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            let ended = Ended::default();
            tokio::select! {
                _ = up(near_in, far_out, ended.clone()) => {}
                _ = down(far_in, near_out, ended, shared) => {}
            }
        });
    }
}

/// From the client to the server, frame by frame.
async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, ended: Ended) -> std::io::Result<()> {
    let mut preface = [0; PREFACE];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let frame = frame(&mut from).await?;
        if frame.ends() {
            ended.lock().unwrap_or_else(PoisonError::into_inner).insert(frame.stream);
        }
        to.write_all(&frame.bytes).await?;
    }
}

/// From the server to the client, without what is to be lost.
async fn down(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    ended: Ended,
    shared: Arc<Shared>,
) -> std::io::Result<()> {
    let mut is_deaf = false;
    loop {
        let frame = frame(&mut from).await?;
        let open = !ended.lock().unwrap_or_else(PoisonError::into_inner).contains(&frame.stream);
        if frame.kind == DATA && open && (is_deaf || shared.deaf.load(SeqCst)) {
            is_deaf = true;
            shared.lost.fetch_add(1, SeqCst);
            continue;
        }
        to.write_all(&frame.bytes).await?;
    }
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    /// All of it, as it came.
    bytes: Vec<u8>,
}

impl Frame {
    const fn ends(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

async fn frame(from: &mut OwnedReadHalf) -> std::io::Result<Frame> {
    let mut bytes = vec![0; HEAD];
    from.read_exact(&mut bytes).await?;
    let [a, b, c, kind, flags, w, x, y, z] = bytes[..] else { unreachable!("nine bytes") };
    bytes.resize(HEAD + u32::from_be_bytes([0, a, b, c]) as usize, 0);
    from.read_exact(&mut bytes[HEAD..]).await?;
    let stream = u32::from_be_bytes([w, x, y, z]) & (u32::MAX >> 1);
    Ok(Frame { kind, flags, stream, bytes })
}
