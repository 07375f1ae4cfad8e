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
    /// Takes no more beginnings of connections; those that have begun are still accepted, if there is time for their handshake to end.
    ///
    /// Closing a socket resets what the system connects between the last accept and the close, and the client cannot know whether its request
    /// was heard. A beginning that is dropped instead is sent again a second later, and is refused then. Only Linux can do it; elsewhere, and
    /// where the system says no, nothing changes.
    pub fn take_no_more(&self) {
        #[cfg(target_os = "linux")]
        if let Err(error) = socket2::SockRef::from(&self.socket).attach_filter(&without_beginnings()) {
            tracing::debug!(%error, "new connections cannot be held off before the socket closes");
        }
    }

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

/// A program of the classic packet filter, which is given a segment from its TCP header on: drops those with SYN and without ACK (RFC 9293, 3.1:
/// byte 13 has the control bits), passes the others whole.
#[cfg(target_os = "linux")]
fn without_beginnings() -> [socket2::SockFilter; 5] {
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const SYN: u32 = 0x02;
    const SYN_OR_ACK: u32 = 0x12;
    [
        socket2::SockFilter::new(LOAD_BYTE, 0, 0, 13),
        socket2::SockFilter::new(AND, 0, 0, SYN_OR_ACK),
        socket2::SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        socket2::SockFilter::new(RETURN, 0, 0, 0),
        socket2::SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests;
