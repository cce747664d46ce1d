"""The losses of compression say what their names say."""

import math

import pytest
import torch

from interlat.training.distillation import (
    clipped,
    direction,
    entropy,
    tempered_kl,
    weighted_mean,
)

SAMPLE_N = torch.tensor([0] * 21 + [1, 1])


def test_entropy_of_even_and_of_sure_rows() -> None:
    even, sure = torch.zeros(4), torch.tensor([50.0, 0.0, 0.0, 0.0])
    assert entropy(torch.stack([even, sure])).tolist() == pytest.approx([math.log(4), 0], abs=1e-6)


def test_the_temperature_softens_and_its_square_keeps_the_size() -> None:
    p, q = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    soft = (p / 4).log_softmax(-1), (q / 4).log_softmax(-1)
    by_hand = 16 * (soft[0].exp() * (soft[0] - soft[1])).sum()
    assert tempered_kl(p, q, temperature=4.0).item() == pytest.approx(by_hand.item())
    assert tempered_kl(p, p, temperature=4.0).item() == pytest.approx(0, abs=1e-6)


def test_the_largest_weights_of_a_sample_are_clipped_and_no_others() -> None:
    weights = torch.cat([torch.arange(21.0), torch.tensor([0.0, 700.0])])
    limited = clipped(weights, SAMPLE_N, 2)
    assert limited[:20].tolist() == [float(n) for n in range(20)]
    assert limited[20].item() == pytest.approx(torch.arange(1.0, 21.0).quantile(0.95).item())
    assert limited[21:].tolist() == [0.0, 700.0]


def test_a_weighted_mean_is_each_sample_s_own_and_0_without_weights() -> None:
    values = torch.arange(23.0)
    weights = torch.zeros(23)
    weights[[2, 4]] = torch.tensor([1.0, 3.0])
    means = weighted_mean(values, weights, SAMPLE_N, 2)
    assert means.tolist() == pytest.approx([3.5, 0.0], rel=1e-4)


def test_direction_is_0_for_one_way_and_2_for_the_opposite() -> None:
    rows = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    assert direction(rows, torch.tensor([[2.0, 4.0], [-1.0, -2.0]])).tolist() == pytest.approx(
        [0, 2], abs=1e-6
    )
