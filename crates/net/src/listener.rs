//! A listening socket, and what to do when it cannot accept.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// A bound socket that accepts.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
}

/// Binds with address reuse and a long backlog.
///
/// # Errors
/// What the operating system says: the address is in use, not there, or not allowed.
pub fn bind(address: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(Listener { socket: TcpListener::from_std(socket.into())? })
}

impl Listener {
    /// The address, with the port that the system chose if none was given.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next connection. Waits out a lack of file descriptors or memory instead of spinning or giving up.
    ///
    /// Cancel safe.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    // Without it, a small answer waits for the peer's delayed acknowledgement.
                    let _ = stream.set_nodelay(true);
                    return (stream, peer);
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

impl Listener {
    /// Stops listening. Returns the connections that the system had taken and nobody had accepted; later ones are refused.
    #[must_use]
    pub fn close(self) -> Vec<(TcpStream, SocketAddr)> {
        let Ok(socket) = self.socket.into_std() else { return Vec::new() };
        let mut waiting = Vec::new();
        // It does not block, so the first error is the end of the queue.
        while let Ok((stream, peer)) = socket.accept() {
            let is_set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            if let Ok(stream) = is_set.and_then(|()| TcpStream::from_std(stream)) {
                waiting.push((stream, peer));
            }
        }
        waiting
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
