"""Columns are positions: what a row holds is what was written there, whoever comes or goes."""

import pytest
import torch
from torch import Tensor

from interlat.models.cache import PositionCache

HEADS, SIZE = 2, 3


def states(*tokens: list[float]) -> Tensor:
    """[B, heads, T, width] that carry their token's number everywhere."""
    values_BT = torch.tensor(tokens)
    return values_BT[:, None, :, None].expand(-1, HEADS, -1, SIZE).clone()


def write(cache: PositionCache, rows: slice, columns: list[list[int]], tokens: Tensor) -> Tensor:
    """One forward pass of a one-layer model; returns the keys [B, C] that it sees."""
    cache.place(rows, torch.tensor(columns), torch.float32)
    keys, values = cache.update(tokens, -tokens, 0)
    assert torch.equal(keys, -values)
    return keys[:, 0, :, 0]


@pytest.fixture
def ragged() -> PositionCache:
    """Row 0 holds 1 2 3, row 1 holds 4 and two columns of padding."""
    cache = PositionCache()
    cache.seat([], 2, 0)
    write(cache, slice(0, 2), [[0, 1, 2], [0, 1, 2]], states([1, 2, 3], [4, 99, 99]))
    return cache


def test_padding_is_overwritten_by_the_rows_next_tokens(ragged: PositionCache) -> None:
    keys_BC = write(ragged, slice(0, 2), [[3, 4], [1, 2]], states([5, 6], [7, 8]))

    assert keys_BC[0, :5].tolist() == [1, 2, 3, 5, 6]
    assert keys_BC[1, :3].tolist() == [4, 7, 8]


def test_the_mask_hides_everything_after_a_tokens_own_position() -> None:
    cache = PositionCache()
    cache.seat([], 2, 0)

    mask_B1TC = cache.place(slice(0, 2), torch.tensor([[3, 4], [1, 2]]), torch.float32)

    seen = [[(row == 0).sum().item() for row in rows] for rows in mask_B1TC[:, 0]]
    assert mask_B1TC.shape == (2, 1, 2, 5)
    assert seen == [[4, 5], [2, 3]]


def test_rows_leave_and_enter_and_the_others_keep_what_they_hold(ragged: PositionCache) -> None:
    ragged.seat([1], 2, length=1)
    write(ragged, slice(1, 3), [[0, 1], [0, 1]], states([10, 11], [20, 21]))

    keys_BC = write(ragged, slice(0, 3), [[1], [2], [2]], states([5], [12], [22]))

    assert keys_BC[:, :3].tolist() == [[4, 5, 0], [10, 11, 12], [20, 21, 22]]


def test_growing_keeps_everything(ragged: PositionCache) -> None:
    keys_BC = write(ragged, slice(0, 2), [[3000], [1]], states([5], [6]))

    assert keys_BC[0, :3].tolist() == [1, 2, 3]
    assert keys_BC[:, 3000].tolist() == [5, 0]
    assert keys_BC[1, :2].tolist() == [4, 6]


def test_a_pass_over_some_rows_leaves_the_others_alone(ragged: PositionCache) -> None:
    write(ragged, slice(1, 2), [[1]], states([7]))

    keys_BC = write(ragged, slice(0, 2), [[3], [2]], states([5], [8]))

    assert keys_BC[0].tolist() == [1, 2, 3, 5]
    assert keys_BC[1, :3].tolist() == [4, 7, 8]
