"""A store in numbers: how many messages, how long, how large their states, what made them."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interlat.latents.manifest import flattened, work_of
from interlat.latents.store import LatentStore

QUANTILES = {"min": 0.0, "5%": 0.05, "25%": 0.25, "50%": 0.5, "75%": 0.75, "95%": 0.95, "max": 1.0}


@dataclass(frozen=True)
class Summary:
    """What there is to know about a store at a glance."""

    verified: bool
    """Whether a manifest says what is in it."""
    messages: int
    rows: int
    width: int
    dtype: str
    bytes: int
    """Of all its files; 0 for a data set on the hub."""
    length: dict[str, float]
    """Quantiles of the rows a message."""
    norm: dict[str, float]
    """Smallest, mean and largest Euclidean norm of a row; rows with NaN or infinity left out."""
    not_finite: int
    """Numbers that are NaN or infinity."""
    finish_reasons: dict[str, int]
    failures: dict[str, str]
    settings: dict[str, Any]
    """What made it, by dotted key, as the manifest has it."""


def describe(store: LatentStore) -> Summary:
    """Read the whole store, a message at a time, in float32."""
    norms, not_finite = [], 0
    for message in store:
        rows_LD = message.hidden_LD.float()
        norm_L = rows_LD.norm(dim=1)
        if not torch.isfinite(norm_L).all():
            not_finite += int((~torch.isfinite(rows_LD)).sum())
        norms.append(norm_L[torch.isfinite(norm_L)].numpy())
    finite = np.concatenate(norms)
    reasons = store.texts("finish_reason") if "finish_reason" in store.columns else []
    return Summary(
        verified=store.verified,
        messages=len(store),
        rows=int(store.lengths.sum()),
        width=store.width,
        dtype=str(store.dtype).removeprefix("torch."),
        bytes=_size(store.path),
        length={name: float(np.quantile(store.lengths, at)) for name, at in QUANTILES.items()},
        norm=_extremes(finite) if len(finite) else {},
        not_finite=not_finite,
        finish_reasons=dict(Counter(reasons).most_common()),
        failures=store.failures,
        settings=flattened(work_of(store.manifest or {})),
    )


def _extremes(values: np.ndarray) -> dict[str, float]:
    return {
        "min": float(values.min()),
        "mean": float(values.mean(dtype=np.float64)),
        "max": float(values.max()),
    }


def _size(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())
