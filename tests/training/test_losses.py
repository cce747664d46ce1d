"""Each loss against a slow, literal computation in float64."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from interlat.training.losses import (
    ALIGNMENT_SCALE,
    LN2,
    SEPARATION_SCALE,
    alignment,
    compare,
    cross_entropy,
    js_divergence,
    kl_divergence,
    mean_by_sample,
    separation,
    weight_share,
)

ROWS, VOCABULARY = 7, 5
SAMPLE_N = torch.tensor([0, 0, 0, 1, 1, 3, 3])
SAMPLES = 4


def logits(seed: int, scale: float = 3.0) -> Tensor:
    return torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * scale


def probabilities(logits_NV: Tensor) -> np.ndarray:
    rows = [[math.exp(v) for v in row] for row in logits_NV.double().tolist()]
    return np.array([[v / sum(row) for v in row] for row in rows])


def literal_kl(p: np.ndarray, q: np.ndarray) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def literal_js(p: np.ndarray, q: np.ndarray) -> float:
    m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return (literal_kl(p, m) + literal_kl(q, m)) / 2


def literal_swapped(p: np.ndarray, q: np.ndarray) -> float:
    m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return (literal_kl(m, p) + literal_kl(m, q)) / 2


def literal_cosine(a: np.ndarray, b: np.ndarray) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def aligned(latent_NV: Tensor, plan_NV: Tensor, form: str = "clean") -> Tensor:
    compared = compare(latent_NV, plan_NV, form=form)
    return alignment(compared, SAMPLE_N, SAMPLES, kl_weight=0.7, cosine_weight=0.3)


def by_sample(values: list[float]) -> list[float]:
    means = []
    for sample in range(SAMPLES):
        own = [v for v, s in zip(values, SAMPLE_N.tolist(), strict=True) if s == sample]
        means.append(sum(own) / len(own) if own else 0.0)
    return means


def test_cross_entropy_is_the_labels_negative_log_probability() -> None:
    labels_N = torch.tensor([0, 1, 2, 3, 4, 0, 1])
    p_NV = probabilities(logits(1))
    expected = [-math.log(p_NV[n, label]) for n, label in enumerate(labels_N)]
    assert cross_entropy(logits(1), labels_N).tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("function", "literal"),
    [
        (js_divergence, literal_js),
        (lambda p, q: js_divergence(p, q, form="published"), literal_swapped),
        (kl_divergence, literal_kl),
    ],
    ids=["js", "published js", "kl"],
)
def test_divergences_equal_their_definitions(
    function: Callable[[Tensor, Tensor], Tensor],
    literal: Callable[[np.ndarray, np.ndarray], float],
) -> None:
    p, q = logits(1), logits(2)
    expected = [literal(*rows) for rows in zip(probabilities(p), probabilities(q), strict=True)]
    assert function(p, q).tolist() == pytest.approx(expected, rel=1e-4)


@given(st.lists(st.floats(-200, 200, width=32), min_size=6, max_size=6))
def test_js_lies_between_0_and_ln_2_whatever_the_logits(values: list[float]) -> None:
    """Guards against the published code, whose value reached 8.5."""
    p_NV, q_NV = torch.tensor(values).reshape(2, 1, 3)
    for dtype in (torch.float32, torch.bfloat16):
        js = js_divergence(p_NV.to(dtype), q_NV.to(dtype)).item()
        assert 0 <= js <= torch.tensor(LN2).item()
        assert js == pytest.approx(js_divergence(q_NV.to(dtype), p_NV.to(dtype)).item(), abs=1e-6)


def test_js_reaches_both_of_its_bounds() -> None:
    p_NV, q_NV = torch.tensor([[100.0, 0.0]]), torch.tensor([[0.0, 100.0]])
    assert js_divergence(p_NV, p_NV).item() == 0
    assert js_divergence(p_NV, q_NV).item() == pytest.approx(LN2)
    assert js_divergence(p_NV, q_NV, form="published").item() > 40


def test_separation_is_minus_js_or_what_a_margin_leaves() -> None:
    js_S = torch.tensor([0.0, 0.1, 0.5])
    assert separation(js_S).tolist() == pytest.approx([0.0, -0.1, -0.5])
    assert separation(js_S, margin=0.3).tolist() == pytest.approx([0.3, 0.2, 0.0])


def test_a_fixed_weight_stays_and_an_annealed_one_grows_to_the_papers_bounds() -> None:
    losses_S = torch.tensor([0.0, 5.0])
    for scale in (SEPARATION_SCALE, ALIGNMENT_SCALE):
        assert weight_share("fixed", scale, losses_S, progress=0.0).tolist() == [1.0, 1.0]
        assert weight_share("anneal", scale, losses_S, progress=1.0).tolist() == [1.0, 1.0]
    begun = weight_share("anneal", SEPARATION_SCALE, losses_S, progress=0.0)
    assert begun.tolist() == pytest.approx([0.1, 0.1])
    halfway = weight_share("anneal", ALIGNMENT_SCALE, losses_S, progress=0.5)
    assert (0.2 * halfway).tolist() == pytest.approx([0.15, 0.15])


def test_adaptive_weights_are_the_published_ones_without_their_gradient() -> None:
    """Guards against the published code, whose weights carry gradient."""
    losses_S = torch.tensor([-0.1, 0.0, 0.345, 0.69, 2.0], requires_grad=True)
    separation_S = weight_share("adaptive", SEPARATION_SCALE, losses_S, progress=0.3)
    assert not separation_S.requires_grad
    expected = [0.01 + 0.49 * min(max(x / 0.69, 0), 1) for x in losses_S.tolist()]
    assert (0.5 * separation_S).tolist() == pytest.approx(expected, rel=1e-6)
    alignment_S = weight_share("adaptive", ALIGNMENT_SCALE, losses_S * 2, progress=0.3)
    expected = [0.01 + 0.04 * min(max(x / 2, 0), 1) for x in losses_S.tolist()]
    assert (0.05 * alignment_S).tolist() == pytest.approx(expected, rel=1e-6)


def test_alignment_equals_its_definition() -> None:
    latent, plan = logits(3), logits(4)
    p, q = probabilities(latent), probabilities(plan)
    kl = by_sample([literal_kl(a, b) for a, b in zip(p, q, strict=True)])
    cosine = by_sample(
        [
            1 - literal_cosine(a, b)
            for a, b in zip(latent.double().numpy(), plan.double().numpy(), strict=True)
        ]
    )
    expected = [0.7 * k + 0.3 * c for k, c in zip(kl, cosine, strict=True)]
    found = aligned(latent, plan)
    assert found.tolist() == pytest.approx(expected, rel=1e-4)


def test_published_alignment_swaps_the_kl_and_flattens_the_cosine() -> None:
    latent, plan = logits(3), logits(4)
    p, q = probabilities(latent), probabilities(plan)
    kl = by_sample([literal_kl(b, a) for a, b in zip(p, q, strict=True)])
    found = aligned(latent, plan, "published")
    for sample in (0, 1, 3):
        own = (sample == SAMPLE_N).numpy()
        cosine = literal_cosine(p[own].ravel(), q[own].ravel())
        assert found[sample].item() == pytest.approx(
            0.7 * kl[sample] + 0.3 * (1 - cosine), rel=1e-4
        )


def test_alignment_is_zero_for_equal_branches() -> None:
    found = aligned(logits(1), logits(1))
    assert found.tolist() == pytest.approx([0.0] * SAMPLES, abs=1e-6)


def test_means_are_by_sample_and_zero_without_rows() -> None:
    found = mean_by_sample(torch.arange(7.0), SAMPLE_N, SAMPLES)
    assert found.tolist() == [1.0, 3.5, 0.0, 5.5]


def test_half_precision_logits_are_computed_in_float32() -> None:
    p, q = logits(1).bfloat16(), logits(2).bfloat16()
    assert js_divergence(p, q).dtype == torch.float32
    assert torch.equal(js_divergence(p, q), js_divergence(p.float(), q.float()))
    assert torch.equal(kl_divergence(p, q), kl_divergence(p.float(), q.float()))


@pytest.mark.parametrize("form", ["clean", "published"])
def test_gradients_are_those_of_the_formulas(form: str) -> None:
    def total(latent_NV: Tensor, plan_NV: Tensor) -> Tensor:
        js_N = js_divergence(latent_NV, plan_NV, form=form)
        js_S = mean_by_sample(js_N, SAMPLE_N, SAMPLES)
        aligned_S = aligned(latent_NV, plan_NV, form)
        labels_N = torch.arange(ROWS) % VOCABULARY
        apart_S = separation(js_S, margin=0.5)
        return cross_entropy(latent_NV, labels_N).sum() + (aligned_S + apart_S).sum()

    inputs = tuple(logits(seed, 1.0).double().requires_grad_() for seed in (5, 6))
    assert torch.autograd.gradcheck(total, inputs)
