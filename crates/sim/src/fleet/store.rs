//! The store: the table in force, the records of roll-outs, leases, terms. One thing after another; what is asked may be lost on its way, and so may
//! an answer.

use std::collections::BTreeMap;

use holdfast_decide::rollout::{ActivateRefusal, Effect, Event, PinFlip, PinView, Saved, TableView};
use holdfast_decide::{PinChange, Snapshot, Split};
use holdfast_placement::seats::Record;
use holdfast_types::Revision;

use super::SECOND;
use super::plane::ToPlane;
use super::world::{Ev, Process, World};

pub(super) struct Store {
    pub(super) table: Snapshot,
    pub(super) records: BTreeMap<u64, Saved>,
    pub(super) roster: u64,
    pub(super) leases: Vec<bool>,
    /// The highest that has written.
    pub(super) term: u64,
    pub(super) next_term: u64,
    /// The record of the gateways' seats, and its version.
    pub(super) seats: (u64, Record),
    /// The last step of each roll-out in the table.
    steps: BTreeMap<u64, (u32, Revision)>,
}

impl Store {
    pub(super) fn new(table: Snapshot, gateways: usize) -> Self {
        let leases = vec![false; gateways];
        let (records, steps, seats) = (BTreeMap::new(), BTreeMap::new(), (0, Record::default()));
        Self { table, records, roster: 0, leases, term: 0, next_term: 1, seats, steps }
    }
}

impl World<'_> {
    /// Something asked of the store arrives there, or does not.
    pub(super) fn at_store(&mut self, from: Process, term: u64, id: u64, effect: Effect) {
        let lost = self.setup.lost > 0 && self.now < self.calm_from && self.chance.one_in(self.setup.lost);
        let before = self.cut_store(from.ix) || (lost && self.chance.one_in(2));
        if before {
            // Who waits for a save is told at its time-out that nothing is known.
            if let Effect::Save { saved, .. } = &effect {
                let event = Event::SaveFailed { version: saved.version };
                let what = ToPlane::Of(id, Box::new(event));
                self.queue.put(self.now + SECOND, Ev::Plane { to: from, what });
            }
            return;
        }
        let answer = match effect {
            Effect::Save { expected, saved } => self.save(term, id, expected, *saved, lost),
            Effect::ReadTable { read } => (!lost).then(|| Event::Table { read, table: self.view(id) }),
            Effect::Activate { .. } => self.activate(term, id, &effect).filter(|_| !lost),
            _ => None,
        };
        if let Some(event) = answer {
            let at = self.after_delay();
            self.queue.put(at, Ev::Plane { to: from, what: ToPlane::Of(id, Box::new(event)) });
        }
    }

    fn save(&mut self, term: u64, id: u64, expected: u64, saved: Saved, lost: bool) -> Option<Event> {
        let version = saved.version;
        let current = self.store.records.get(&id).map_or(0, |s| s.version);
        if current != expected || term < self.store.term {
            return Some(Event::SaveConflict { version });
        }
        self.store.term = term;
        self.store.records.insert(id, saved);
        Some(if lost { Event::SaveFailed { version } } else { Event::Saved { version } })
    }

    fn view(&self, id: u64) -> TableView {
        let tenants = self.store.records.get(&id).into_iter().flat_map(|s| &s.pins).map(|p| p.tenant.clone());
        let view = |tenant: String| {
            let entry = self.store.table.tenant(&tenant);
            let pins = entry.into_iter().flat_map(|t| self.store.table.pins(t));
            let splits = entry.into_iter().flat_map(|t| self.store.table.splits(t));
            PinView {
                version: pins.map(|(_, v)| v.version.clone()).next(),
                split: splits.map(|(_, v, share)| (v.version.clone(), share)).next(),
            }
        };
        TableView {
            revision: self.store.table.revision(),
            applied: self.store.steps.get(&id).copied(),
            roster: self.store.roster,
            pins: tenants.map(view).collect(),
        }
    }

    /// One transaction: the table's revision, the leases, the record's version and the term, or nothing.
    fn activate(&mut self, term: u64, id: u64, effect: &Effect) -> Option<Event> {
        let Effect::Activate { step, expected, roster, version, flips, .. } = effect else { return None };
        let (step, version) = (*step, *version);
        let refuse = |why| Some(Event::ActivateRefused { step, version, why });
        let current = self.store.records.get(&id).map_or(0, |s| s.version);
        if term < self.store.term || current != version {
            return refuse(ActivateRefusal::Fenced);
        }
        if *expected != self.store.table.revision() || *roster != self.store.roster {
            return refuse(ActivateRefusal::Conflict);
        }
        let revision = Revision(expected.0 + 1);
        let Some(table) = moved(&self.store.table, revision, flips) else {
            return refuse(ActivateRefusal::Invalid("there is no such version".to_owned()));
        };
        if self.store.steps.get(&id).is_some_and(|(last, _)| *last >= step) {
            self.breaks(format!("step {step} of roll-out {id} has effect twice"));
        }
        (self.store.table, self.store.term) = (table, term);
        self.store.steps.insert(id, (step, revision));
        self.tally.flips += 1;
        self.tally.reverts += flips.iter().filter(|f| f.share == 0).count() as u64;
        self.note(|| {
            let shares: Vec<String> = flips.iter().map(|f| format!("{} {} %", f.new, f.share)).collect();
            format!("revision {revision} is in force: step {step} of roll-out {id}: {}", shares.join(", "))
        });
        Some(Event::Activated { step, revision })
    }
}

fn moved(table: &Snapshot, revision: Revision, flips: &[PinFlip]) -> Option<Snapshot> {
    let to = |flip: &PinFlip| if flip.share >= 100 { Some(flip.new.clone()) } else { flip.old.clone() };
    let change =
        |flip: &PinFlip| Some(PinChange { tenant: flip.tenant.clone(), model: flip.model.clone(), version: to(flip)? });
    let changes = flips.iter().map(change).collect::<Option<Vec<_>>>()?;
    let parts = flips.iter().filter(|f| (1..100).contains(&f.share));
    let splits: Vec<Split> = parts
        .map(|f| Split { tenant: f.tenant.clone(), model: f.model.clone(), version: f.new.clone(), percent: f.share })
        .collect();
    table.with_pins(revision, &changes).ok()?.with_splits(&splits).ok()
}
