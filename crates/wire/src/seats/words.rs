//! Seats as the wire has them, and back.

use std::time::Duration;

use holdfast_decide::rollout::Artifact;
use holdfast_placement::seats::{MAX_SEATS, Seat, Seating, Sit, Told};
use holdfast_plane::Wish;
use holdfast_types::{GatewayName, PoolName};

use super::{Answered, Asked, Leave, Loaded, MAX_LIST};
use crate::proto::{self, load_answer};
use crate::words::{artifact_in, artifact_out};

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seat_out(seat: &Seat) -> proto::Seat {
    let peer = seat.peer.as_ref().map(ToString::to_string);
    proto::Seat { name: seat.name.to_string(), home: seat.home, life: seat.life, peer }
}

fn seat_in(seat: proto::Seat) -> Option<Seat> {
    let peer = seat.peer.filter(|peer| peer.len() <= 256).map(Into::into);
    Some(Seat { name: GatewayName::parse(&seat.name).ok()?, home: seat.home, life: seat.life, peer })
}

fn seating_in(seating: proto::Seating) -> Option<Seating> {
    if seating.seats.len() > MAX_SEATS {
        return None;
    }
    Some(Seating {
        epoch: seating.epoch,
        lease: Duration::from_millis(seating.lease_ms),
        alone: Duration::from_millis(seating.alone_ms),
        bound: seating.bound,
        seats: seating.seats.into_iter().map(seat_in).collect::<Option<_>>()?,
        unsure: seating.unsure,
    })
}

fn seating_out(seating: &Seating) -> proto::Seating {
    proto::Seating {
        epoch: seating.epoch,
        lease_ms: millis(seating.lease),
        alone_ms: millis(seating.alone),
        bound: seating.bound,
        seats: seating.seats.iter().map(seat_out).collect(),
        unsure: seating.unsure,
    }
}

pub(super) fn wish_out(wish: &Wish) -> proto::Wish {
    let servers = wish.servers.iter().map(ToString::to_string).collect();
    proto::Wish { artifact: Some(artifact_out(&wish.artifact)), servers }
}

pub(super) fn wish_in(wish: proto::Wish) -> Option<Wish> {
    let servers = wish.servers.into_iter().take(MAX_LIST).map(Into::into).collect();
    Some(Wish { artifact: artifact_in(wish.artifact.as_ref()?)?, servers })
}

fn wishes_in(wishes: Vec<proto::Wish>) -> Vec<Wish> {
    wishes.into_iter().take(MAX_LIST).filter_map(wish_in).collect()
}

fn pools_out(pools: &[PoolName]) -> Vec<String> {
    pools.iter().map(ToString::to_string).collect()
}

fn pools_in(pools: &[String]) -> Vec<PoolName> {
    pools.iter().take(MAX_LIST).filter_map(|pool| PoolName::parse(pool).ok()).collect()
}

pub(super) fn asked_out(Asked { sit, wishes, telling }: &Asked) -> proto::SitRequest {
    proto::SitRequest {
        seat: Some(seat_out(&sit.seat)),
        promised: sit.promised,
        drained: sit.drained,
        clean: sit.clean,
        leaving: sit.leaving,
        wishes: wishes.iter().map(wish_out).collect(),
        telling: pools_out(telling),
    }
}

pub(super) fn asked_in(ask: proto::SitRequest) -> Option<Asked> {
    let sit = Sit {
        seat: seat_in(ask.seat?)?,
        promised: ask.promised,
        drained: ask.drained,
        clean: ask.clean,
        leaving: ask.leaving,
    };
    let telling = pools_in(&ask.telling);
    Some(Asked { sit, wishes: wishes_in(ask.wishes), telling })
}

pub(super) fn answered_out(answered: &Answered) -> proto::SitAnswer {
    let Told { seating, next, granted } = &answered.told;
    proto::SitAnswer {
        seating: seating.as_ref().map(seating_out),
        next: *next,
        granted: *granted,
        wishes: answered.wishes.iter().map(wish_out).collect(),
        telling: pools_out(&answered.telling),
    }
}

pub(super) fn answered_in(answer: proto::SitAnswer) -> Option<Answered> {
    let seating = match answer.seating {
        Some(seating) => Some(seating_in(seating)?),
        None => None,
    };
    let told = Told { seating, next: answer.next, granted: answer.granted };
    let telling = pools_in(&answer.telling);
    Some(Answered { told, wishes: wishes_in(answer.wishes), telling })
}

pub(super) fn loaded_out(loaded: Loaded) -> proto::LoadAnswer {
    let what = match loaded {
        Loaded::Ready(server) => load_answer::What::Ready(server.into()),
        Loaded::Shed { retry, why } => load_answer::What::Shed(proto::Shed { retry_ms: millis(retry), why }),
        Loaded::Failed(why) => load_answer::What::Failed(why),
        Loaded::NotOwner => load_answer::What::NotOwner(true),
    };
    proto::LoadAnswer { what: Some(what) }
}

/// An answer of a later release that cannot be read is none of an owner.
pub(super) fn loaded_in(answer: proto::LoadAnswer) -> Loaded {
    match answer.what {
        Some(load_answer::What::Ready(server)) => Loaded::Ready(server.into()),
        Some(load_answer::What::Shed(shed)) => {
            Loaded::Shed { retry: Duration::from_millis(shed.retry_ms), why: shed.why }
        }
        Some(load_answer::What::Failed(why)) => Loaded::Failed(why),
        Some(load_answer::What::NotOwner(_)) | None => Loaded::NotOwner,
    }
}

pub(super) fn reload_in(ask: proto::ReloadRequest) -> Option<(Artifact, Box<str>)> {
    Some((artifact_in(ask.artifact.as_ref()?)?, ask.server.into()))
}

pub(super) fn reload_out(gateway: &GatewayName, artifact: &Artifact, server: &str) -> proto::ReloadRequest {
    proto::ReloadRequest {
        gateway: gateway.to_string(),
        artifact: Some(artifact_out(artifact)),
        server: server.to_owned(),
    }
}

pub(super) fn leave_in(ask: proto::YieldRequest) -> Option<Leave> {
    Some(Leave {
        artifact: artifact_in(ask.artifact.as_ref()?)?,
        server: ask.server.into(),
        within: Duration::from_millis(ask.within_ms),
        taken_back: ask.taken_back,
        word: ask.word,
        renews: ask.renews,
    })
}

pub(super) fn leave_out(gateway: &GatewayName, leave: &Leave) -> proto::YieldRequest {
    proto::YieldRequest {
        gateway: gateway.to_string(),
        artifact: Some(artifact_out(&leave.artifact)),
        server: leave.server.to_string(),
        within_ms: millis(leave.within),
        taken_back: leave.taken_back,
        word: leave.word,
        renews: leave.renews,
    }
}
