"""Training the embedded default's base model: from random weights to a sender and actor in one.

It learns from demonstrations alone, as text: to say the plan of a task (with and without knowledge
of the house), to follow a plan that it is given, and to search when there is none to follow, none
that says where things are, or one of another task. Latent messages come later (training/actor.py).
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from interlat import distributed
from interlat.chat import Conversation, Rendered, render_many
from interlat.config import BaseConfig, UserError
from interlat.files import atomic_directory
from interlat.models.actor import Actor, embedding_weight
from interlat.models.sender import sender_prompt
from interlat.models.tiny import TinyShape, build_model, build_tokenizer
from interlat.tasks import Task, tasks_digest
from interlat.training.batch import Branch, Filled, build_branch
from interlat.training.course import Encoded
from interlat.training.losses import cross_entropy, mean_by_sample
from interlat.training.objective import Losses, read
from interlat.training.optimizers import MuonWithAdamW
from interlat.training.trainer import Schedule, Training, Watcher, fit, is_deterministic

CHUNKS = 2
"""Forward passes of a micro-batch, each over samples of like length."""


class Skill(IntEnum):
    """What a sample teaches; INFORMED and UNINFORMED the sender, the others the actor."""

    INFORMED = 0
    UNINFORMED = 1
    FOLLOW = 2
    SEARCH = 3
    SEARCH_UNINFORMED = 4
    SEARCH_MISMATCHED = 5


GROUPS = {
    "sender": (Skill.INFORMED, Skill.UNINFORMED),
    "follow": (Skill.FOLLOW,),
    "search": (Skill.SEARCH, Skill.SEARCH_UNINFORMED, Skill.SEARCH_MISMATCHED),
}
"""Skills that are logged together."""
TERMS = tuple(f"{name}_{group}" for group in GROUPS for name in ("loss", "accuracy"))


class Lesson(NamedTuple):
    """A conversation to learn, and the plan text that stands in its first turn, if any."""

    skill: Skill
    conversation: Conversation
    plan: str | None


class Lessons(Dataset[Lesson]):
    """All samples of a run in order, ``sender_batch + actor_batch`` a step.

    informed: tasks with knowledge, the informed expert's plan and play; searching: the same tasks
    without knowledge, with the searching expert's. Sample i is a function of the seed and i.
    Raises UserError for fewer than two tasks, and for tasks that show nothing to learn.
    """

    def __init__(
        self,
        informed: Sequence[Task],
        searching: Sequence[Task],
        config: BaseConfig,
        template: str,
        *,
        seed: int,
    ) -> None:
        _check(informed, searching)
        self._informed, self._searching, self._template = informed, searching, template
        self.counts = skill_counts(config)
        skills = np.repeat(np.array(list(Skill)), [self.counts[skill] for skill in Skill])
        rng = np.random.default_rng([seed, 0])
        self._skill_SB = rng.permuted(np.tile(skills, (config.steps, 1)), axis=1)
        self._task_SB = rng.integers(len(informed), size=self._skill_SB.shape)
        self._offset_SB = rng.integers(1, len(informed), size=self._skill_SB.shape)

    def __len__(self) -> int:
        return int(self._skill_SB.size)

    def __getitem__(self, index: int) -> Lesson:
        skill = Skill(int(self._skill_SB.flat[index]))
        number = int(self._task_SB.flat[index])
        knows = skill in (Skill.INFORMED, Skill.FOLLOW)
        task = (self._informed if knows else self._searching)[number]
        if skill in GROUPS["sender"]:
            prompt = sender_prompt(task, self._template)
            said: Conversation = [
                {"from": "human", "value": prompt},
                {"from": "gpt", "value": task.plan},
            ]
            return Lesson(skill, said, None)
        if skill is Skill.SEARCH:
            return Lesson(skill, task.conversations, None)
        if skill is Skill.SEARCH_MISMATCHED:
            number = (number + int(self._offset_SB.flat[index])) % len(self._informed)
            return Lesson(skill, task.conversations, self._informed[number].plan)
        return Lesson(skill, task.conversations, task.plan)


def _check(informed: Sequence[Task], searching: Sequence[Task]) -> None:
    """Refuse what the lessons cannot be made of."""
    if len(informed) < 2:
        raise UserError("a base model learns from at least 2 train tasks: raise task.train_games")
    if [task.task_id for task in informed] != [task.task_id for task in searching]:
        raise UserError(
            "the two experts' train tasks are not the same: run stages/prepare.py again"
        )
    for task in [*informed, *searching]:
        if not task.plan or not task.conversations:
            raise UserError(
                f"task {task.task_id} has no plan or no demonstration: a base model is trained on "
                "generated games, set task.games to generated"
            )


def skill_counts(config: BaseConfig) -> dict[Skill, int]:
    """Samples of each skill in every step."""
    uninformed = round(config.uninformed_sender_share * config.sender_batch)
    search, heard, mismatched = (
        round(share * config.actor_batch)
        for share in (config.none_share, config.uninformed_share, config.mismatched_share)
    )
    return {
        Skill.INFORMED: config.sender_batch - uninformed,
        Skill.UNINFORMED: uninformed,
        Skill.FOLLOW: config.actor_batch - search - heard - mismatched,
        Skill.SEARCH: search,
        Skill.SEARCH_UNINFORMED: heard,
        Skill.SEARCH_MISMATCHED: mismatched,
    }


class Chunk(NamedTuple):
    """Part of a batch: a branch to read, and the group of each of its samples."""

    branch: Branch
    group_S: Tensor


class Collator:
    """Renders samples and pads them in chunks of like length."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._group = {s: i for i, skills in enumerate(GROUPS.values()) for s in skills}

    def __call__(self, lessons: Sequence[Lesson]) -> dict[str, Any]:
        """The keyword arguments of the objective's forward pass."""
        rendered = render_many(
            self._tokenizer, [x.conversation for x in lessons], [x.plan for x in lessons]
        )
        order = np.argsort([len(r.token_ids) for r in rendered], kind="stable")
        chunks = []
        for part in np.array_split(order, min(CHUNKS, len(order))):
            branch = build_branch([_filled(rendered[i]) for i in part])
            assert branch is not None
            group_S = torch.tensor([self._group[lessons[i].skill] for i in part])
            chunks.append(Chunk(branch, group_S))
        return {"chunks": chunks}


