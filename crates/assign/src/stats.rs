//! What the arms have shown: a sequential test that may be looked at at any time, and a check of the sample's ratio.
//!
//! The test is a mixture sequential probability ratio test for the difference of two means (Robbins 1970; Johari, Koomen, Pekelis and Walsh, "Always Valid
//! Inference", Operations Research 70(3), 2022): under no difference its p-value falls below alpha with probability alpha at most, over all looks together. Its inversion
//! is a confidence sequence. Variances are estimated, so it holds from some hundred values of each arm on, and says nothing before [`LEAST`].
//!
//! Numbers are floats here: nothing that routes depends on them.

/// The least values of each arm of which anything is said.
pub const LEAST: u64 = 100;

/// What is kept of an arm's values: their number, sum and sum of squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

impl Sums {
    /// Takes a value (Welford, 1962). What is no finite number is passed over: false.
    pub fn add(&mut self, value: f64) -> bool {
        if !value.is_finite() {
            return false;
        }
        self.count += 1;
        let from_mean = value - self.mean;
        self.mean += from_mean / self.count as f64;
        self.squares += from_mean * (value - self.mean);
        true
    }

    /// Both together (Chan, Golub and LeVeque, 1979).
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let count = self.count + other.count;
        if count == 0 {
            return Self::default();
        }
        let (a, b, all) = (self.count as f64, other.count as f64, count as f64);
        let apart = other.mean - self.mean;
        Self {
            count,
            mean: self.mean + apart * b / all,
            squares: self.squares + other.squares + apart * apart * a * b / all,
        }
    }

    /// Those of a rate: of `count` values `ones` are one and the others zero.
    #[must_use]
    pub fn rate(count: u64, ones: u64) -> Self {
        if count == 0 {
            return Self::default();
        }
        let (n, k) = (count as f64, ones.min(count) as f64);
        Self { count, mean: k / n, squares: k * (n - k) / n }
    }

    /// From its three numbers. None: they are not those of any values.
    #[must_use]
    pub fn of(count: u64, mean: f64, squares: f64) -> Option<Self> {
        let is_good =
            mean.is_finite() && squares.is_finite() && squares >= 0.0 && (count > 0 || (mean == 0.0 && squares == 0.0));
        is_good.then_some(Self { count, mean, squares })
    }

    /// The sum of squared distances from the mean.
    #[must_use]
    pub const fn squares(&self) -> f64 {
        self.squares
    }

    /// The variance of the values. None: there are fewer than two.
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        (self.count >= 2).then(|| (self.squares / (self.count - 1) as f64).max(0.0))
    }
}

/// What is known of a difference at one look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// The second arm's mean less the first's.
    pub difference: f64,
    /// The p-value of this look alone; that of a test is the least so far.
    pub p: f64,
    /// The confidence interval of this look; that of a test is what all so far have in common.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// A test that goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sequential {
    alpha: f64,
    /// The variance of the differences that are expected: it decides how soon what is found, not whether the bound holds.
    tau2: f64,
    /// It is in variances of one value.
    is_standard: bool,
    p: f64,
    low: f64,
    high: f64,
}

impl Sequential {
    /// `alpha`: the probability of a false alarm over all looks, above 0 and below 1. `effect`: how large a difference is looked for. None: they are not so.
    #[must_use]
    pub fn new(alpha: f64, effect: f64) -> Option<Self> {
        let is_good = alpha > 0.0 && alpha < 1.0 && effect.is_finite() && effect != 0.0;
        is_good.then_some(Self {
            alpha,
            tau2: effect * effect,
            is_standard: false,
            p: 1.0,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        })
    }

    /// The same, with the effect in standard deviations of a value: the scale is taken from the values, like their variance (Waudby-Smith, Arbour, Sinha, Kennedy
    /// and Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", Annals of Statistics 52(6), 2024). None: they are not so.
    #[must_use]
    pub fn standard(alpha: f64, effect: f64) -> Option<Self> {
        Self::new(alpha, effect).map(|test| Self { is_standard: true, ..test })
    }

