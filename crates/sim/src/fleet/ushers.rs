//! The control planes' side of seats: one record in the store, which whoever leads replaces again and again, and the answers to gateways.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_placement::seats::{Heard, Record, Registrar, Rules, Told as Seated};
use holdfast_types::Mono;

use super::SECOND;
use super::company::Wished;
use super::gateway::Told;
use super::plane::ToPlane;
use super::seats::Sits;
use super::world::{Ev, Process, World};

/// How long what a gateway wants of others is handed on.
const WISHED: u64 = 3 * SECOND;
/// After so long nobody knows what became of a write.
const ANSWER: u64 = SECOND;

/// What a control plane has of the seats.
#[derive(Default)]
pub(super) struct Usher {
    registrar: Option<Registrar>,
    version: u64,
    /// Until when the answer of a write is waited for.
    writing: Option<u64>,
    confirm_at: u64,
    wishes: BTreeMap<usize, (u64, Vec<Wished>)>,
}

/// A write of the record.
#[derive(Clone, Debug)]
pub(super) struct Write {
    claim: bool,
    expected: u64,
    record: Record,
    /// By the clock of who writes.
    sent: Mono,
}

/// What became of it.
#[derive(Clone, Debug)]
pub(super) struct Wrote {
    write: Write,
    version: Option<u64>,
}

impl World<'_> {
    fn plane_clock(&self, plane: usize) -> Mono {
        let Some(p) = &self.planes[plane] else { return Mono::ZERO };
        Mono((self.now - p.origin) / 1_000 * p.rate)
    }

    /// A control plane that believes to lead has the record, or takes it over.
    pub(super) fn ushers(&mut self, plane: usize) {
        let (clock, now) = (self.plane_clock(plane), self.now);
        let (expected, record) = self.store.seats.clone();
        let cut = self.cut_store(plane);
        let Some(p) = &mut self.planes[plane] else { return };
        let (term, usher) = (p.term, &mut p.usher);
        if usher.writing.is_some_and(|until| until > now) {
            return;
        }
        if usher.writing.take().is_some() {
            usher.registrar = None;
        }
        let Some(registrar) = &mut usher.registrar else {
            // It cannot be read either.
            if !cut {
                let record = Record { term, ..record };
                self.writes(plane, Write { claim: true, expected, record, sent: clock });
            }
            return;
        };
        let wanted = registrar.wants(clock);
        if wanted.is_none() && usher.confirm_at > now {
            return;
        }
        let record = wanted.unwrap_or_else(|| registrar.record().clone());
        usher.confirm_at = now + self.setup.lease / 8;
        let expected = usher.version;
        self.writes(plane, Write { claim: false, expected, record, sent: clock });
    }

    fn writes(&mut self, plane: usize, write: Write) {
        let (at, until) = (self.after_delay(), self.now + ANSWER);
        let Some(p) = &mut self.planes[plane] else { return };
        p.usher.writing = Some(until);
        let (from, term) = (Process { ix: plane, number: p.process }, p.term);
        self.queue.put(at, Ev::Seats { from, term, write: Box::new(write) });
    }

    /// A write arrives at the store, or does not; or its answer is lost.
    pub(super) fn seats_at_store(&mut self, from: Process, term: u64, write: Write) {
        let lost = self.setup.lost > 0 && self.now < self.calm_from && self.chance.one_in(self.setup.lost);
        if self.cut_store(from.ix) || (lost && self.chance.one_in(2)) {
            return;
        }
        let taken = self.store.seats.0 == write.expected && term >= self.store.term;
        let version = taken.then_some(write.expected + 1);
        if let Some(version) = version {
            self.store.term = term;
            self.store.seats = (version, write.record.clone());
        }
        if !lost {
            let (at, what) = (self.after_delay(), ToPlane::Seats(Box::new(Wrote { write, version })));
            self.queue.put(at, Ev::Plane { to: from, what });
        }
    }

    pub(super) fn seats_written(&mut self, plane: usize, wrote: Wrote) {
        let clock = self.plane_clock(plane);
        let rules = Rules {
            alone: Duration::from_nanos(self.setup.alone),
            lease: Duration::from_nanos(self.setup.lease),
            bound: self.setup.loads.1,
        };
        let Some(p) = &mut self.planes[plane] else { return };
        let Usher { registrar, version, writing, .. } = &mut p.usher;
        // One that was given up is given up, whatever came of it.
        if writing.take().is_none() {
            return;
        }
        let Wrote { write: Write { claim, record, sent, .. }, version: written } = wrote;
        match (written, claim, registrar.as_mut()) {
            (Some(written), true, None) => {
                *registrar = Some(Registrar::new(rules, record, sent, clock));
                *version = written;
            }
            (Some(written), false, Some(known)) if written == *version + 1 => {
                known.written(sent, record);
                *version = written;
            }
            _ => *registrar = None,
        }
    }

    /// A gateway asks for its seat.
    pub(super) fn sits(&mut self, plane: usize, sits: Sits) {
        let (clock, now) = (self.plane_clock(plane), self.now);
        let Sits { from, sit, sent, wishes } = sits;
        let Some(p) = &mut self.planes[plane] else { return };
        let Some(registrar) = &mut p.usher.registrar else { return };
        let Seated { seating, next, granted } = registrar.sit(clock, sit);
        p.usher.wishes.retain(|_, (at, _)| now - *at <= WISHED);
        p.usher.wishes.insert(from.ix, (now, wishes));
        let others = p.usher.wishes.iter().filter(|(ix, _)| **ix != from.ix).flat_map(|(_, (_, all))| all.clone());
        let others: Vec<Wished> = others.collect();
        if !self.cut_plane(from.ix, plane) {
            self.tell_gateway(from, Told::Seat(Heard::Control { sent, seating, next, granted }));
            if !others.is_empty() {
                self.tell_gateway(from, Told::Wished(others));
            }
        }
        self.ushers(plane);
    }
}
