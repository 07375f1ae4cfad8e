//! What happens to a fleet beside its traffic: pins that change, commands, and everything that can break.

use super::{MS, SECOND, Setup};
use crate::chance::Chance;

/// What a replica can suffer from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Loads take ten times as long.
    Slow,
    /// Loads fail.
    Fails,
    /// Loads bring other weights under the name.
    Wrong,
    /// Answers name another version.
    Misnames,
}

/// Something that happens. Numbers are taken modulo what there is; what lasts, lasts so many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Act {
    /// Somebody wants a tenant's pin at another version. The bits choose the roll-out's options.
    Flip { tenant: usize, version: u32, bits: u8 },
    /// A command for some roll-out: 0 abort, 1 pause, 2 and 3 resume, from 4 on revert.
    Command { pick: usize, what: u8 },
    /// A replica's process dies.
    ReplicaDies { replica: usize, ms: u64 },
    /// A replica drops a version by itself.
    Drops { replica: usize, version: u32 },
    /// A replica is in trouble.
    Trouble { replica: usize, fault: Fault, ms: u64 },
    /// A gateway's process dies.
    GatewayDies { gateway: usize, ms: u64 },
    /// A gateway's clock jumps ahead.
    Ahead { gateway: usize, ms: u64 },
    /// A gateway's process stands still.
    GatewayStalls { gateway: usize, ms: u64 },
    /// A control plane's process dies.
    PlaneDies { plane: usize },
    /// A control plane's process stands still.
    PlaneStalls { plane: usize, ms: u64 },
    /// A control plane takes over, whether or not another one leads.
    TakeOver { plane: usize },
    /// No message passes between a gateway and a replica.
    CutReplica { gateway: usize, replica: usize, ms: u64 },
    /// No message passes between a gateway and a control plane.
    CutPlane { gateway: usize, plane: usize, ms: u64 },
    /// Two gateways cannot see one another.
    CutPeers { gateway: usize, other: usize, ms: u64 },
    /// No message passes between a control plane and the store.
    CutStore { plane: usize, ms: u64 },
}

/// Random acts over the span of a setup.
#[must_use]
pub fn acts(setup: &Setup, seed: u64) -> Vec<(u64, Act)> {
    // Apart from the chance of everything else, so that a history without some of its acts is otherwise the same.
    let mut chance = Chance::new(seed ^ 0x5eed_ac75);
    let mean = setup.span / chance.within(&(12..70));
    let (mut at, mut out) = (SECOND, Vec::new());
    loop {
        at += chance.exponential(mean);
        if at >= setup.span {
            return out;
        }
        out.push((at, act(setup, &mut chance)));
    }
}

fn act(setup: &Setup, chance: &mut Chance) -> Act {
    let below = |chance: &mut Chance, end: usize| usize::try_from(chance.below(end.max(1) as u64)).unwrap_or(0);
    let (gateway, replica) = (below(chance, setup.gateways), below(chance, setup.replicas));
    let (plane, ms) = (below(chance, 2), chance.exponential(5 * SECOND) / MS + 50);
    let version = u32::try_from(chance.below(u64::from(setup.versions))).unwrap_or(0);
    let bits = u8::try_from(chance.below(8)).unwrap_or(0);
    let fault = [Fault::Slow, Fault::Fails, Fault::Wrong, Fault::Misnames, Fault::Fails][below(chance, 5)];
    match chance.below(46) {
        0..12 => Act::Flip { tenant: below(chance, setup.tenants), version, bits },
        12..16 => Act::Command { pick: below(chance, 1 << 16), what: bits },
        16..19 => Act::ReplicaDies { replica, ms },
        19 => Act::Drops { replica, version },
        20..27 => Act::Trouble { replica, fault, ms },
        27..29 => Act::GatewayDies { gateway, ms },
        29 => Act::Ahead { gateway, ms: ms.min(20_000) },
        30 => Act::GatewayStalls { gateway, ms: ms.min(8_000) },
        31..33 => Act::PlaneDies { plane },
        33 => Act::PlaneStalls { plane, ms },
        34..36 => Act::TakeOver { plane },
        36..39 => Act::CutReplica { gateway, replica, ms },
        39..41 => Act::CutPlane { gateway, plane, ms },
        41..44 => Act::CutPeers { gateway, other: below(chance, setup.gateways), ms },
        _ => Act::CutStore { plane, ms },
    }
}
