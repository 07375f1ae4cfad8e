//! Seeded chance: the generator SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), and times between the arrivals of
//! a Poisson process without floating point (von Neumann, "Various techniques used in connection with random digits", 1951).

use std::ops::Range;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // Neighbouring seeds would be the same stream, shifted by a step, without this.
        let mut first = Self { state: seed };
        let state = first.draw();
        Self { state }
    }

    /// The next number, any of 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero; its bias is below 2^-32 for what is counted here.
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.draw()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// A number of `range`, which is not empty.
    pub fn within(&mut self, range: &Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start).max(1))
    }

    /// Whether something happens that happens once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times.max(1)) == 0
    }

    /// A time from an exponential distribution with this mean.
    ///
    /// Falling runs of random numbers: one of odd length ends it with its first number as the fraction, one of even length adds a mean.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0u64;
        loop {
            let first = self.draw();
            let (mut last, mut length) = (first, 1u32);
            loop {
                let next = self.draw();
                if next > last {
                    break;
                }
                last = next;
                length += 1;
            }
            if length % 2 == 1 {
                let fraction = (u128::from(mean) * u128::from(first)) >> 64;
                return whole.saturating_add(u64::try_from(fraction).unwrap_or(u64::MAX));
            }
            whole = whole.saturating_add(mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The first numbers of SplitMix64 from the seed 1234567, as other implementations list them.
        let mut chance = Chance { state: 1_234_567 };
        assert_eq!([chance.draw(), chance.draw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn times_are_exponential() {
        let mut chance = Chance::new(1);
        let times: Vec<u64> = (0..200_000).map(|_| chance.exponential(1_000_000)).collect();
        let mean = times.iter().sum::<u64>() / 200_000;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        // 1/e of them are longer than the mean, 1/e^3 longer than three.
        let longer = |than: u64| times.iter().filter(|t| **t > than).count();
        assert!((72_800..74_400).contains(&longer(1_000_000)), "{}", longer(1_000_000));
        assert!((9_600..10_300).contains(&longer(3_000_000)), "{}", longer(3_000_000));
    }
}
