//! How one key follows another. Pure: what is stored next follows from what is stored, the time, and random bytes that are used or not.
//!
//! A key is published [`Plan::lead`] before it signs, and until its last token has ended. Each step is one write of the store; a process that dies
//! before or after it leaves a state from which the same steps follow. Random bytes that were not written down signed nothing.

use super::{MOST_KEYS, SigningKey, State};

/// How keys follow one another, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// From the first signature of a key to that of the next.
    pub rotate: u64,
    /// From a key's publication to its first signature.
    pub lead: u64,
    /// How long a token lives at most.
    pub life: u64,
}

/// What is stored next. `None`: nothing is to be done now.
#[must_use]
pub fn step(state: &State, plan: &Plan, now: u64, seed: [u8; 32]) -> Option<State> {
    let mut next = state.clone();
    next.keys.retain(|key| now < key.ends);
    if let Some(from) = next_begins(&next, plan, now) {
        next.keys.extend(SigningKey::new(seed, from, plan));
    }
    (next != *state).then(|| next.stamped(now))
}

/// When a key that is lacking begins to sign.
fn next_begins(state: &State, plan: &Plan, now: u64) -> Option<u64> {
    let Some(newest) = state.keys.iter().map(|key| key.signs_from).max() else { return Some(now) };
    if newest > now || state.keys.len() >= MOST_KEYS {
        return None;
    }
    if state.signer(now).is_none() {
        // Nobody can sign: there is nothing to overlap with.
        return Some(now);
    }
    let due = newest.saturating_add(plan.rotate);
    let published = now.saturating_add(plan.lead);
    (published >= due).then(|| due.max(published))
}

/// A new key out of turn. `at_once`: it is the only one from now on, and no token of the others is good any more. `None`: a key is on its way already, or
/// there are as many as there may be.
#[must_use]
pub fn force(state: &State, plan: &Plan, now: u64, seed: [u8; 32], at_once: bool) -> Option<State> {
    let mut next = state.clone();
    if at_once {
        next.keys.clear();
    } else if next.keys.len() >= MOST_KEYS || next.keys.iter().any(|key| key.signs_from > now) {
        return None;
    }
    let from = if at_once || state.signer(now).is_none() { now } else { now.saturating_add(plan.lead) };
    next.keys.push(SigningKey::new(seed, from, plan)?);
    Some(next.stamped(now))
}

#[cfg(test)]
mod tests {
    use super::super::mint::{Grant, Kind, Maker, make};
    use super::*;
    use proptest::prelude::*;

    const PLAN: Plan = Plan { rotate: 1_000_000, lead: 100_000, life: 3_000_000 };

    fn seed(number: u64) -> [u8; 32] {
        *blake3::hash(&number.to_le_bytes()).as_bytes()
    }

    #[test]
    fn a_key_is_published_before_it_signs_and_until_its_last_token_has_ended() {
        let first = step(&State::default(), &PLAN, 5, seed(1)).unwrap();
        assert_eq!(first.signer(5).map(|key| key.signs_from), Some(5));
        assert_eq!(step(&first, &PLAN, 900_004, seed(2)), None, "nothing is due");
        let second = step(&first, &PLAN, 900_005, seed(2)).unwrap();
        assert_eq!(second.keys.len(), 2);
        assert_eq!(second.signer(1_000_004).map(|key| &key.kid), Some(&first.keys[0].kid));
        assert_eq!(second.signer(1_000_005).map(|key| &key.kid), Some(&second.keys[1].kid));
        assert_eq!(step(&second, &PLAN, 1_000_005, seed(3)), None);
        // Nobody wrote for long: the key that signs at once has nothing to overlap with, and the old ones are published on.
        let late = step(&second, &PLAN, 3_000_005, seed(3)).unwrap();
        assert_eq!((late.keys.len(), late.signer(3_000_005).map(|key| key.signs_from)), (3, Some(3_000_005)));
        let ends = first.keys[0].ends;
        assert_eq!(
            step(&late, &PLAN, ends, seed(4)).unwrap().keys.iter().filter(|k| k.kid == first.keys[0].kid).count(),
            0
        );
    }

    #[test]
    fn a_key_out_of_turn() {
        let first = step(&State::default(), &PLAN, 5, seed(1)).unwrap();
        let soon = force(&first, &PLAN, 10, seed(2), false).unwrap();
        assert_eq!(soon.signer(100_009).map(|key| key.kid.clone()), Some(first.keys[0].kid.clone()));
        assert_eq!(soon.signer(100_010).map(|key| key.kid.clone()), Some(soon.keys[1].kid.clone()));
        assert_eq!(force(&soon, &PLAN, 11, seed(3), false), None, "one is on its way");
        let alone = force(&soon, &PLAN, 11, seed(3), true).unwrap();
        assert_eq!((alone.keys.len(), alone.signer(11).is_some()), (1, true));
        assert!(alone.stamp > soon.stamp && soon.stamp > first.stamp);
    }

    proptest! {
        /// Steps at random times, some of which are lost before they are written. Gateways hold a state of the past, as old as the lead at most.
        #[test]
        fn no_token_outlives_its_key(pauses in proptest::collection::vec((1u64..90_000, any::<bool>()), 1..200)) {
            let (mut state, mut now) = (step(&State::default(), &PLAN, 0, seed(0)).unwrap(), 0);
            let (mut told, mut tokens) = (vec![(0u64, state.clone())], Vec::new());
            for (number, (pause, lost)) in pauses.into_iter().enumerate() {
                now += pause;
                if !lost && let Some(next) = step(&state, &PLAN, now, seed(number as u64 + 1)) {
                    prop_assert!(next.stamp > state.stamp);
                    state = next;
                    told.push((now, state.clone()));
                }
                prop_assert!(state.keys.len() <= MOST_KEYS);
                // A gateway that was told last up to a lead ago issues and checks.
                let (_, held) = told.iter().rev().find(|(at, _)| *at + PLAN.lead / 2 <= now).unwrap_or(&told[0]);
                let Some(key) = held.signer(now) else { continue };
                prop_assert!(state.keys.iter().any(|one| one.kid == key.kid), "what signs is published");
                let grant = Grant { tenant: "acme", client: "00", user: None, plan: None, scopes: &[], tag: "t" };
                let maker = Maker { issuer: "i", audience: "a", life: 9_000_000, now, jti: "j" };
                let made = make(key, Kind::Access, &grant, &maker).unwrap();
                tokens.push((key.kid.clone(), made.ends));
                for (kid, ends) in &tokens {
                    prop_assert!(now >= *ends || state.keys.iter().any(|key| key.kid == *kid), "{kid} at {now}");
                }
            }
        }
    }
}
