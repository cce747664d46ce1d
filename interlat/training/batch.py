"""Samples of a course to padded tensors, one branch a forward pass.

A branch is right-padded and carries no attention mask: under causal attention no real token sees
padding. Its supervised rows come in the order of samples and of tokens within them, so branches of
the same samples are aligned by label whatever stands in their slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from interlat.config import Curriculum, TrainConfig
from interlat.latents.message import Message
from interlat.training.course import Course, Encoded, Ints, Kind, Sample, Totals
from interlat.training.curriculum import mix


class Messages(NamedTuple):
    """The M messages of a branch, padded: states, which rows are real, which stand in slots."""

    hidden_MLD: Tensor
    mask_ML: Tensor
    kept_ML: Tensor


@dataclass(frozen=True)
class Branch:
    """Conversations with their messages, ready for one forward pass.

    slots_BT: where the kept rows of the messages stand, in reading order. row_N: positions in
    [B * T] whose state predicts labels_N; sample_N: in which of the B samples.
    """

    ids_BT: Tensor
    slots_BT: Tensor
    row_N: Tensor
    labels_N: Tensor
    sample_N: Tensor
    messages: Messages | None

    @property
    def samples(self) -> int:
        """How many samples it has; one without supervised rows only fills a place (even.py)."""
        return len(self.ids_BT) if len(self.row_N) else 0

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same branch on another device."""
        move = partial(Tensor.to, device=device, non_blocking=non_blocking)
        ids_BT, slots_BT, row_N, labels_N, sample_N = map(
            move, (self.ids_BT, self.slots_BT, self.row_N, self.labels_N, self.sample_N)
        )
        messages = self.messages and Messages(*map(move, self.messages))
        return type(self)(ids_BT, slots_BT, row_N, labels_N, sample_N, messages)


@dataclass(frozen=True)
class Batch:
    """One micro-batch: samples with their own message, all others, and two contrasts of ``own``.

    ``plan`` holds the same conversations with plan text for a message, ``mismatched`` with another
    task's message at the same rate. rates: summed over samples with a message. progress: share of
    the run's steps before this one. totals: counts of the whole step, which sums are divided by.
    """

    own: Branch | None
    other: Branch | None
    plan: Branch | None
    mismatched: Branch | None
    rates: float
    progress: float
    totals: Totals

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same batch on another device."""
        own, other, plan, mismatched = (
            branch and branch.to(device, non_blocking)
            for branch in (self.own, self.other, self.plan, self.mismatched)
        )
        return type(self)(own, other, plan, mismatched, self.rates, self.progress, self.totals)


class Collator:
    """Builds batches for one course; contrasts only where their loss has a weight."""

    def __init__(self, course: Course, config: TrainConfig) -> None:
        self._totals = course.totals
        self._curriculum = config.curriculum
        self._last = max(config.steps - 1, 1)
        reads = course.kind == "latent"
        self._aligns = reads and bool(config.alignment_kl_weight or config.alignment_cosine_weight)
        self._separates = reads and bool(config.separation_weight)

    def __call__(self, samples: Sequence[Sample]) -> dict[str, Batch]:
        """The keyword arguments of an objective's forward pass."""
        insert = partial(_insert, curriculum=self._curriculum)
        own = [s for s in samples if s.kind is Kind.OWN]
        other = [s for s in samples if s.kind is not Kind.OWN]
        batch = Batch(
            own=build_branch([insert(s.conversation, s.message, s.plan_ids, s.rate) for s in own]),
            other=build_branch(
                [insert(s.conversation, s.message, s.plan_ids, s.rate) for s in other]
            ),
            plan=build_branch([Filled(s.conversation, s.plan_ids) for s in own if self._aligns]),
            mismatched=build_branch(
                [
                    insert(s.conversation, s.negative, s.negative_plan_ids, s.rate)
                    for s in own
                    if self._separates
                ]
            ),
            rates=sum(s.rate for s in samples if s.message is not None),
            progress=samples[0].step / self._last,
            totals=self._totals[samples[0].step],
        )
        return {"batch": batch}


class Filled(NamedTuple):
    """A conversation and what stands at its slot.

    ids_S: plan tokens, and any id where a message row stands; rows: which rows of hidden_LD those
    are; first_row: position of the first within ids_S.
    """

    conversation: Encoded
    ids_S: Ints
    rows: slice = slice(0, 0)
    hidden_LD: Tensor | None = None
    first_row: int = 0


def _insert(
    conversation: Encoded,
    message: Message | None,
    plan_ids: Ints,
    rate: float,
    *,
    curriculum: Curriculum,
) -> Filled:
    """Fill a conversation's slot with plan tokens and message rows at the given rate."""
    if message is None:
        return Filled(conversation, plan_ids)
    mixture = mix(curriculum, rate, len(plan_ids), len(message.hidden_LD))
    plan_S = plan_ids[mixture.plan]
    empty_S = np.zeros(mixture.rows.stop - mixture.rows.start, dtype=np.int64)
    pieces = (plan_S, empty_S) if mixture.plan_first else (empty_S, plan_S)
    return Filled(
        conversation,
        np.concatenate(pieces),
        mixture.rows,
        message.hidden_LD,
        len(plan_S) if mixture.plan_first else 0,
    )


def build_branch(filled: Sequence[Filled]) -> Branch | None:
    """Pad conversations with filled slots; None when there are none."""
    if not filled:
        return None
    lengths = [len(f.conversation.ids_T) + len(f.ids_S) for f in filled]
    ids_BT = np.zeros((len(filled), max(lengths)), dtype=np.int64)
    slots_BT = np.zeros(ids_BT.shape, dtype=bool)
    rows, labels, samples = [], [], []
    for b, (conversation, ids_S, taken, _, first_row) in enumerate(filled):
        start = conversation.slot
        end = start + len(ids_S)
        ids_BT[b, :start] = conversation.ids_T[:start]
        ids_BT[b, start:end] = ids_S
        ids_BT[b, end : lengths[b]] = conversation.ids_T[start:]
        first = start + first_row
        slots_BT[b, first : first + taken.stop - taken.start] = True
        supervised_N = conversation.supervised_N
        shift_N = np.where(supervised_N >= start, len(ids_S), 0)
        rows.append(b * ids_BT.shape[1] + supervised_N + shift_N - 1)
        labels.append(conversation.ids_T[supervised_N])
        samples.append(np.full(len(supervised_N), b))
    ids, slots = torch.from_numpy(ids_BT), torch.from_numpy(slots_BT)
    row_N, labels_N, sample_N = (
        torch.from_numpy(np.concatenate(parts)) for parts in (rows, labels, samples)
    )
    return Branch(ids, slots, row_N, labels_N, sample_N, _messages(filled))


def _messages(filled: Sequence[Filled]) -> Messages | None:
    """Pad the messages of a branch; None when it has none."""
    messages = [(f.hidden_LD, f.rows) for f in filled if f.hidden_LD is not None]
    if not messages:
        return None
    hidden_MLD = pad_sequence([hidden_LD.float() for hidden_LD, _ in messages], batch_first=True)
    place_L = torch.arange(hidden_MLD.shape[1])
    bounds_M3 = torch.tensor([(len(h), rows.start, rows.stop) for h, rows in messages])
    lengths_M1, starts_M1, stops_M1 = bounds_M3[:, :, None].unbind(dim=1)
    mask_ML = place_L < lengths_M1
    kept_ML = (place_L >= starts_M1) & (place_L < stops_M1)
    return Messages(hidden_MLD, mask_ML, kept_ML)
