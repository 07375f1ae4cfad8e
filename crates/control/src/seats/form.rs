//! The record as the store has it.

use std::time::Duration;

use holdfast_placement::seats::{Record, Seat, Seating};
use holdfast_store::{Json, Result};
use holdfast_types::GatewayName;
use serde::{Deserialize, Serialize};

const FORM: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Form {
    form: u32,
    term: u64,
    seating: SeatingForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<SeatingForm>,
}

#[derive(Serialize, Deserialize)]
struct SeatingForm {
    epoch: u64,
    lease_ms: u64,
    alone_ms: u64,
    bound: u32,
    unsure: bool,
    seats: Vec<SeatForm>,
}

#[derive(Serialize, Deserialize)]
struct SeatForm {
    name: String,
    /// As text: JSON's numbers are not all exact.
    home: String,
    life: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
}

/// The record's value.
pub(super) fn written(record: &Record) -> Result<Json> {
    let next = record.next.as_ref().map(seating_out);
    Json::of(&Form { form: FORM, term: record.term, seating: seating_out(&record.seating), next })
}

/// None: it is damaged, or of another form.
pub(super) fn read(bytes: &[u8]) -> Option<Record> {
    let form: Form = serde_json::from_slice(bytes).ok()?;
    if form.form != FORM {
        return None;
    }
    let next = match form.next {
        Some(next) => Some(seating_in(next)?),
        None => None,
    };
    Some(Record { term: form.term, seating: seating_in(form.seating)?, next })
}

fn seating_out(seating: &Seating) -> SeatingForm {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let seat = |seat: &Seat| SeatForm {
        name: seat.name.to_string(),
        home: format!("{:016x}", seat.home),
        life: seat.life,
        peer: seat.peer.as_ref().map(ToString::to_string),
    };
    SeatingForm {
        epoch: seating.epoch,
        lease_ms: millis(seating.lease),
        alone_ms: millis(seating.alone),
        bound: seating.bound,
        unsure: seating.unsure,
        seats: seating.seats.iter().map(seat).collect(),
    }
}

fn seating_in(form: SeatingForm) -> Option<Seating> {
    let seat = |seat: SeatForm| {
        let name = GatewayName::parse(&seat.name).ok()?;
        let home = u64::from_str_radix(&seat.home, 16).ok()?;
        Some(Seat { name, home, life: seat.life, peer: seat.peer.map(Into::into) })
    };
    Some(Seating {
        epoch: form.epoch,
        lease: Duration::from_millis(form.lease_ms),
        alone: Duration::from_millis(form.alone_ms),
        bound: form.bound,
        unsure: form.unsure,
        seats: form.seats.into_iter().map(seat).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let seat = |name: &str, home, peer: Option<&str>| Seat {
            name: GatewayName::parse(name).unwrap(),
            home,
            life: 3,
            peer: peer.map(Into::into),
        };
        let seating = Seating {
            epoch: 7,
            lease: Duration::from_secs(10),
            alone: Duration::from_secs(3_600),
            bound: 8,
            seats: vec![seat("a", u64::MAX, Some("127.0.0.1:1")), seat("b", 1, None)],
            unsure: true,
        };
        let next = Some(Seating { epoch: 8, unsure: false, ..seating.clone() });
        let record = Record { term: 4, seating, next };
        assert_eq!(read(written(&record).unwrap().as_bytes()), Some(record.clone()));
        let bare = Record { next: None, ..Record::default() };
        assert_eq!(read(written(&bare).unwrap().as_bytes()), Some(bare));
        assert_eq!(read(b"{}"), None);
    }

    /// A record that this release has written, for the releases to come.
    #[test]
    fn the_first_form_stays_readable() {
        let frozen = br#"{"form":1,"next":null,"seating":{"alone_ms":3600000,"bound":8,"epoch":2,"lease_ms":10000,"seats":[{"home":"000000000000002a","life":1,"name":"g1","peer":"10.0.0.1:7403"}],"unsure":false},"term":9}"#;
        let record = read(frozen).unwrap();
        assert_eq!((record.term, record.seating.epoch, record.seating.seats[0].home), (9, 2, 42));
    }
}
