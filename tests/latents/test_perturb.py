"""Each alteration does what its docstring claims, for messages of any shape."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interlat.latents.perturb import (
    evenly_spaced_k,
    first_k,
    importance,
    mean_pooled_k,
    noised,
    prune,
    truncate_last_percent,
    white_noise,
)

DTYPES = [torch.float16, torch.float32, torch.bfloat16]
settings.register_profile("short", deadline=None, max_examples=50)
settings.load_profile("short")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def messages(draw: st.DrawFn, dtypes: list[torch.dtype] = DTYPES) -> Tensor:
    """Random messages of 1 to 24 rows, 1 to 12 wide, of several scales."""
    shape = (draw(st.integers(1, 24)), draw(st.integers(1, 12)))
    scale = draw(st.sampled_from([0.1, 1.0, 10.0]))
    rows_LD = torch.randn(shape, generator=seeded(draw(st.integers(0, 10**6)))) * scale
    return rows_LD.to(draw(st.sampled_from(dtypes)))


@given(messages(), st.integers(0, 99))
def test_white_noise_keeps_nothing_but_the_shape(hidden_LD: Tensor, seed: int):
    before = hidden_LD.clone()
    noise_LD = white_noise(hidden_LD, generator=seeded(seed))
    assert (noise_LD.shape, noise_LD.dtype) == (hidden_LD.shape, hidden_LD.dtype)
    assert torch.equal(noise_LD, white_noise(-3 * hidden_LD, generator=seeded(seed)))
    assert torch.equal(hidden_LD, before)


def test_white_noise_is_standard_normal():
    noise_LD = white_noise(torch.full((2000, 100), 7.0), generator=seeded(0))
    assert noise_LD.mean().abs() < 0.01
    assert (noise_LD.var() - 1).abs() < 0.02
    covariance_DD = torch.cov(noise_LD.T)
    assert (covariance_DD - torch.eye(100)).abs().max() < 0.15


@given(messages([torch.float32]), st.floats(0, 4), st.integers(0, 99))
def test_noised_adds_the_noise_that_white_noise_draws(hidden_LD: Tensor, std: float, seed: int):
    added_LD = noised(hidden_LD, std=std, generator=seeded(seed)) - hidden_LD
    expected_LD = std * white_noise(hidden_LD, generator=seeded(seed))
    torch.testing.assert_close(added_LD, expected_LD, rtol=1e-4, atol=1e-4)


@given(messages())
def test_no_noise_gives_an_equal_message(hidden_LD: Tensor):
    assert torch.equal(noised(hidden_LD, std=0.0, generator=seeded(0)), hidden_LD)


@given(messages(), st.floats(0, 100), st.floats(0, 100))
def test_truncation_keeps_the_beginning(hidden_LD: Tensor, percent: float, other: float):
    kept_LD = truncate_last_percent(hidden_LD, percent)
    assert torch.equal(kept_LD, hidden_LD[: len(kept_LD)])
    assert abs(len(kept_LD) - len(hidden_LD) * (100 - percent) / 100) < 1
    if other >= percent:
        assert len(truncate_last_percent(hidden_LD, other)) <= len(kept_LD)


@given(st.integers(1, 1000), st.integers(0, 100))
def test_whole_percents_keep_exactly_the_floor(length: int, percent: int):
    kept = truncate_last_percent(torch.zeros(length, 1), percent)
    assert len(kept) == length * (100 - percent) // 100


@given(messages(), st.integers(0, 30))
def test_first_k_keeps_the_first_k(hidden_LD: Tensor, k: int):
    assert torch.equal(first_k(hidden_LD, k), hidden_LD[: min(k, len(hidden_LD))])


@given(messages([torch.float32]), st.floats(0, 1), st.integers(0, 10))
def test_pruning_keeps_the_most_important_rows_in_order(
    hidden_LD: Tensor, ratio: float, min_keep: int
):
    plan = "put the mug on desk 1 ."
    kept_LD = prune(hidden_LD, plan, keep_ratio=ratio, min_keep=min_keep)
    length = len(hidden_LD)
    wanted = math.ceil(round(length * ratio, 9))
    assert len(kept_LD) == min(length, max(min_keep, wanted))
    positions = [int((hidden_LD == row).all(dim=1).nonzero()[0]) for row in kept_LD]
    score_L = importance(hidden_LD, plan)
    dropped = sorted(set(range(length)) - set(positions))
    if hidden_LD.unique(dim=0).shape[0] == length:
        assert positions == sorted(positions)
        if positions and dropped:
            assert score_L[positions].min() >= score_L[dropped].max()


@given(messages([torch.float32]), st.floats(-2, 2))
def test_a_threshold_keeps_every_row_that_reaches_it(hidden_LD: Tensor, threshold: float):
    reaching = int((importance(hidden_LD, "find mug 1") >= threshold).sum())
    kept_LD = prune(hidden_LD, "find mug 1", threshold=threshold, min_keep=1)
    assert len(kept_LD) == max(1, reaching)


@given(messages([torch.float32]))
def test_keeping_all_is_the_message_itself(hidden_LD: Tensor):
    assert torch.equal(prune(hidden_LD, "plan", keep_ratio=1.0), hidden_LD)


def test_importance_by_hand():
    """Rows (3, 0), (0, 1): norms 3 and 1, leverage of either 1/2, words 1 and 0.3."""
    score_L = importance(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), "find the")
    torch.testing.assert_close(score_L, torch.tensor([0.6 + 0.1, -0.6 + 0.03]), atol=1e-5, rtol=0)


@given(messages([torch.float32]))
def test_importance_is_finite_for_every_message(hidden_LD: Tensor):
    assert torch.isfinite(importance(hidden_LD, "")).all()


def test_arguments_out_of_range_are_refused():
    hidden_LD = torch.zeros(3, 2)
    for call in (
        lambda: noised(hidden_LD, std=-1, generator=seeded(0)),
        lambda: first_k(hidden_LD, -1),
        lambda: truncate_last_percent(hidden_LD, 101),
        lambda: prune(hidden_LD, ""),
        lambda: prune(hidden_LD, "", keep_ratio=0.5, threshold=0.0),
        lambda: prune(hidden_LD, "", keep_ratio=1.5),
    ):
        with pytest.raises(ValueError, match=r"must|exactly"):
            call()


@given(length=st.integers(1, 40), k=st.integers(1, 40))
def test_spaced_and_pooled_rows_are_k_and_stand_for_parts_of_like_length(length, k):
    hidden_LD = torch.arange(float(length))[:, None].repeat(1, 2)
    spaced_KD, pooled_KD = evenly_spaced_k(hidden_LD, k), mean_pooled_k(hidden_LD, k)
    assert len(spaced_KD) == len(pooled_KD) == min(k, length)
    assert (spaced_KD.diff(dim=0) >= 1).all()
    assert ((spaced_KD - pooled_KD).abs() <= 1).all()
    if length % k == 0:
        parts = hidden_LD.unflatten(0, (k, length // k))
        torch.testing.assert_close(pooled_KD, parts.mean(dim=1))


@pytest.mark.parametrize("shorten", [first_k, evenly_spaced_k, mean_pooled_k])
def test_no_fewer_than_no_rows_are_kept(shorten):
    with pytest.raises(ValueError, match="k must not be negative"):
        shorten(torch.zeros(3, 2), -1)
    assert shorten(torch.zeros(3, 2), 9).shape == (3, 2)
