//! The audit log: one record for each answer of a model server, in a chain of hashes over rotated files.
//!
//! Pure: what a record looks like and how it is sealed (`record`), what a sealed line says (`sealed`), whether a log is whole (`verify`), which
//! files are due to go (`retention`), which records are asked for (`find`). IO: names and the head (`files`), what an earlier process left
//! (`recover`), the writer (`writer`, on a thread of its own), the handle that requests hold (`log`). A payload is in no record, only its digest.
//!
//! The chain shows what was changed, removed or moved by someone who does not write the whole log anew; it has no key. Who must be held against that as
//! well keeps a head (`holdfast audit verify` prints it) where the log's writer cannot reach it.

mod digest;
mod files;
mod find;
mod log;
mod record;
mod recover;
mod retention;
mod sealed;
mod tail;
mod verify;
mod writer;

pub use digest::{Digested, Hash, SharedDigest};
pub use files::AuditFiles;
pub use find::{AuditQuery, Found};
pub use log::{AuditLog, AuditLosses, AuditOptions, AuditWriter};
pub use record::{AuditEntry, GapWhy, Tip};
pub use verify::{Break, Gap, Head, Removed, Report, Verifier};
