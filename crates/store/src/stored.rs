//! The JSON forms of headers and of a store's state, as they lie in both backends and in backups.

use crate::error::{Error, Result};
use crate::model::{Digests, Head, Header, Purpose};
use crate::seal::State;
use holdfast_types::Revision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Serialize, Deserialize)]
struct StoredHeader {
    revision: u64,
    purpose: StoredPurpose,
    parent: u64,
    author: String,
    reason: String,
    at_ms: u64,
    edits: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    desired: String,
    in_force: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredPurpose {
    Change,
    Activation,
}

#[derive(Serialize, Deserialize)]
struct StoredState {
    revision: u64,
    desired: u64,
    in_force: u64,
    floor: u64,
    term: u64,
    desired_digest: String,
    in_force_digest: String,
    kinds: BTreeSet<String>,
    records: u64,
}

/// The text of a header.
pub(crate) fn header_text(header: &Header) -> Result<String> {
    let stored = StoredHeader {
        revision: header.revision.0,
        purpose: match header.purpose {
            Purpose::Change => StoredPurpose::Change,
            Purpose::Activation => StoredPurpose::Activation,
        },
        parent: header.parent.0,
        author: header.author.clone(),
        reason: header.reason.clone(),
        at_ms: header.at_ms,
        edits: header.edits,
        term: header.term,
        desired: header.digests.desired.to_string(),
        in_force: header.digests.in_force.to_string(),
    };
    serde_json::to_string(&stored).map_err(|_| Error::invalid("the header is no JSON"))
}

/// Reads a header.
pub(crate) fn header(text: &[u8]) -> Result<Header> {
    let stored: StoredHeader =
        serde_json::from_slice(text).map_err(|_| Error::corrupt("a header that cannot be read"))?;
    Ok(Header {
        revision: Revision(stored.revision),
        purpose: match stored.purpose {
            StoredPurpose::Change => Purpose::Change,
            StoredPurpose::Activation => Purpose::Activation,
        },
        parent: Revision(stored.parent),
        author: stored.author,
        reason: stored.reason,
        at_ms: stored.at_ms,
        edits: stored.edits,
        term: stored.term,
        digests: digests(&stored.desired, &stored.in_force)?,
    })
}

/// The text of a state.
pub(crate) fn state_text(state: &State) -> Result<String> {
    let head = &state.head;
    let stored = StoredState {
        revision: head.revision.0,
        desired: head.desired.0,
        in_force: head.in_force.0,
        floor: head.floor.0,
        term: head.term,
        desired_digest: head.digests.desired.to_string(),
        in_force_digest: head.digests.in_force.to_string(),
        kinds: state.kinds.clone(),
        records: state.records,
    };
    serde_json::to_string(&stored).map_err(|_| Error::invalid("the state is no JSON"))
}

/// Reads a state.
pub(crate) fn state(text: &[u8]) -> Result<State> {
    let stored: StoredState =
        serde_json::from_slice(text).map_err(|_| Error::corrupt("a state that cannot be read"))?;
    let head = Head {
        revision: Revision(stored.revision),
        desired: Revision(stored.desired),
        in_force: Revision(stored.in_force),
        floor: Revision(stored.floor),
        term: stored.term,
        digests: digests(&stored.desired_digest, &stored.in_force_digest)?,
    };
    Ok(State { head, kinds: stored.kinds, records: stored.records })
}

fn digests(desired: &str, in_force: &str) -> Result<Digests> {
    let read = |text: &str| text.parse().map_err(|_| Error::corrupt("a digest that cannot be read"));
    Ok(Digests { desired: read(desired)?, in_force: read(in_force)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_states_survive() {
        for (purpose, term) in [(Purpose::Change, None), (Purpose::Activation, Some(7))] {
            let digests = Digests { desired: crate::digest::leaf(b"a"), in_force: crate::digest::leaf(b"b") };
            let (author, reason) = ("ann".to_owned(), "a \"reason\"\n".to_owned());
            let header_in = Header {
                revision: Revision(9),
                purpose,
                parent: Revision(7),
                author,
                reason,
                at_ms: 1_700_000_000_000,
                edits: 3,
                term,
                digests,
            };
            assert_eq!(header(header_text(&header_in).unwrap().as_bytes()).unwrap(), header_in);
        }
        let mut state_in = State { records: 5, ..State::default() };
        state_in.kinds.insert("pin".to_owned());
        (state_in.head.revision, state_in.head.term) = (Revision(4), 2);
        assert_eq!(state(state_text(&state_in).unwrap().as_bytes()).unwrap(), state_in);
        assert!(matches!(state(b"{}"), Err(Error::Corrupt { .. })));
    }
}
