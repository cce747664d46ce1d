"""Published examples, brute-force coverage and limiting cases of the intervals and tests."""

import math
from itertools import product

import pytest

from interlat.stats import (
    Difference,
    Interval,
    holm,
    mcnemar_exact,
    mean_interval,
    paired_difference,
    wilson,
)


def pairs(both: int, first_only: int, second_only: int, neither: int) -> tuple[list[bool], ...]:
    first = [True] * (both + first_only) + [False] * (second_only + neither)
    second = [True] * both + [False] * first_only + [True] * second_only + [False] * neither
    return first, second


def test_wilson_interval_of_15_in_20() -> None:
    assert wilson(15, 20) == pytest.approx((0.5313, 0.8881), abs=1e-4)


@pytest.mark.parametrize("n", [1, 7, 400])
def test_wilson_stays_inside_0_and_1_and_never_has_no_width(n: int) -> None:
    low, high = wilson(0, n)
    assert low == pytest.approx(0)
    assert 0 < high < 1
    assert wilson(n, n) == pytest.approx((1 - high, 1))


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson(0, 0) == Interval(0, 1)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="5 successes in 4 trials"):
        wilson(5, 4)


def test_mcnemar_counts_only_pairs_that_disagree() -> None:
    expected = 2 * sum(math.comb(8, k) for k in (0, 1)) / 2**8
    assert mcnemar_exact(*pairs(1, 1, 7, 12)) == pytest.approx(expected)
    assert mcnemar_exact(*pairs(100, 1, 7, 300)) == pytest.approx(expected)
    assert mcnemar_exact(*pairs(5, 0, 0, 5)) == 1


def test_paired_difference_of_the_airway_example() -> None:
    """Bentur et al. 2009 as worked by Fagerland, Lydersen and Laake (2014): -0.507 to -0.026."""
    found = paired_difference(*pairs(1, 1, 7, 12))
    assert found == pytest.approx((-6 / 21, -0.507, -0.026), abs=5e-4)


def test_paired_difference_turns_its_sign_with_the_order() -> None:
    first, second = pairs(30, 12, 3, 5)
    difference, low, high = paired_difference(first, second)
    assert paired_difference(second, first) == pytest.approx((-difference, -high, -low))


def test_paired_difference_without_disagreement_still_has_a_width() -> None:
    difference, low, high = paired_difference(*pairs(10, 0, 0, 10))
    assert difference == 0
    assert -0.35 < low < 0 < high < 0.35


def test_paired_difference_covers_the_truth_at_least_94_times_in_100() -> None:
    """Exact coverage over all tables of 16 pairs, for correlated and for independent conditions."""
    n = 16
    for shares in [(0.5, 0.3, 0.05, 0.15), (0.1, 0.4, 0.1, 0.4), (0.2, 0.05, 0.05, 0.7)]:
        truth, covered = shares[1] - shares[2], 0.0
        for a, b, c in product(range(n + 1), repeat=3):
            if a + b + c <= n:
                found: Difference = paired_difference(*pairs(a, b, c, n - a - b - c))
                counts = (a, b, c, n - a - b - c)
                ways = math.factorial(n) / math.prod(map(math.factorial, counts))
                chance = ways * math.prod(p**k for p, k in zip(shares, counts, strict=True))
                covered += chance * (found.low <= truth <= found.high)
        assert 0.94 < covered < 1


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        mcnemar_exact([True], [True, False])


def test_bootstrap_interval_holds_the_mean_and_repeats_itself() -> None:
    steps = [4, 5, 5, 6, 7, 7, 8, 20, 20, 20]
    low, high = mean_interval(steps)
    assert 5 < low < sum(steps) / len(steps) < high < 16
    assert mean_interval(steps) == (low, high)


def test_bootstrap_of_equal_values_has_no_width() -> None:
    assert mean_interval([20, 20, 20]) == (20, 20)
    assert mean_interval([7.5]) == (7.5, 7.5)


def test_holm_is_monotone_in_step_with_the_smallest_first() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.001]) == pytest.approx([0.9, 0.002])
    assert holm([]) == []
