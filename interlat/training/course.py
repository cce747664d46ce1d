"""The course of actor training: which sample stands in which step, laid out before step 1.

Item i is sample i % B of step i // B. Everything random about it (task, mismatched message, rate)
is a function of the seed and i, so a resumed run continues exactly, any number of ranks sees the
same steps, and the totals that losses are divided by are known without asking other ranks.

Kinds of samples, each the same share of every step:
own         the informed expert's play, with its own task's message
none        the searching expert's play, without a message
uninformed  the searching expert's play, with the message of a sender that knows nothing
mismatched  the searching expert's play, with another task's message: a wrong message is ignored

Actors of another kind than ``latent`` learn from the same play, in the same steps; in a message's
place they are told its plan in words, between the markers (text) or in the prompt (cot), or nothing
(none).
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from interlat.chat import PlainText, Slots, render_many
from interlat.config import ActorKind, TrainConfig, UserError
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.models.actor import Sender
from interlat.tasks import Task
from interlat.training.curriculum import draw_length, draw_rate

log = logging.getLogger(__name__)
Ints = NDArray[np.int64]
WINDOW = 16
"""Steps among which samples are sorted by length."""
NAMED = 3
"""Task ids that an error message names."""


class Kind(IntEnum):
    """What a sample teaches."""

    OWN = 0
    NONE = 1
    UNINFORMED = 2
    MISMATCHED = 3


@dataclass(frozen=True)
class Material:
    """What actors are trained on.

    tasks: play of the informed expert, each with a message in ``messages``. searching: play of the
    expert without knowledge; ``uninformed``: messages of a sender without knowledge.
    """

    tasks: Sequence[Task]
    searching: Sequence[Task]
    messages: LatentStore
    uninformed: LatentStore | None = None


class Encoded(NamedTuple):
    """A tokenised conversation: ids, which tokens are supervised, where a message would stand."""

    ids_T: Ints
    supervised_N: Ints
    slot: int


class Sample(NamedTuple):
    """One item of the course; ``plan_ids`` belong to the message, ``negative`` to the contrast."""

    kind: Kind
    step: int
    conversation: Encoded
    rate: float
    message: Message | None
    plan_ids: Ints
    negative: Message | None
    negative_plan_ids: Ints


class Totals(NamedTuple):
    """Counts of a whole step, over all ranks and micro-batches."""

    supervised: int
    own_supervised: int
    own: int
    messages: int


class Course(Dataset[Sample]):
    """All samples of a training run, in order.

    without_latents: tasks that were left out, where config.allow_missing; truncated: messages of
    the run that are longer than config.max_message_length.
    Raises UserError, before anything is trained, for tasks without latents, messages of different
    widths, conversations without a supervised token, and too few tasks for what the shares ask.
    """

    def __init__(
        self,
        material: Material,
        config: TrainConfig,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int,
        kind: ActorKind = "latent",
    ) -> None:
        self.config, self.seed, self.kind = config, seed, kind
        given = len(material.tasks)
        self.material = material = _check(material, config)
        self.without_latents = given - len(material.tasks)
        rng = np.random.default_rng([seed, 0])
        pools = _pools(material)
        kind_I = _kinds(config)
        task_I = _draw_tasks(kind_I, pools, rng)
        marked = kind in ("latent", "text")
        slots: list[Slots] = [0 if marked and k != Kind.NONE else None for k in kind_I.tolist()]
        conversation_I, self._conversations = _encode(kind_I, task_I, slots, pools, tokenizer)
        lengths_I = np.array([len(c.ids_T) for c in self._conversations])[conversation_I]
        order_I = _arrange(kind_I, lengths_I, config, rng)
        self._kind_I, self._conversation_I = kind_I[order_I], conversation_I[order_I]
        self._draw_messages(task_I[order_I], pools, rng)
        if kind == "cot":
            self._conversation_I, self._conversations = _encode(
                self._kind_I, task_I[order_I], self._told(), pools, tokenizer
            )
        self._encode_plans(tokenizer)
        self.truncated = self._count_truncated()
        self.totals = self._count()

    def __len__(self) -> int:
        return len(self._kind_I)

    def __getitem__(self, index: int) -> Sample:
        kind = Kind(int(self._kind_I[index]))
        step, position = divmod(index, self.config.batch_size)
        conversation = self._conversations[int(self._conversation_I[index])]
        share = draw_length(self.config.truncate_share, seed=self.seed, step=step, index=position)
        message, plan_ids = self._message(self._message_I[index], kind is Kind.UNINFORMED, share)
        negative, negative_plan_ids = self._message(self._negative_I[index], False, share)
        rate = 0.0
        if message is not None:
            rate = draw_rate(
                self.config.curriculum,
                seed=self.seed,
                step=step,
                steps=self.config.steps,
                index=position,
            )
        return Sample(
            kind, step, conversation, rate, message, plan_ids, negative, negative_plan_ids
        )

    def counts(self) -> dict[str, int]:
        """Samples of each kind in the whole run."""
        return {kind.name.lower(): int((self._kind_I == kind).sum()) for kind in Kind}

    def _draw_messages(
        self, task_I: Ints, pools: dict[Kind, list[Task]], rng: np.random.Generator
    ) -> None:
        """Fill the message and the negative of every item: positions in a store, -1 for none."""
        kind_I, messages = self._kind_I, self.material.messages
        task_ids = [
            pools[Kind(kind)][index].task_id
            for kind, index in zip(kind_I.tolist(), task_I.tolist(), strict=True)
        ]
        own_I = _positions(task_ids, messages)
        other_I = _other(own_I, len(messages), rng)
        uninformed_I = _positions(task_ids, self.material.uninformed)
        separates = self.kind == "latent" and bool(self.config.separation_weight)
        self._negative_I = np.where((kind_I == Kind.OWN) & separates, other_I, -1)
        self._message_I = np.select(
            [kind_I == Kind.OWN, kind_I == Kind.UNINFORMED, kind_I == Kind.MISMATCHED],
            [own_I, uninformed_I, other_I],
            default=-1,
        )

    def _told(self) -> list[Slots]:
        """The plan of each item's message in words; None where there is no message."""
        return [
            None if index < 0 else PlainText(self._get(kind == Kind.UNINFORMED, index).plan)
            for kind, index in zip(self._kind_I.tolist(), self._message_I.tolist(), strict=True)
        ]

    def _used(self) -> list[tuple[bool, int]]:
        """The messages of the run: whether of the uninformed sender, and where in its store."""
        used = {
            (bool(kind == Kind.UNINFORMED), int(index))
            for kind, index in zip(self._kind_I, self._message_I, strict=True)
            if index >= 0
        } | {(False, int(index)) for index in self._negative_I if index >= 0}
        return sorted(used)

    def _count_truncated(self) -> int:
        limit, used = self.config.max_message_length, self._used()
        if limit is None:
            return 0
        longer = sum(len(self._get(*key).hidden_LD) > limit for key in used)
        if longer:
            log.warning(
                "%d of %d messages are longer than train.max_message_length (%d): cut to it",
                longer,
                len(used),
                limit,
            )
        return longer

    def _encode_plans(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Tokenise the plan of every message that the run uses, as it would stand in a prompt."""
        keys = self._used()
        plans = [self._get(*key).plan for key in keys]
        rendered = render_many(tokenizer, [[{"from": "human", "value": ""}]] * len(plans), plans)
        self._plans = {
            key: np.asarray(r.token_ids[r.slots.start : r.slots.stop], dtype=np.int64)
            for key, r in zip(keys, rendered, strict=True)
        }

    def _message(self, index: int, uninformed: bool, share: float) -> tuple[Message | None, Ints]:
        """What is told of a message, and the tokens of its plan, cut where the message is cut.

        share: of the message, from its start.
        """
        if index < 0 or self.kind in ("cot", "none"):
            return None, np.empty(0, dtype=np.int64)
        message, plan_ids = self._get(uninformed, int(index)), self._plans[uninformed, int(index)]
        length = len(message.hidden_LD)
        kept = min(math.ceil(share * length), self.config.max_message_length or length)
        if kept < length:
            message = replace(message, hidden_LD=message.hidden_LD[:kept])
            plan_ids = plan_ids[: round(kept / length * len(plan_ids))]
        return (message if self.kind == "latent" else None), plan_ids

    def _get(self, uninformed: bool, index: int) -> Message:
        store = self.material.uninformed if uninformed else self.material.messages
        assert store is not None
        return store.get(store.ids[index])

    def _count(self) -> list[Totals]:
        rows_I = np.array([len(self._conversations[i].supervised_N) for i in self._conversation_I])
        own_I = self._kind_I == Kind.OWN
        columns = (rows_I, rows_I * own_I, own_I, self._message_I >= 0)
        sums_S4 = np.stack([c.reshape(self.config.steps, -1).sum(axis=1) for c in columns], axis=1)
        return [Totals(*row) for row in sums_S4.tolist()]


def with_steps(config: TrainConfig, tasks: int) -> TrainConfig:
    """The config with its epochs, where it has some, as steps: passes over so many tasks."""
    if config.epochs is None:
        return config
    others = config.none_share + config.uninformed_share + config.mismatched_share
    own = config.batch_size * (1 - others)
    if own <= 0:
        raise UserError("train.epochs: no sample has its task's message; set train.steps instead")
    return replace(config, steps=max(1, math.ceil(config.epochs * tasks / own)))


def _check(material: Material, config: TrainConfig) -> Material:
    """The material that is trained on: without tasks that lack latents, where that is allowed."""
    missing = sorted(t.task_id for t in material.tasks if t.task_id not in material.messages)
    listed = f"{len(missing)} of {len(material.tasks)} tasks ({_named(missing)})"
    if len(missing) == len(material.tasks) or (missing and not config.allow_missing):
        raise UserError(
            f"no latents for {listed}: collect them, or leave such tasks out with "
            "train.allow_missing"
        )
    if missing:
        log.warning("left out for want of latents: %s", listed)
        kept = [task for task in material.tasks if task.task_id in material.messages]
        material = replace(material, tasks=kept)
    _check_shares(material, config)
    return material


def _check_shares(material: Material, config: TrainConfig) -> None:
    """Refuse shares that the material cannot serve."""
    if len(material.messages) < 2 and (config.separation_weight or config.mismatched_share):
        raise UserError("a mismatched message needs at least 2 tasks with latents")
    if config.none_share + config.mismatched_share and not material.searching:
        raise UserError("no task with the searching expert's play; prepare them or set shares to 0")
    if not config.uninformed_share:
        return
    if material.uninformed is None:
        raise UserError("train.uninformed_share needs the latents of a sender without knowledge")
    if material.uninformed.width != material.messages.width:
        raise UserError(
            f"the informed messages have width {material.messages.width}, the uninformed ones "
            f"{material.uninformed.width}: collect both with the same sender"
        )
    senders = {Sender.of(material.messages), Sender.of(material.uninformed)} - {None}
    if len(senders) > 1:
        raise UserError(
            "the informed and the uninformed messages are of two senders: collect both again"
        )
    if not _pools(material)[Kind.UNINFORMED]:
        raise UserError("no searching task has latents of a sender without knowledge")


def _check_supervision(tasks: Sequence[Task]) -> None:
    silent = [
        task.task_id
        for task in tasks
        if not any(t["from"] == "gpt" and t.get("loss", True) for t in task.conversations)
    ]
    if silent:
        raise UserError(
            f"no supervised token in the conversations of {_named(silent)}: "
            "a gpt turn that is not marked `loss: false` is needed"
        )


def _pools(material: Material) -> dict[Kind, list[Task]]:
    """The tasks that each kind of sample draws from."""
    searching, uninformed = list(material.searching), material.uninformed
    return {
        Kind.OWN: list(material.tasks),
        Kind.NONE: searching,
        Kind.UNINFORMED: [
            task for task in searching if uninformed is not None and task.task_id in uninformed
        ],
        Kind.MISMATCHED: searching,
    }


def _kinds(config: TrainConfig) -> Ints:
    """Kinds of all items, each step with its share of every kind to within one sample."""
    total = np.arange(config.steps + 1) * config.batch_size
    shares = np.cumsum([0, config.none_share, config.uninformed_share, config.mismatched_share])
    edges = np.floor(total[:, None] * shares + 1e-9).astype(np.int64)
    counts_S3 = np.diff(edges[:, 1:] - edges[:, :-1], axis=0)
    counts_S4 = np.column_stack([config.batch_size - counts_S3.sum(axis=1), counts_S3])
    return np.repeat(np.tile(np.arange(len(Kind)), config.steps), counts_S4.ravel())


def _draw_tasks(kind_I: Ints, pools: dict[Kind, list[Task]], rng: np.random.Generator) -> Ints:
    """A task for every item: each kind goes through its pool in shuffled rounds."""
    task_I = np.empty(len(kind_I), dtype=np.int64)
    for kind in Kind:
        where = kind_I == kind
        wanted, pool = int(where.sum()), len(pools[kind])
        rounds = -(-wanted // pool) if wanted else 0
        shuffled = [rng.permutation(pool) for _ in range(rounds)]
        task_I[where] = np.concatenate([np.empty(0, np.int64), *shuffled])[:wanted]
    return task_I


def _encode(
    kind_I: Ints,
    task_I: Ints,
    slots_I: Sequence[Slots],
    pools: dict[Kind, list[Task]],
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[Ints, list[Encoded]]:
    """Each item's conversation, as an index; and those used, tokenised once in one call.

    slots_I: what the conversation is rendered with in a message's place.
    """
    number: dict[tuple[bool, Slots, str], int] = {}
    tasks: list[Task] = []
    conversation_I = np.empty(len(kind_I), dtype=np.int64)
    items = zip(kind_I.tolist(), task_I.tolist(), slots_I, strict=True)
    for i, (kind, index, slot) in enumerate(items):
        task = pools[Kind(kind)][index]
        key = (kind == Kind.OWN, slot, task.task_id)
        if key not in number:
            number[key] = len(number)
            tasks.append(task)
        conversation_I[i] = number[key]
    _check_supervision(tasks)
    slots = [slot for _, slot, _ in number]
    try:
        rendered = render_many(tokenizer, [task.conversations for task in tasks], slots)
    except ValueError as error:
        raise UserError(f"the training conversations cannot be rendered: {error}") from error
    return conversation_I, [
        Encoded(
            np.asarray(r.token_ids, dtype=np.int64),
            np.flatnonzero(np.asarray(r.loss_mask, dtype=bool)),
            r.slots.start if slot == 0 else len(r.token_ids),
        )
        for r, slot in zip(rendered, slots, strict=True)
    ]


def _arrange(kind_I: Ints, lengths_I: Ints, config: TrainConfig, rng: np.random.Generator) -> Ints:
    """An order of items that leaves each step its kinds and gives it samples of like length.

    Within windows of ``WINDOW`` steps, samples of a kind are sorted by length and dealt to steps in
    random order. Within a step kinds are mixed, so that ranks that share it get like work.
    """
    order_I = np.arange(len(kind_I))
    step_I = order_I // config.batch_size
    for kind in Kind:
        places = np.flatnonzero(kind_I == kind)
        bounds = np.searchsorted(step_I[places], np.arange(0, config.steps + WINDOW, WINDOW))
        for start, end in pairwise(bounds):
            window = places[start:end]
            steps = np.unique(step_I[window])
            rank = dict(zip(steps.tolist(), rng.permutation(len(steps)).tolist(), strict=True))
            seats = sorted(window.tolist(), key=lambda i: (rank[int(step_I[i])], i))
            order_I[seats] = window[np.argsort(lengths_I[window], kind="stable")]
    mixed: Ints = rng.permuted(order_I.reshape(config.steps, -1), axis=1).ravel()
    return mixed


def _positions(task_ids: Sequence[str], store: LatentStore | None) -> Ints:
    """Where each task's message stands in a store; -1 where there is none."""
    return np.array(
        [store.index(i) if store is not None and i in store else -1 for i in task_ids],
        dtype=np.int64,
    )


def _other(own_I: Ints, messages: int, rng: np.random.Generator) -> Ints:
    """For each position (-1: not among them) a random other one."""
    offset_I = rng.integers(1, max(messages, 2), size=len(own_I))
    anywhere_I = rng.integers(messages, size=len(own_I))
    return np.where(own_I >= 0, (own_I + offset_I) % messages, anywhere_I)


def _named(task_ids: Sequence[str]) -> str:
    more = f" and {len(task_ids) - NAMED} more" if len(task_ids) > NAMED else ""
    return ", ".join(task_ids[:NAMED]) + more
