//! The promises of residency over all gateways of a fleet as predicates, for histories, for the model that tries every order, and for whoever else
//! sees a fleet from outside.
//!
//! They look at what is, not at what somebody believes: who may start loads at this moment, what the servers are loading, who has requests where.

use holdfast_types::Invariant;

use crate::invariants::Violation;

/// A load that a server is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading {
    /// The server, as a small number.
    pub server: u32,
    /// Whoever is answerable for it reaches its server, or has it in its part still. Loads of which nothing can be heard keep nobody else from loading.
    pub seen: bool,
}

/// A gateway at the moment in which a server is about to drop a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Requests that it has sent there and that are not answered.
    pub in_flight: u32,
    /// The owner is this one, or has this one's word for this very unload.
    pub asked: bool,
}

/// LOAD-1: whoever may start loads at one moment may do so under one seating.
///
/// # Errors
/// There are two.
pub fn one_seating(epochs: impl IntoIterator<Item = u64>) -> Result<(), Violation> {
    let mut all: Vec<u64> = epochs.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    if all.len() <= 1 {
        return Ok(());
    }
    Err(Violation { invariant: Invariant::Load1, what: format!("loads may be started under seatings {all:?} at once") })
}

/// LOAD-1: what servers are loading is within the bound of each, and of the fleet.
///
/// # Errors
/// A bound that is passed.
pub fn loads_within(loads: &[Loading], per_server: usize, fleet: usize) -> Result<(), Violation> {
    let broken = |what: String| Err(Violation { invariant: Invariant::Load1, what });
    for load in loads {
        let here = loads.iter().filter(|l| l.server == load.server).count();
        if here > per_server {
            return broken(format!(
                "server {} has {here} loads of all gateways, the bound is {per_server}",
                load.server
            ));
        }
    }
    let all = loads.iter().filter(|l| l.seen).count();
    if all > fleet {
        return broken(format!("{all} loads over all gateways, the bound of the fleet is {fleet}"));
    }
    Ok(())
}

/// LOAD-2: nobody who was asked has requests on what a server drops.
///
/// # Errors
/// Somebody has.
pub fn drops_nothing_in_use(what: &str, users: impl IntoIterator<Item = User>) -> Result<(), Violation> {
    let used: u32 = users.into_iter().filter(|user| user.asked).map(|user| user.in_flight).sum();
    if used == 0 {
        return Ok(());
    }
    let what = format!("{what} is unloaded with {used} requests of gateways that had given their word");
    Err(Violation { invariant: Invariant::Load2, what })
}

/// LOAD-2: of a pinned version that two owners unload at about the same time one copy stays. `left` counts the servers that hold it after the unload,
/// `meanwhile` says that another gateway has unloaded it elsewhere since this unload was decided.
///
/// # Errors
/// None stays.
pub fn one_copy_stays(what: &str, pinned: bool, left: usize, meanwhile: bool) -> Result<(), Violation> {
    if !pinned || left > 0 || !meanwhile {
        return Ok(());
    }
    let what = format!("two gateways have unloaded the last two copies of the pinned {what} at once");
    Err(Violation { invariant: Invariant::Load2, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_shows() {
        assert!(one_seating([3, 3]).is_ok() && one_seating([]).is_ok() && one_seating([3, 4]).is_err());
        let load = |server, seen| Loading { server, seen };
        let two = [load(0, true), load(1, true)];
        assert!(loads_within(&two, 1, 2).is_ok() && loads_within(&two, 1, 1).is_err());
        assert!(loads_within(&[load(0, true), load(1, false)], 1, 1).is_ok(), "nothing is heard of one of them");
        assert!(loads_within(&[load(0, false), load(0, false)], 1, 9).is_err());
        let user = |in_flight, asked| User { in_flight, asked };
        assert!(drops_nothing_in_use("v", [user(0, true), user(1, false)]).is_ok());
        assert!(drops_nothing_in_use("v", [user(1, true)]).is_err());
        assert!(one_copy_stays("v", true, 0, true).is_err());
        for (pinned, left, meanwhile) in [(false, 0, true), (true, 1, true), (true, 0, false)] {
            assert!(one_copy_stays("v", pinned, left, meanwhile).is_ok());
        }
    }
}
