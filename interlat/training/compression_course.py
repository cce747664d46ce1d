"""The course of compression: which task stands in which step, and what is read about it.

Item i is sample i % B of step i // B, a function of the seed and i alone, as in course.py. The
student reads the sender's prompt. The actor reads the task's play three times: with the student's
message, with the full one, and with none. These have all tokens before the message in common, so a
conversation is cut there, and the first part is read once.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from interlat.chat import Rendered, render_many
from interlat.config import CompressConfig, UserError
from interlat.latents.store import LatentStore
from interlat.models.actor import Actor
from interlat.models.compressor import Compressor, Padded, left_padded
from interlat.models.sender import context_length, encode_prompts, sender_prompt
from interlat.tasks import Task
from interlat.training.batch import Branch, Filled, build_branch
from interlat.training.course import NAMED, WINDOW, Encoded, Ints

log = logging.getLogger(__name__)


class Lesson(NamedTuple):
    """One item: the student's prompt, the actor's conversation in two parts, the full message.

    told: what follows ``opening`` where there is a message; untold: where there is none.
    """

    step: int
    prompt: list[int]
    opening: list[int]
    told: Encoded
    untold: Encoded
    hidden_LD: Tensor


class Totals(NamedTuple):
    """Counts of a whole step, over all ranks and micro-batches."""

    supervised: int
    samples: int


@dataclass(frozen=True)
class CompressionBatch:
    """One micro-batch of B samples.

    prompts: the student's. openings: how the conversations begin; short: what follows, with slots
    for the student's K rows; fixed: the same with the full messages, and then again with none, as
    2 B samples.
    """

    prompts: Padded
    openings: Padded
    short: Branch
    fixed: Branch
    totals: Totals

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same batch on another device."""
        move = partial(Tensor.to, device=device, non_blocking=non_blocking)
        return type(self)(
            Padded(*map(move, self.prompts)),
            Padded(*map(move, self.openings)),
            self.short.to(device, non_blocking),
            self.fixed.to(device, non_blocking),
            self.totals,
        )