class LanguageObjective(nn.Module):
    """The mean over a step's samples of a conversation's negative log-likelihood, in nats."""

    def __init__(self, actor: Actor, config: BaseConfig) -> None:
        super().__init__()
        self.actor = actor
        counts = skill_counts(config)
        sizes = [sum(counts[skill] for skill in skills) for skills in GROUPS.values()]
        self._batch = sum(sizes)
        self._sizes = [max(size, 1) for size in sizes]

    def forward(self, chunks: Sequence[Chunk]) -> Losses:
        """The micro-batch's part of the step's loss and of the terms, each term a mean by token."""
        loss = torch.zeros((), device=self.actor.device)
        terms_2G = torch.zeros(2, len(GROUPS), device=self.actor.device)
        for branch, group_S in chunks:
            logits_NV = read(self.actor, branch)
            nll_N = cross_entropy(logits_NV, branch.labels_N)
            loss = loss + nll_N.sum() / self._batch
            right_N = (logits_NV.argmax(dim=-1) == branch.labels_N).float()
            for row, value_N in enumerate((nll_N.detach(), right_N)):
                mean_S = mean_by_sample(value_N, branch.sample_N, len(group_S))
                terms_2G[row].index_add_(0, group_S, mean_S)
        return Losses(loss, (terms_2G / terms_2G.new_tensor(self._sizes)).T.flatten())


def train_base(
    informed: Sequence[Task],
    searching: Sequence[Task],
    config: BaseConfig,
    template: str,
    *,
    seed: int,
    output: Path,
    watch: Watcher,
) -> Training:
    """Build tokenizer and model from the demonstrations, train, write the checkpoint to ``output``.

    Resumable as ``train_actor`` is. Errors as of ``Lessons``.
    """
    family = config.architecture
    tokenizer = build_tokenizer(_texts([*informed, *searching], template), family)
    shape = TinyShape(config.hidden_size, config.layers, config.heads, config.intermediate_size)
    model = build_model(tokenizer, shape, seed=seed, architecture=family)
    actor = Actor(model, tokenizer)
    objective = LanguageObjective(actor, config)
    work = output.with_name(f"{output.name}.partial")
    points = fit(
        objective,
        Lessons(informed, searching, config, template, seed=seed),
        Collator(tokenizer),
        MuonWithAdamW(
            actor,
            [embedding_weight(actor.model)],
            matrix_rate=config.learning_rate,
            other_rate=config.embedding_learning_rate,
            weight_decay=config.weight_decay,
        ),
        Schedule(
            steps=config.steps,
            batch_size=config.sender_batch + config.actor_batch,
            micro_batches=config.micro_batches,
            warmup_share=config.warmup_share,
            decay_share=config.decay_share,
            gradient_clip=config.gradient_clip,
            bf16=config.precision == "bf16",
            save_every=config.save_every,
            log_every=config.log_every,
            seed=seed,
        ),
        terms=TERMS,
        tokens=None,
        probe=dict,
        work=work,
        fingerprint={
            "config": asdict(config),
            "template": template,
            "seed": seed,
            "informed": tasks_digest(informed),
            "searching": tasks_digest(searching),
        },
        watch=watch,
    )
    if distributed.is_main():
        with atomic_directory(output) as folder:
            actor.eval().save(folder)
        shutil.rmtree(work)
    distributed.barrier()
    points = [{k: v for k, v in point.items() if is_deterministic(k)} for point in points]
    parameters = sum(p.numel() for p in actor.parameters())
    final = {name: points[-1][name] for name in ("loss", *TERMS)}
    return Training(points, {**final, "parameters": parameters, "vocabulary": len(tokenizer)})


def _filled(rendered: Rendered) -> Filled:
    ids_T = np.asarray(rendered.token_ids, dtype=np.int64)
    supervised_N = np.flatnonzero(np.asarray(rendered.loss_mask, dtype=bool))
    return Filled(Encoded(ids_T, supervised_N, len(ids_T)), np.empty(0, dtype=np.int64))


def _texts(tasks: Sequence[Task], template: str) -> list[str]:
    """Everything that is said in the demonstrations."""
    texts = []
    for task in tasks:
        texts += [sender_prompt(task, template), task.plan or ""]
        texts += [turn["value"] for turn in task.conversations]
    return texts
