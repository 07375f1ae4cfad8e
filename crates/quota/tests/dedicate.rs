//! Who gets a pool of its own: a sustained signal does, a spike does not, and never more than there may be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use holdfast_quota::dedicate::{Notice, Rules, Watch, Why};
use holdfast_types::Mono;
use proptest::prelude::*;

const RULES: Rules = Rules {
    window: Duration::from_secs(10),
    capacity: 100,
    high_permille: 300,
    low_permille: 100,
    windows: 8,
    high_windows: 6,
    ceiling: 2,
};

/// Uses so much of the pool in each window, in thousandths, of one tenant.
fn windows(watch: &mut Watch, from: u64, tenant: u64, permilles: &[u64]) -> Vec<(u64, Notice)> {
    let mut found = Vec::new();
    for (nth, permille) in permilles.iter().enumerate() {
        let at = from + nth as u64 * 10;
        found.extend(watch.used(Mono(at * 1_000_000_000), tenant, *permille).into_iter().map(|n| (at, n)));
    }
    found
}

#[test]
fn a_spike_is_none_and_spikes_far_apart_are_none() {
    let mut watch = Watch::new(RULES);
    assert_eq!(windows(&mut watch, 0, 1, &[0, 100_000, 100_000, 0, 0, 0, 0, 0]), []);
    let every_fourth: Vec<u64> = (0..80).map(|nth| if nth % 4 == 0 { 50_000 } else { 0 }).collect();
    assert_eq!(windows(&mut watch, 80, 1, &every_fourth), []);
}

#[test]
fn a_sustained_signal_promotes_once_and_a_long_silence_demotes() {
    let mut watch = Watch::new(RULES);
    let found = windows(&mut watch, 0, 1, &[400; 20]);
    assert_eq!(found, [(60, Notice::Promote { tenant: 1, why: Why::Sustained })], "at the end of the sixth window");
    assert_eq!(windows(&mut watch, 200, 1, &[150; 30]), [], "between the lines nothing changes");
    let found = windows(&mut watch, 500, 1, &[50; 20]);
    assert_eq!(found, [(580, Notice::Demote { tenant: 1 })], "after eight low windows");
    assert!(!watch.is_dedicated(1));
}

#[test]
fn one_low_window_of_eight_does_not_matter() {
    let mut watch = Watch::new(RULES);
    let found = windows(&mut watch, 0, 1, &[400, 400, 0, 400, 400, 0, 400, 400, 400]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn an_agreement_is_kept_at_once_and_for_as_long_as_it_stands() {
    let mut watch = Watch::new(RULES);
    assert_eq!(watch.agree(7, true), [Notice::Promote { tenant: 7, why: Why::Agreed }]);
    assert_eq!(windows(&mut watch, 0, 7, &[0; 30]), []);
    assert_eq!(watch.agree(7, false), []);
    assert_eq!(windows(&mut watch, 300, 7, &[0; 9]).len(), 1, "back after it has ended, and a long silence");
}

#[test]
fn there_are_no_more_than_the_ceiling_and_who_waits_gets_the_next() {
    let mut watch = Watch::new(RULES);
    for tenant in [1, 2] {
        assert_eq!(watch.agree(tenant, true).len(), 1);
    }
    let found = windows(&mut watch, 0, 3, &[400; 20]);
    assert_eq!(found, [(60, Notice::Full { tenant: 3, why: Why::Sustained })], "told once");
    assert_eq!(watch.dedicated(), 2);
    watch.agree(1, false);
    let found = windows(&mut watch, 200, 3, &[400; 12]);
    let kinds: Vec<Notice> = found.into_iter().map(|(_, notice)| notice).collect();
    assert_eq!(kinds, [Notice::Demote { tenant: 1 }, Notice::Promote { tenant: 3, why: Why::Sustained }]);
}

#[test]
fn a_silence_longer_than_all_windows_is_all_low_windows() {
    let mut watch = Watch::new(RULES);
    windows(&mut watch, 0, 1, &[400; 7]);
    assert!(watch.is_dedicated(1));
    assert_eq!(watch.look(Mono(100_000 * 1_000_000_000)), [Notice::Demote { tenant: 1 }]);
}

proptest! {
    #[test]
    fn never_above_the_ceiling_never_on_few_high_windows_and_never_twice(
        uses in prop::collection::vec((0u64..5, 0u64..1_000, any::<bool>()), 1..400),
        ceiling in 0usize..4,
    ) {
        let mut watch = Watch::new(Rules { ceiling, ..RULES });
        let mut has = [false; 5];
        // By tenant and window: what was used.
        let mut used = vec![[0u64; 5]; 1];
        // Windows begin with the first use.
        let (mut now, mut window, mut first) = (0u64, 0u64, None);
        for (tenant, permille, steps) in uses {
            now += if steps { 5 } else { 0 };
            let found = watch.used(Mono(now * 1_000_000_000), tenant, permille);
            let since = now - *first.get_or_insert(now);
            if since >= (window + 1) * 10 {
                window = since / 10;
                used.push([0; 5]);
            }
            for notice in found {
                match notice {
                    Notice::Promote { tenant, why } => {
                        let ix = usize::try_from(tenant).unwrap();
                        prop_assert!(!has[ix] && why == Why::Sustained);
                        let last = used.len() - 1;
                        let high = used[last.saturating_sub(8)..last].iter().filter(|w| w[ix] >= 300).count();
                        prop_assert!(high >= 6, "{high} of {:?}", &used[last.saturating_sub(8)..last]);
                        has[ix] = true;
                    }
                    Notice::Demote { tenant } => {
                        let ix = usize::try_from(tenant).unwrap();
                        prop_assert!(has[ix]);
                        has[ix] = false;
                    }
                    Notice::Full { .. } => prop_assert_eq!(watch.dedicated(), ceiling),
                }
            }
            let last = used.len() - 1;
            used[last][usize::try_from(tenant).unwrap()] += permille;
            prop_assert!(watch.dedicated() <= ceiling);
            prop_assert_eq!(has.iter().filter(|h| **h).count(), watch.dedicated());
        }
    }
}
