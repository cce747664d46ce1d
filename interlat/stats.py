"""Intervals and paired tests for the tables: what a difference between conditions is worth.

Everything is at the 95 % level. Success is a list of booleans, one a task; two conditions are
compared on the same tasks in the same order. statsmodels and scipy do what they can do.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, bootstrap
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

RESAMPLES = 9999


class Interval(NamedTuple):
    """A 95 % confidence interval."""

    low: float
    high: float


class Difference(NamedTuple):
    """A difference of two proportions with its 95 % interval."""

    difference: float
    low: float
    high: float


class _Pairs(NamedTuple):
    """The four counts of a paired comparison."""

    both: int
    first_only: int
    second_only: int
    neither: int


def wilson(successes: int, n: int) -> Interval:
    """Wilson's score interval of a proportion; (0, 1) when nothing was tried.

    Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials")
    if n == 0:
        return Interval(0.0, 1.0)
    low, high = proportion_confint(successes, n, method="wilson")
    return Interval(float(low), float(high))


def mcnemar_exact(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Two-sided p-value of McNemar's exact test that two conditions succeed equally often."""
    pairs = _count_pairs(first, second)
    discordant = pairs.first_only + pairs.second_only
    return float(binomtest(pairs.first_only, discordant).pvalue) if discordant else 1.0


def paired_difference(first: Sequence[bool], second: Sequence[bool]) -> Difference:
    """Success of the first condition minus that of the second, with a score-based interval.

    Both Wilson intervals are combined by squaring and adding, with the correlation of the pairs.
    Raises ValueError when there are no tasks.
    Source: Newcombe, Statistics in Medicine 17 (1998) 2635-2650, method 10.
    """
    pairs = _count_pairs(first, second)
    n = sum(pairs)
    if n == 0:
        raise ValueError("a paired difference needs at least one task")
    wins_1, wins_2 = pairs.both + pairs.first_only, pairs.both + pairs.second_only
    share_1, share_2 = wins_1 / n, wins_2 / n
    wilson_1, wilson_2 = wilson(wins_1, n), wilson(wins_2, n)
    phi = _paired_correlation(pairs)

    def reach(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))

    difference = (pairs.first_only - pairs.second_only) / n
    return Difference(
        difference,
        difference - reach(share_1 - wilson_1.low, wilson_2.high - share_2),
        difference + reach(wilson_1.high - share_1, share_2 - wilson_2.low),
    )


def mean_interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Bias-corrected and accelerated bootstrap interval of a mean, the same for the same seed.

    Values that are all equal give that value twice. Raises ValueError when there are none.
    Source: Efron, Journal of the American Statistical Association 82 (1987) 171-185.
    """
    if not len(values):
        raise ValueError("a mean needs at least one value")
    if min(values) == max(values):
        return Interval(float(values[0]), float(values[0]))
    data = (np.asarray(values, dtype=np.float64),)
    found = bootstrap(data, np.mean, n_resamples=RESAMPLES, rng=np.random.default_rng(seed))
    return Interval(*map(float, found.confidence_interval))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for a family of tests by Holm's step-down method, in the order given."""
    if not p_values:
        return []
    return [float(p) for p in multipletests(p_values, method="holm")[1]]


def _count_pairs(first: Sequence[bool], second: Sequence[bool]) -> _Pairs:
    outcomes = [(bool(a), bool(b)) for a, b in zip(first, second, strict=True)]
    return _Pairs(
        outcomes.count((True, True)),
        outcomes.count((True, False)),
        outcomes.count((False, True)),
        outcomes.count((False, False)),
    )


def _paired_correlation(pairs: _Pairs) -> float:
    """The phi coefficient, a positive one shrunk by Newcombe's continuity correction."""
    both, first_only, second_only, neither = pairs
    product: float = both * neither - first_only * second_only
    if product > 0:
        product = max(product - sum(pairs) / 2, 0.0)
    scale = math.sqrt(
        (both + first_only)
        * (second_only + neither)
        * (both + second_only)
        * (first_only + neither)
    )
    return product / scale if scale else 0.0
