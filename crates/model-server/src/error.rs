//! Why a server did not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use holdfast_types::Bytes;

use crate::repository::RepositoryError;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is wrong.
    #[error("--fault: {0}")]
    Fault(String),
    /// The repository cannot be read, or lacks a model that is to be held from the start.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// A model to be held from the start does not fit.
    #[error("{name} does not fit: needs {needs}, {free} free")]
    DoesNotFit {
        /// The model.
        name: String,
        /// What it takes.
        needs: Bytes,
        /// What is free.
        free: Bytes,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The port file cannot be written.
    #[error("cannot write {path}: {source}")]
    PortFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The thread that read the models ended before it was done.
    #[error("reading the models was interrupted")]
    Interrupted,
}
