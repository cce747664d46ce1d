"""The curriculum's rates and mixtures."""

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat.config import Curriculum
from interlat.training.curriculum import CURRICULA, RATES, draw_rate, mix


def rates(
    curriculum: Curriculum, step: int = 0, steps: int = 100, count: int = 2200
) -> list[float]:
    return [draw_rate(curriculum, seed=1, step=step, steps=steps, index=i) for i in range(count)]


def test_the_setting_offers_these_curricula() -> None:
    assert get_args(Curriculum) == CURRICULA


@pytest.mark.parametrize("curriculum", ["plan_first", "latents_first"])
def test_rates_are_uniform_over_tenths_both_ends_included(curriculum: Curriculum) -> None:
    """Guards against the published code, which never trained pure latents."""
    counts = Counter(rates(curriculum))
    assert sorted(counts) == list(RATES) == [i / 10 for i in range(11)]
    assert all(150 < count < 250 for count in counts.values())


def test_a_rate_is_a_function_of_seed_step_and_sample() -> None:
    assert rates("plan_first", 3) == rates("plan_first", 3)
    assert rates("plan_first", 3) != rates("plan_first", 4)
    other = [draw_rate("plan_first", seed=2, step=3, steps=100, index=i) for i in range(2200)]
    assert other != rates("plan_first", 3)


def test_annealing_ends_with_pure_latents() -> None:
    def pure(step: int) -> float:
        return sum(rate == 0 for rate in rates("anneal", step)) / 2200

    assert pure(0) == pytest.approx(1 / 11, abs=0.03)
    assert pure(50) == pytest.approx(0.5 + 0.5 / 11, abs=0.04)
    assert pure(99) == 1


def test_no_curriculum_is_pure_latents() -> None:
    assert set(rates("none")) == {0.0}


def test_plan_first_puts_the_plans_head_before_the_latents_tail() -> None:
    mixture = mix("plan_first", 0.3, plan_tokens=10, rows=20)
    assert mixture == (slice(0, 3), slice(6, 20), True)


def test_latents_first_puts_the_latents_head_before_the_plans_tail() -> None:
    mixture = mix("latents_first", 0.3, plan_tokens=10, rows=20)
    assert mixture == (slice(7, 10), slice(0, 14), False)


@given(st.sampled_from(CURRICULA), st.integers(0, 40), st.integers(0, 40))
def test_the_ends_are_all_latents_and_all_plan(
    curriculum: Curriculum, plan_tokens: int, rows: int
) -> None:
    def sizes(rate: float) -> tuple[int, int]:
        mixture = mix(curriculum, rate, plan_tokens, rows)
        return (
            mixture.plan.stop - mixture.plan.start,
            mixture.rows.stop - mixture.rows.start,
        )

    assert sizes(0.0) == (0, rows)
    assert sizes(1.0) == (plan_tokens, 0)
    for rate in RATES:
        kept_plan, kept_rows = sizes(rate)
        assert abs(kept_plan - rate * plan_tokens) <= 0.5 + 1e-9
        assert abs(kept_rows - (1 - rate) * rows) <= 0.5 + 1e-9
