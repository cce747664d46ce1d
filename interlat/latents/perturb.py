"""Pure functions H -> H': the alterations of a message that tell what an actor reads in it.

Every function takes hidden_LD [L, D] of any float dtype, leaves it untouched, computes in float32
and returns the input's dtype. Chance comes from the generator alone (on the CPU, so that a seed
means the same everywhere). Definitions: arXiv 2511.09149, section 4.1, and its appendix on pruning.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

STOP_WORDS = frozenset(
    {"a", "an", "and", "are", "at", "by", "for", "from", "in", "into", "is", "it", "of", "on"}
    | {"or", "the", "then", "to", "with"}
)


def white_noise(hidden_LD: Tensor, *, generator: torch.Generator) -> Tensor:
    """Noise in the message's place: i.i.d. N(0, 1), same shape, nothing of the message kept."""
    return _normal(hidden_LD, generator).to(hidden_LD.dtype)


def noised(hidden_LD: Tensor, *, std: float, generator: torch.Generator) -> Tensor:
    """The message plus i.i.d. N(0, std^2) on every entry; std is absolute, 0 gives an equal
    message.

    Raises ValueError when std is negative.
    """
    if std < 0:
        raise ValueError(f"std must not be negative, not {std}")
    return (hidden_LD.float() + std * _normal(hidden_LD, generator)).to(hidden_LD.dtype)


def first_k(hidden_LD: Tensor, k: int) -> Tensor:
    """The first k rows (all of them when there are fewer); ValueError when k < 0."""
    if k < 0:
        raise ValueError(f"k must not be negative, not {k}")
    return hidden_LD[:k]


def evenly_spaced_k(hidden_LD: Tensor, k: int) -> Tensor:
    """k rows at even distances (all of them when there are fewer); ValueError when k < 0.

    The middle row of each of k parts of like length.
    """
    length = hidden_LD.shape[0]
    if k < 0:
        raise ValueError(f"k must not be negative, not {k}")
    if length <= k:
        return hidden_LD
    return hidden_LD[[(2 * i + 1) * length // (2 * k) for i in range(k)]]


def mean_pooled_k(hidden_LD: Tensor, k: int) -> Tensor:
    """The mean rows of k parts of like length (all rows when there are fewer).

    Raises ValueError when k < 0.
    """
    if k < 0:
        raise ValueError(f"k must not be negative, not {k}")
    length = hidden_LD.shape[0]
    if length <= k or not k:
        return hidden_LD[:k]
    bounds = [i * length // k for i in range(k + 1)]
    means = [hidden_LD[start:stop].float().mean(dim=0) for start, stop in pairwise(bounds)]
    return torch.stack(means).to(hidden_LD.dtype)


def truncate_last_percent(hidden_LD: Tensor, percent: float) -> Tensor:
    """Without the last ``percent`` % of the rows: floor(L * (100 - percent) / 100) rows stay.

    Raises ValueError when percent is not within 0..100.
    """
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must be within 0..100, not {percent}")
    # Rounded first: 10 * (100 - 70.1) / 100 and its like must not lose a row to binary fractions.
    return hidden_LD[: int(round(hidden_LD.shape[0] * (100 - percent) / 100, 9))]


def prune(
    hidden_LD: Tensor,
    plan: str,
    *,
    keep_ratio: float | None = None,
    threshold: float | None = None,
    min_keep: int = 8,
    rank: int = 16,
) -> Tensor:
    """The most important rows, in their order.

    keep_ratio: keep the ceil(L * keep_ratio) rows of highest importance; threshold: keep those
    whose importance reaches it. At least min_keep rows stay (all of them when there are fewer).
    Raises ValueError unless exactly one of keep_ratio (within 0..1) and threshold is given.
    """
    if (keep_ratio is None) == (threshold is None):
        raise ValueError("give exactly one of keep_ratio and threshold")
    if keep_ratio is not None and not 0 <= keep_ratio <= 1:
        raise ValueError(f"keep_ratio must be within 0..1, not {keep_ratio}")
    length = hidden_LD.shape[0]
    if length <= min_keep:
        return hidden_LD
    score_L = importance(hidden_LD, plan, rank=rank)
    if threshold is not None:
        wanted = int((score_L >= threshold).sum())
    else:
        assert keep_ratio is not None
        wanted = -int(-round(length * keep_ratio, 9) // 1)
    kept = min(length, max(min_keep, wanted))
    rows = torch.argsort(score_L, descending=True, stable=True)[:kept].sort().values
    return hidden_LD[rows]


def importance(hidden_LD: Tensor, plan: str, *, rank: int = 16) -> Tensor:
    """Importance of each row, [L] float32: 0.6 z(norm) + 0.3 z(leverage) + 0.1 word weight.

    Leverage is the row's share of the leading min(rank, L, D) left singular vectors of the
    uncentred message. The word weights of the plan (word 1, other 0.7, stop word 0.3) are laid on
    the rows by index and padded with 1, as the published definition does: words and tokens are not
    aligned.
    """
    hidden = hidden_LD.float()
    left_LR = torch.linalg.svd(hidden, full_matrices=False).U
    left_LR = left_LR[:, : min(rank, *hidden.shape)]
    leverage_L = left_LR.square().mean(dim=1)
    return (
        0.6 * _z(hidden.norm(dim=1)) + 0.3 * _z(leverage_L) + 0.1 * _word_weights(plan, len(hidden))
    )


def _word_weights(plan: str, length: int) -> Tensor:
    pieces: Sequence[str] = re.findall(r"\w+|[^\w\s]", plan)[:length]
    weights = [
        0.3 if piece.lower() in STOP_WORDS else 1.0 if piece.isalpha() else 0.7 for piece in pieces
    ]
    return torch.tensor(weights + [1.0] * (length - len(weights)))


def _z(values_L: Tensor) -> Tensor:
    return (values_L - values_L.mean()) / (values_L.std(correction=0) + 1e-6)


def _normal(like_LD: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like_LD.shape, generator=generator).to(like_LD.device)
