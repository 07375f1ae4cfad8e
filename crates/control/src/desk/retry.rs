//! What is asked for again: pins that are desired already, and whose roll-out has ended elsewhere. That is no difference in what is desired; the
//! request is a revision without edits, with a record of the pins beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use holdfast_config::ResourceKind::Pin;
use holdfast_plane::Pending;
use holdfast_store::{Json as Text, MAX_RECORD_WRITES, RecordWrite};
use holdfast_types::Revision;

use super::ask::{Ask, What};
use super::prepare::Prepared;
use super::truth::Truth;
use super::{Desk, DeskError};
use crate::rollouts;

/// The kind of the records. The driver lets go of those that nobody needs any more.
pub const PIN_RETRY: &str = "pin_retry";
/// So many pins with the longest names are less than what a record holds.
const CHUNK: usize = 150;

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRetry {
    /// The revision of the request.
    pub revision: u64,
    /// The pins, as `TENANT/MODEL`, with the version that each is desired at.
    pub pins: Vec<(String, String)>,
}

/// Pins that are asked for again, by name.
pub(super) type Again = BTreeMap<Arc<str>, Pending>;

impl Desk {
    /// Of the pins that an ask names and does not change, those that are not in force and were left where they are by their last roll-out.
    pub(super) async fn again(&self, truth: &Truth, ask: &Ask, prepared: &Prepared) -> Result<Again, DeskError> {
        let named = named(truth, &ask.what, prepared);
        if named.is_empty() {
            return Ok(named);
        }
        let failed = rollouts::failed(&**self.store()).await.map_err(DeskError::Unavailable)?;
        let is_failed =
            |(name, wish): &(Arc<str>, Pending)| failed.get(&**name).is_some_and(|to| to == wish.to.as_str());
        Ok(named.into_iter().filter(is_failed).collect())
    }
}

fn named(truth: &Truth, what: &What, prepared: &Prepared) -> Again {
    let stays = |name: &str| prepared.desired.get(Pin, name) == truth.desired.get(Pin, name);
    let waits = |name: &str| truth.pending.get_key_value(name).filter(|_| stays(name));
    let one = |(name, wish): (&Arc<str>, &Pending)| (name.clone(), wish.clone());
    match what {
        What::Edits(edits) => {
            let pins = edits.iter().filter(|edit| edit.kind == Pin && edit.value.is_some());
            pins.filter_map(|edit| waits(&edit.name)).map(one).collect()
        }
        What::Whole(_) => truth.pending.iter().filter(|(name, _)| stays(name)).map(one).collect(),
    }
}

/// How many records a request takes.
pub(super) fn chunks(again: &Again) -> usize {
    again.len().div_ceil(CHUNK)
}

/// The records of a request that becomes this revision, as many as fit beside others.
pub(super) fn writes(again: &Again, revision: Revision, others: usize) -> Result<Vec<RecordWrite>, DeskError> {
    let pins: Vec<(String, String)> =
        again.iter().map(|(name, wish)| (name.to_string(), wish.to.to_string())).collect();
    let room = MAX_RECORD_WRITES.saturating_sub(others + 1);
    let write = |(number, pins): (usize, &[(String, String)])| {
        let value = Text::of(&PinRetry { revision: revision.0, pins: pins.to_vec() })?;
        let id = format!("{:020}-{number}", revision.0);
        Ok(RecordWrite { kind: PIN_RETRY.to_owned(), id, expected: None, value: Some(value) })
    };
    pins.chunks(CHUNK).take(room).enumerate().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::{ModelName, TenantId, Version};

    #[test]
    fn the_longest_names_fit() {
        let wish = Pending {
            tenant: TenantId::parse("t").unwrap(),
            model: ModelName::parse("m").unwrap(),
            to: Version::parse(&"v".repeat(128)).unwrap(),
            words: None,
        };
        let name = |n: usize| Arc::from(format!("{n:0>128}/{}", "m".repeat(128)).as_str());
        let again: Again = (0..400).map(|n| (name(n), wish.clone())).collect();
        let writes = writes(&again, Revision(7), 0).unwrap();
        assert_eq!(writes.len(), 3);
        assert!(writes.iter().all(|w| w.value.as_ref().unwrap().as_bytes().len() <= holdfast_store::MAX_VALUE_BYTES));
        assert_eq!(
            super::writes(&again, Revision(7), 997).unwrap().len(),
            2,
            "what has no room waits to be asked again"
        );
    }
}
