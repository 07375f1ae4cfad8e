//! TLS of the data port and of the admin port, and of those who ask the latter. rustls over aws-lc-rs, named explicitly each time.
//!
//! * [`Entrance`]: what a listener does with a new connection. * [`Certificates`]: a server's certificates, taken anew when their files change.
//! * [`Client`]: whom a client believes, and who it is. * [`Peer`]: who a client has proved to be.

mod client;
mod entrance;
mod files;
mod peer;
mod pem;
mod server;
mod stream;

use std::path::PathBuf;

pub use client::Client;
pub use entrance::Entrance;
pub use files::Files;
pub use peer::Peer;
pub use server::{Certificates, Looked};
pub use stream::Secured;

/// Why certificates cannot be used. No part of a key is in it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read: {}", .0.display(), .1)]
    Read(PathBuf, std::io::Error),
    /// A file is too large to be what it should.
    #[error("{} has more than 1 MiB", .0.display())]
    TooLarge(PathBuf),
    /// There is no certificate in it, or one that cannot be read.
    #[error("{}: there is no certificate in PEM, or one that cannot be read", .0.display())]
    NoCertificate(PathBuf),
    /// There is no key in it.
    #[error("{}: there is no private key in PEM", .0.display())]
    NoKey(PathBuf),
    /// The certificate's time is over, or has not begun.
    #[error("{}: the certificate is valid only {}", .0.display(), .1)]
    NotNow(PathBuf, &'static str),
    /// What is read does not go together.
    #[error("{}: {}", .0.display(), .1)]
    Unusable(PathBuf, String),
}
