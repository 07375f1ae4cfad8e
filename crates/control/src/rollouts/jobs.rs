//! What the driver has the store do meanwhile. A job ends with an outcome; one that is dropped may have had its effect or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_decide::rollout::{ActivateRefusal, Effect, Event, PinFlip, Saved, TableView};
use holdfast_store::{Json, Purpose, RecordWrite, Store};
use holdfast_types::Revision;
use serde::{Deserialize, Serialize};

use super::board::{CommandError, Order};
use super::causes::Cause;
use super::forms::{By, Meta};
use super::moved;
use super::planning::Planned;
use super::records::{self, LoadError, SaveOutcome, Stored, Versions};
use super::running::Reply;
use super::sessions::Sessions;
use crate::desk::{ActivateError, Activation, Desk, PinMove};

/// What a job came to.
pub(super) enum Outcome {
    Saved {
        id: u64,
        version: u64,
        outcome: SaveOutcome,
    },
    Table {
        id: u64,
        event: Event,
        step: Option<u64>,
    },
    Activated {
        id: u64,
        event: Option<Event>,
        done: Option<Written>,
    },
    Planned(Result<Box<Planned>, String>),
    /// Leases were looked at.
    Kept,
    Loaded {
        id: u64,
        stored: Result<Option<Box<Stored>>, LoadError>,
        ask: Option<(Order, Reply)>,
    },
    /// Pins that are asked for again, and by which revision last; as of that revision.
    Again {
        at: u64,
        of: BTreeMap<Arc<str>, u64>,
    },
    /// Who wants roll-outs to go back. Empty: it could not be read.
    Causes(Vec<(u64, Cause)>),
    /// What is desired was changed before a roll-out is told the order, or could not be.
    Withdrawn {
        id: u64,
        order: Order,
        reply: Reply,
        done: Result<(), CommandError>,
    },
    /// Something that needs no answer.
    Nothing,
}

/// The records after an activation.
pub(super) struct Written {
    pub(super) head: u64,
    pub(super) granted: u64,
    pub(super) roster: u64,
    pub(super) step: u64,
}

/// The last step of a roll-out that is in the table.
#[derive(Debug, Serialize, Deserialize)]
struct Step {
    step: u32,
    /// The table on which it was built: its own revision is a later one.
    base: u64,
}

pub(super) async fn save(store: Arc<dyn Store>, known: Versions, saved: Box<Saved>, meta: Meta) -> Outcome {
    let outcome = records::save(&*store, known, &saved, &meta).await;
    Outcome::Saved { id: saved.id, version: saved.version, outcome }
}

/// What the reasons of a step's revision begin with.
fn reason_of(id: u64, step: u32) -> String {
    format!("roll-out {id} step {step}")
}

/// The read of a table: the truth at the head that the store itself has now, and the records beside it.
pub(super) async fn read(
    desk: Arc<Desk>,
    sessions: Arc<Sessions>,
    id: u64,
    read: u64,
    pins: Vec<Arc<str>>,
) -> Result<Outcome, String> {
    let truth = desk.refresh().await.map_err(|e| e.to_string())?;
    let store = desk.store();
    let words = |e: holdfast_store::Error| e.to_string();
    let record = store.record(records::STEP.to_owned(), id.to_string()).await.map_err(words)?;
    let version = record.as_ref().map(|record| record.version);
    let applied = match record {
        Some(record) => {
            let step: Step = serde_json::from_slice(record.value.as_bytes()).map_err(|e| e.to_string())?;
            Some((step.step, revision_of(&**store, id, &step, truth.head.in_force).await.map_err(words)?))
        }
        None => None,
    };
    let roster = sessions.refresh().await.map_err(words)?;
    let pins = pins.iter().map(|name| moved::view(&truth, name)).collect();
    let table = TableView { revision: truth.head.in_force, applied, roster, pins };
    Ok(Outcome::Table { id, event: Event::Table { read, table }, step: version })
}