class CompressionCourse(Dataset[Lesson]):
    """All samples of a training run, in order.

    shorter: messages of the run with fewer rows than the student has steps; they are read whole.
    Raises UserError, before anything is trained, for tasks without latents, messages of another
    width than the actor reads, conversations without a supervised token, and prompts or
    conversations for which a context is too short.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        messages: LatentStore,
        student: Compressor,
        teacher: Actor,
        config: CompressConfig,
        *,
        seed: int,
    ) -> None:
        self.config, self._tasks, self._messages = config, tasks, messages
        self._limit = teacher.record.max_message_length
        self._steps = student.steps
        _check_messages(tasks, messages, teacher)
        texts = [sender_prompt(task, student.record.prompt_template) for task in tasks]
        self._prompts = encode_prompts(student.tokenizer, texts, student.record.chat_template)
        self._plays = list(_cut(tasks, teacher))
        self._rows = np.array([len(told.supervised_N) for _, told, _ in self._plays])
        self._check_contexts(student, teacher)
        self._task_I = self._order(np.random.default_rng([seed, 0]))
        lengths = messages.lengths
        used = [lengths[messages.index(task_id)] for task_id in set(self.task_ids)]
        self.shorter = int(sum(length < student.steps for length in used))
        if self.shorter:
            log.warning(
                "%d of %d messages have fewer rows than compress.K (%d): the student's are longer",
                self.shorter,
                len(used),
                student.steps,
            )
        self.totals = [
            Totals(int(self._rows[step_B].sum()), len(step_B))
            for step_B in self._task_I.reshape(-1, config.batch_size)
        ]

    def __len__(self) -> int:
        return len(self._task_I)

    def __getitem__(self, index: int) -> Lesson:
        task = int(self._task_I[index])
        hidden_LD = self._messages.get(self._tasks[task].task_id).hidden_LD[: self._limit]
        step = index // self.config.batch_size
        return Lesson(step, self._prompts[task], *self._plays[task], hidden_LD)

    @property
    def task_ids(self) -> list[str]:
        """The task of every item, in order."""
        return [self._tasks[i].task_id for i in self._task_I.tolist()]

    def collate(self, lessons: Sequence[Lesson]) -> dict[str, CompressionBatch]:
        """The keyword arguments of the objective's forward pass."""
        blank_K = np.zeros(self._steps, dtype=np.int64)
        short = [Filled(x.told, blank_K, slice(0, self._steps)) for x in lessons]
        full = [
            Filled(
                x.told,
                np.zeros(len(x.hidden_LD), dtype=np.int64),
                slice(0, len(x.hidden_LD)),
                x.hidden_LD,
            )
            for x in lessons
        ]
        none = [Filled(x.untold, blank_K[:0]) for x in lessons]
        short_branch, fixed_branch = build_branch(short), build_branch([*full, *none])
        assert short_branch is not None
        assert fixed_branch is not None
        batch = CompressionBatch(
            left_padded([x.prompt for x in lessons]),
            left_padded([x.opening for x in lessons]),
            short_branch,
            fixed_branch,
            self.totals[lessons[0].step],
        )
        return {"batch": batch}

    def _order(self, rng: np.random.Generator) -> Ints:
        """The task of every item: shuffled rounds, where samples of a step have like length."""
        config = self.config
        wanted = config.steps * config.batch_size
        rounds = -(-wanted // len(self._tasks))
        drawn_I = np.concatenate([rng.permutation(len(self._tasks)) for _ in range(rounds)])
        lengths = np.array([len(told.ids_T) for _, told, _ in self._plays])
        ordered = []
        window = WINDOW * config.batch_size
        for window_I in np.split(drawn_I[:wanted], range(window, wanted, window)):
            sorted_I = window_I[np.argsort(lengths[window_I], kind="stable")]
            ordered.append(rng.permutation(sorted_I.reshape(-1, config.batch_size)).ravel())
        return np.concatenate(ordered)

    def _check_contexts(self, student: Compressor, teacher: Actor) -> None:
        longest, room = max(map(len, self._prompts)), student.longest_prompt
        if room is not None and longest > room:
            raise UserError(
                f"compress.K: {student.steps} steps do not fit behind prompts of {longest} tokens: "
                f"the student's context has {room + student.steps}; lower compress.K"
            )
        longest = max(len(opening) + len(told.ids_T) for opening, told, _ in self._plays)
        context = context_length(teacher.model)
        if context is not None and longest + student.steps > context:
            raise UserError(
                f"compress.K: a conversation of {longest} tokens and {student.steps} rows do not "
                f"fit into the actor's context of {context}; lower compress.K"
            )


def with_steps(config: CompressConfig, tasks: int) -> CompressConfig:
    """The config with its epochs, where it has some, as steps: passes over so many tasks."""
    if config.epochs is None:
        return config
    steps = max(1, math.ceil(config.epochs * tasks / config.batch_size))
    return replace(config, steps=steps, epochs=None)


def _check_messages(tasks: Sequence[Task], messages: LatentStore, teacher: Actor) -> None:
    missing = [task.task_id for task in tasks if task.task_id not in messages]
    if missing:
        raise UserError(
            f"no latents for {len(missing)} of {len(tasks)} tasks "
            f"({', '.join(missing[:NAMED])}{', ...' * (len(missing) > NAMED)}): collect them first"
        )
    messages.require_width(teacher.sender_width)


def _cut(tasks: Sequence[Task], teacher: Actor) -> Iterator[tuple[list[int], Encoded, Encoded]]:
    """Each conversation as its opening, and what follows with a message and without one."""
    play = [task.conversations for task in tasks]
    try:
        told, untold = (
            render_many(teacher.tokenizer, play, [slots] * len(play)) for slots in (0, None)
        )
    except ValueError as error:
        raise UserError(f"the training conversations cannot be rendered: {error}") from error
    for task, with_slot, without in zip(tasks, told, untold, strict=True):
        if not any(with_slot.loss_mask):
            raise UserError(
                f"no supervised token in the conversation of {task.task_id}: a gpt turn that is "
                "not marked `loss: false` is needed"
            )
        opening = _common(with_slot, without)
        yield (
            with_slot.token_ids[:opening],
            _rest(with_slot, opening, with_slot.slots.start),
            _rest(without, opening, len(without.token_ids)),
        )


def _common(told: Rendered, untold: Rendered) -> int:
    """How many tokens two renderings begin with alike; one that is supervised comes later."""
    pairs = zip(told.token_ids[: told.slots.start], untold.token_ids, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), told.slots.start)


def _rest(rendered: Rendered, start: int, slot: int) -> Encoded:
    mask_T = np.asarray(rendered.loss_mask[start:], dtype=bool)
    ids_T = np.asarray(rendered.token_ids[start:], dtype=np.int64)
    return Encoded(ids_T, np.flatnonzero(mask_T), slot - start)
