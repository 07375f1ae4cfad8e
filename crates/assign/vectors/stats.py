#!/usr/bin/env python3
"""Values of another implementation for the analysis of experiments, by scipy and numpy: `python3 stats.py > stats.tsv`.

The likelihood ratio of the sequential test is integrated numerically over its mixture, and the interval's ends are found by a search for the null
hypotheses that are just not refused: neither uses the closed forms of the Rust code.
"""

import numpy as np
from scipy import integrate, optimize, stats


def ratio(difference, variance, tau):
    """The likelihood ratio of differences around zero, mixed over N(0, tau^2), to no difference."""
    sd = np.sqrt(variance)

    def density(theta):
        return stats.norm.pdf(difference, theta, sd) * stats.norm.pdf(theta, 0, tau)

    at = difference * tau**2 / (tau**2 + variance)
    width = 12 * np.sqrt(tau**2 * variance / (tau**2 + variance))
    mixed, _ = integrate.quad(density, at - width, at + width, epsabs=0, epsrel=1e-11, limit=500)
    return mixed / stats.norm.pdf(difference, 0, sd)


def end(difference, variance, tau, alpha):
    """How far from the difference a null hypothesis lies that is just refused."""
    sd = np.sqrt(variance)
    return optimize.brentq(lambda reach: ratio(reach, variance, tau) - 1 / alpha, 0, 30 * sd, xtol=1e-13 * sd, rtol=1e-12)


def numbers(values):
    return "\t".join(repr(float(value)) for value in values)


def main():
    print("# made by stats.py; do not edit")
    print("# look: count, mean and sum of squares of each arm, alpha, effect in standard deviations; difference, p, low, high")
    random = np.random.default_rng(20261130)
    draws = [
        lambda n, shift: random.normal(10 + shift, 3, n),
        lambda n, shift: random.exponential(2 + shift, n),
        lambda n, shift: random.binomial(1, 0.1 + shift / 10, n).astype(float),
        lambda n, shift: random.lognormal(9, 0.6, n) * (1 + shift),
    ]
    for draw in draws:
        for n, m, shift in [(100, 100, 0.0), (500, 700, 0.1), (4000, 3000, 0.05), (20000, 20000, 0.0)]:
            for alpha, effect in [(0.05, 0.1), (0.01, 0.3)]:
                a, b = draw(n, 0.0), draw(m, shift)
                variance = a.var(ddof=1) / n + b.var(ddof=1) / m
                tau = effect * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
                difference = b.mean() - a.mean()
                p = min(1.0, 1 / ratio(difference, variance, tau))
                reach = end(difference, variance, tau, alpha)
                squares = [(x - x.mean()) @ (x - x.mean()) for x in (a, b)]
                row = [n, a.mean(), squares[0], m, b.mean(), squares[1], alpha, effect]
                print("look\t" + numbers(row + [difference, p, difference - reach, difference + reach]))
    print("# ratio: counts, shares; p")
    for counts, shares in [
        ([5120, 4880], [1, 1]),
        ([1000, 1000, 1100], [1, 1, 1]),
        ([90210, 9790], [9, 1]),
        ([7, 3], [1, 1]),
        ([333, 333, 334, 1000], [1, 1, 1, 3]),
    ]:
        expected = np.array(shares) * sum(counts) / sum(shares)
        p = stats.chisquare(counts, expected).pvalue
        print("ratio\t" + ",".join(map(str, counts)) + "\t" + ",".join(map(str, shares)) + "\t" + repr(float(p)))
    print("# rate: count, ones; mean, variance")
    for n, k in [(10, 3), (1000, 1), (12345, 6789), (200, 200)]:
        values = np.array([1.0] * k + [0.0] * (n - k))
        print("rate\t" + numbers([n, k, values.mean(), values.var(ddof=1)]))


if __name__ == "__main__":
    main()