    /// Looks. None: there is too little to say anything, or the values do not vary.
    pub fn look(&mut self, first: &Sums, second: &Sums) -> Option<Look> {
        if first.count < LEAST || second.count < LEAST {
            return None;
        }
        let (one, other) = (first.variance()?, second.variance()?);
        let variance = one / first.count as f64 + other / second.count as f64;
        if variance <= 0.0 || !variance.is_finite() {
            return None;
        }
        let difference = second.mean - first.mean;
        let tau2 = if self.is_standard { self.tau2 * (one + other) / 2.0 } else { self.tau2 };
        let all = variance + tau2;
        // The logarithm of the likelihood ratio, mixed over normal differences around zero.
        let ratio = 0.5 * (variance / all).ln() + tau2 * difference * difference / (2.0 * variance * all);
        let p = (-ratio).exp().min(1.0);
        let reach = (variance * all / tau2 * ((all / variance).ln() - 2.0 * self.alpha.ln())).sqrt();
        let look = Look { difference, p, low: difference - reach, high: difference + reach };
        self.p = self.p.min(p);
        self.low = self.low.max(look.low);
        self.high = self.high.min(look.high);
        Some(look)
    }

    /// The p-value over all looks.
    #[must_use]
    pub const fn p(&self) -> f64 {
        self.p
    }

    /// The confidence interval over all looks. None: the looks have nothing in common, as happens with a probability of alpha at most if nothing else changes.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        (self.low <= self.high).then_some((self.low, self.high))
    }

    /// Whether a difference has been found.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.p < self.alpha
    }
}

/// The p-value of the arms' counts, if `shares` are what they should be in proportion (Pearson's chi-squared). None: there are fewer than two arms with a share, nobody, or
/// somebody in an arm without a share, which no chance explains.
#[must_use]
pub fn ratio_p(counts: &[u64], shares: &[u64]) -> Option<f64> {
    if counts.len() != shares.len() || counts.iter().zip(shares).any(|(count, share)| *share == 0 && *count > 0) {
        return None;
    }
    let (all, whole) = (counts.iter().sum::<u64>() as f64, shares.iter().sum::<u64>() as f64);
    let arms = shares.iter().filter(|share| **share > 0).count();
    if arms < 2 || all <= 0.0 {
        return None;
    }
    let terms = counts.iter().zip(shares).filter(|(_, share)| **share > 0).map(|(count, share)| {
        let expected = all * *share as f64 / whole;
        let apart = *count as f64 - expected;
        apart * apart / expected
    });
    Some(chi2_sf(terms.sum(), arms - 1))
}

/// The probability that a chi-squared variable with so many degrees of freedom is above `x`.
#[must_use]
pub fn chi2_sf(x: f64, degrees: usize) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    gamma_q(degrees as f64 / 2.0, x / 2.0)
}

/// The upper regularised incomplete gamma function: by its series below `a + 1`, by Lentz's continued fraction above (Numerical Recipes, 6.2).
fn gamma_q(a: f64, x: f64) -> f64 {
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        for _ in 0..10_000 {
            n += 1.0;
            term *= x / n;
            sum += term;
            if term < sum * 1e-16 {
                break;
            }
        }
        return (1.0 - front * sum).clamp(0.0, 1.0);
    }
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..10_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        let or_tiny = |value: f64| if value.abs() < TINY { TINY } else { value };
        d = 1.0 / or_tiny(an * d + b);
        c = or_tiny(b + an / c);
        let step = d * c;
        h *= step;
        if (step - 1.0).abs() < 1e-16 {
            break;
        }
    }
    (front * h).clamp(0.0, 1.0)
}

/// Lanczos' approximation with g = 7, nine terms (Godfrey).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let mut sum = TERMS[0];
    for (at, term) in TERMS.iter().enumerate().skip(1) {
        sum += term / (x + at as f64);
    }
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}
