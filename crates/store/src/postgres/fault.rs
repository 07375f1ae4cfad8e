//! What PostgreSQL and the way to it can say, in the store's words.

use crate::error::{Applied, Error};
use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// An error of an attempt.
#[derive(Debug)]
pub(super) enum Fault {
    /// The answer to the call.
    Store(Error),
    /// The server or the connection failed.
    Server(tokio_postgres::Error),
    /// The server gave no connection in time.
    NoConnection,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

/// How far an attempt has come: whether its COMMIT is on the way.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicBool);

impl Phase {
    pub(super) fn committing(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn applied(&self) -> Applied {
        if self.0.load(Ordering::Acquire) { Applied::Maybe } else { Applied::No }
    }
}

impl Fault {
    /// The store's error, given how far the attempt had come.
    pub(super) fn into_error(self, phase: &Phase, deadline_ms: u64) -> Error {
        let applied = phase.applied();
        let error = match self {
            Self::Store(error) => return error,
            Self::NoConnection => {
                return Error::Unavailable { what: "no answer to the connection".to_owned(), applied };
            }
            Self::Server(error) => error,
        };
        let Some(said) = error.as_db_error() else {
            return Error::Unavailable { what: without_values(&error), applied };
        };
        let code = said.code().code();
        match (code, code.get(..2).unwrap_or_default()) {
            // The server gave an answer: whatever was asked did not happen.
            ("57014" | "55P03", _) => Error::Timeout { ms: deadline_ms, applied: Applied::No },
            ("57P01" | "57P02" | "25P03" | "57P05" | "40003", _) | (_, "08") => {
                Error::Unavailable { what: format!("{code} {}", said.message()), applied }
            }
            (_, "53" | "57" | "40") => {
                Error::Unavailable { what: format!("{code} {}", said.message()), applied: Applied::No }
            }
            // These speak of users, databases and objects; others may quote values.
            (_, "28" | "3D" | "3F" | "42") => Error::backend(format!("{code} {}", said.message())),
            _ => Error::backend(format!("SQLSTATE {code}")),
        }
    }
}

/// The error of the client library with its causes. They are words about sockets and messages, never about parameters.
fn without_values(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            let _ = write!(text, ": {inner_text}");
        }
        cause = inner.source();
    }
    text
}
