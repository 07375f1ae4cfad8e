//! Many histories, each from a seed, some of them at once.

use std::future::Future;
use std::iter::Sum;

const AT_ONCE: u64 = 8;

/// The next number of a sequence (SplitMix64).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What all of them come to.
pub fn all<N, F>(seeds: u64, one: impl Fn(u64) -> F + Sync) -> N
where
    N: Sum + Send,
    F: Future<Output = N>,
{
    let lane = |lane: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        (0..seeds).filter(|seed| seed % AT_ONCE == lane).map(|seed| runtime.block_on(one(seed))).sum::<N>()
    };
    std::thread::scope(|scope| {
        let lane = &lane;
        let lanes: Vec<_> = (0..AT_ONCE).map(|number| scope.spawn(move || lane(number))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).sum()
    })
}
