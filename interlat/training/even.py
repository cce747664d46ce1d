"""The same forward passes on every rank, whatever their samples.

Sharded weights are gathered from all ranks whenever a module runs, so no rank may leave out a
branch or the adapter because its own samples do not need it: it runs them on a token or a row that
nothing is learned from instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from interlat.config import TrainConfig
from interlat.training.batch import Batch, Branch, Collator, Messages
from interlat.training.course import Course, Kind, Sample


def collator(course: Course, config: TrainConfig) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """The collator of a course; an even one where the config shards weights."""
    plain = Collator(course, config)
    return plain if config.backend == "ddp" else EvenCollator(course, plain)


class EvenCollator:
    """A collator whose batches have, on every rank, the branches that some rank's batch has."""

    def __init__(self, course: Course, collator: Collator) -> None:
        self._collator = collator
        self._pattern = collator(_one_of_each_kind(course))["batch"]

    def __call__(self, samples: Sequence[Sample]) -> dict[str, Batch]:
        """The keyword arguments of an objective's forward pass."""
        batch, pattern = self._collator(samples)["batch"], self._pattern
        own = batch.totals.own > 0
        other = batch.totals.supervised > batch.totals.own_supervised
        return {
            "batch": replace(
                batch,
                own=_filled(batch.own, pattern.own if own else None),
                plan=_filled(batch.plan, pattern.plan if own else None),
                mismatched=_filled(batch.mismatched, pattern.mismatched if own else None),
                other=_filled(batch.other, pattern.other if other else None),
            )
        }


def _one_of_each_kind(course: Course) -> list[Sample]:
    """A sample of every kind that the course has."""
    wanted = sum(count > 0 for count in course.counts().values())
    found: dict[Kind, Sample] = {}
    for index in range(len(course)):
        if len(found) == wanted:
            break
        sample = course[index]
        found.setdefault(sample.kind, sample)
    return list(found.values())


def _filled(branch: Branch | None, pattern: Branch | None) -> Branch | None:
    """The branch with messages where the pattern has some; for no branch one to learn nothing from.

    Models and attention take no empty batches, so there is a token and a message row in it.
    """
    if pattern is None:
        return branch
    messages = pattern.messages and _unread(pattern.messages)
    if branch is not None:
        return replace(branch, messages=branch.messages or messages)
    return Branch(
        ids_BT=pattern.ids_BT[:1, :1],
        slots_BT=torch.zeros(1, 1, dtype=torch.bool),
        row_N=pattern.row_N[:0],
        labels_N=pattern.labels_N[:0],
        sample_N=pattern.sample_N[:0],
        messages=messages,
    )


def _unread(messages: Messages) -> Messages:
    """A row of a message that stands nowhere."""
    hidden_MLD, mask_ML, kept_ML = (part[:1, :1] for part in messages)
    return Messages(hidden_MLD, mask_ML, torch.zeros_like(kept_ML))