/// The revision of a step. One that was pruned is as good as the table in force: all that is asked is whether gateways are there yet.
async fn revision_of(store: &dyn Store, id: u64, step: &Step, in_force: Revision) -> holdfast_store::Result<Revision> {
    const PAGE: usize = 200;
    let (reason, mut before) = (reason_of(id, step.step), None);
    loop {
        let page = store.history(before, PAGE).await?;
        let is = |h: &&holdfast_store::Header| {
            h.purpose == Purpose::Activation
                && h.reason.strip_prefix(&reason).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        if let Some(header) = page.iter().find(is) {
            return Ok(header.revision);
        }
        match page.last() {
            Some(last) if last.revision.0 > step.base && page.len() == PAGE => before = Some(last.revision),
            _ => return Ok(in_force),
        }
    }
}

/// What an activation needs beside the effect.
pub(super) struct Activate {
    pub(super) meta: Meta,
    pub(super) saved: Box<Saved>,
    pub(super) head: Option<u64>,
    pub(super) step: Option<u64>,
    pub(super) roster: RecordWrite,
    pub(super) at_ms: u64,
}

/// The one transaction: the pins, the record at its version, the roster, and the note of the step.
pub(super) async fn activate(desk: Arc<Desk>, effect: Effect, with: Activate) -> Outcome {
    let Effect::Activate { rollout, step, expected, roster, version, term, flips } = effect else {
        return Outcome::Nothing;
    };
    let id = rollout.0;
    let refused =
        |why| Outcome::Activated { id, event: Some(Event::ActivateRefused { step, version, why }), done: None };
    let invalid = |words: String| refused(ActivateRefusal::Invalid(words));
    let pins = match moves(&flips) {
        Ok(pins) => pins,
        Err(words) => return invalid(words),
    };
    let head = match super::forms::write(&with.saved, &with.meta) {
        Ok((head, _)) => head,
        Err(error) => return invalid(error.to_string()),
    };
    let note = match Json::of(&Step { step, base: expected.0 }) {
        Ok(note) => note,
        Err(error) => return invalid(error.to_string()),
    };
    let records = vec![
        records::write(records::ROLLOUT, id.to_string(), with.head, Some(head)),
        records::write(records::STEP, id.to_string(), with.step, Some(note)),
        with.roster,
    ];
    let Meta { author, reason, back, .. } = with.meta;
    // A share of none is a step of the way back, which is somebody else's than the way there.
    let goes_back = flips.iter().all(|flip| flip.share == 0);
    let By { author, reason } = back.filter(|_| goes_back).unwrap_or(By { author, reason });
    let (reason, at_ms) = (format!("{}: {reason}", reason_of(id, step)), with.at_ms);
    match desk.activate(Activation { expected, author, reason, at_ms, pins, records, term }).await {
        Ok(done) => {
            let event = Some(Event::Activated { step, revision: done.revision });
            let done = match done.versions.as_slice() {
                [Some(head), Some(step), Some(version)] => {
                    Some(Written { head: *head, granted: roster, roster: *version, step: *step })
                }
                _ => None,
            };
            Outcome::Activated { id, event, done }
        }
        Err(ActivateError::Conflict { .. }) => refused(ActivateRefusal::Conflict),
        Err(ActivateError::Fenced) => refused(ActivateRefusal::Fenced),
        Err(ActivateError::Invalid(words)) => invalid(words),
        // The machine reads the table.
        Err(ActivateError::Unavailable { maybe: true, .. }) => Outcome::Activated { id, event: None, done: None },
        Err(_) => refused(ActivateRefusal::Conflict),
    }
}

/// As the desk takes them. A share of none is the whole of the old version.
fn moves(flips: &[PinFlip]) -> Result<Vec<PinMove>, String> {
    let one = |flip: &PinFlip| {
        let version = match &flip.old {
            _ if flip.share > 0 => &flip.new,
            Some(old) => old,
            None => return Err(format!("the pin of {} for {} has nothing to go back to", flip.tenant, flip.model)),
        };
        let (tenant, model, version) = (flip.tenant.clone(), flip.model.clone(), version.clone());
        Ok(PinMove { tenant, model, version, share: flip.share })
    };
    flips.iter().map(one).collect()
}
