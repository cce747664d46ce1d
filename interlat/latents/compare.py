"""What differs between two stores: tasks, plans, states, settings."""

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

from torch import Tensor

from interlat.latents.manifest import flattened, work_of
from interlat.latents.message import Message
from interlat.latents.store import LatentStore

FLOOR = 2.0**-14
"""The smallest normal float16; below it that type's spacing is constant, not relative."""


class Difference(NamedTuple):
    """How a second store differs from a first."""

    only_first: list[str]
    """Tasks that only the first has."""
    only_second: list[str]
    plans: list[str]
    """Tasks that both have, with another plan."""
    shapes: list[str]
    """Tasks that both have, with another number or width of rows; the rest is compared."""
    largest_absolute: float
    """Of |a - b|, over all numbers of the messages compared."""
    largest_relative: float
    """Of |a - b| / max(|a|, |b|, FLOOR)."""
    settings: dict[str, tuple[Any, Any]]
    """Setting -> its two values, None where there is none; empty where one has no manifest."""

    @property
    def is_none(self) -> bool:
        """Whether the stores are equal."""
        return not any(self)


def compare(first: LatentStore, second: LatentStore) -> Difference:
    """Compare two stores, message by message; states in float64."""
    plans, shapes = [], []
    absolute = relative = 0.0
    for ours, theirs in _pairs(first, second):
        if ours.plan != theirs.plan:
            plans.append(ours.task_id)
        if ours.hidden_LD.shape != theirs.hidden_LD.shape:
            shapes.append(ours.task_id)
            continue
        errors = _largest_errors(ours.hidden_LD, theirs.hidden_LD)
        absolute, relative = max(absolute, errors[0]), max(relative, errors[1])
    return Difference(
        only_first=[task_id for task_id in first.ids if task_id not in second],
        only_second=[task_id for task_id in second.ids if task_id not in first],
        plans=plans,
        shapes=shapes,
        largest_absolute=absolute,
        largest_relative=relative,
        settings=_settings(first, second),
    )


def _pairs(first: LatentStore, second: LatentStore) -> Iterator[tuple[Message, Message]]:
    common = (message for message in first if message.task_id in second)
    return ((message, second.get(message.task_id)) for message in common)


def _largest_errors(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """Absolute and relative; infinite where one of two numbers is NaN or infinity."""
    if not ours.numel():
        return 0.0, 0.0
    a, b = ours.double(), theirs.double()
    same = (a == b) | (a.isnan() & b.isnan())
    error = (a - b).abs().nan_to_num(nan=inf, posinf=inf).masked_fill(same, 0.0)
    scale = a.abs().maximum(b.abs()).nan_to_num(nan=FLOOR, posinf=FLOOR).clamp(min=FLOOR)
    return float(error.max()), float((error / scale).max())


def _settings(first: LatentStore, second: LatentStore) -> dict[str, tuple[Any, Any]]:
    if first.manifest is None or second.manifest is None:
        return {}
    ours, theirs = (flattened(work_of(manifest)) for manifest in (first.manifest, second.manifest))
    return {
        key: (ours.get(key), theirs.get(key))
        for key in dict.fromkeys([*ours, *theirs])
        if ours.get(key) != theirs.get(key)
    }
