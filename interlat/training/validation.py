"""Tasks held out of training, to see how the actor does on what it has not learned from."""

import math
from dataclasses import replace

import numpy as np
from transformers import PreTrainedTokenizerBase

from interlat.config import ActorKind, TrainConfig, UserError
from interlat.training.course import Course, Material
from interlat.training.even import collator
from interlat.training.trainer import Validation


def hold_out(material: Material, share: float, *, seed: int) -> tuple[Material, Material]:
    """Part a share of the tasks from the others: what is left to train on, and what is held out.

    A task is held out of both experts' play; its message may still be another task's negative.
    Raises UserError when either part would be empty.
    """
    count = round(share * len(material.tasks))
    if not 0 < count < len(material.tasks):
        raise UserError(
            f"train.validation_share: {share:g} of {len(material.tasks)} tasks are {count}: "
            "there must be some to train on and some to validate on"
        )
    chosen = np.random.default_rng([seed, 1]).permutation(len(material.tasks))[:count]
    held = {material.tasks[i].task_id for i in chosen.tolist()}

    def part(inside: bool) -> Material:
        tasks, searching = (
            [task for task in play if (task.task_id in held) is inside]
            for play in (material.tasks, material.searching)
        )
        return replace(material, tasks=tasks, searching=searching)

    return part(False), part(True)


def validation(
    held_out: Material,
    config: TrainConfig,
    tokenizer: PreTrainedTokenizerBase,
    *,
    seed: int,
    kind: ActorKind,
) -> Validation:
    """The held-out tasks once over, in steps like those of training.

    Messages are told as evaluation sends them: whole and at rate 0, without plan tokens.
    """
    others = config.none_share + config.uninformed_share + config.mismatched_share
    own = config.batch_size * (1 - others)
    steps = math.ceil(len(held_out.tasks) / own) if own > 0 else 1
    config = replace(config, steps=steps, epochs=None, curriculum="none", truncate_share=0.0)
    course = Course(held_out, config, tokenizer, seed=seed, kind=kind)
    return Validation(
        course,
        collator(course, config),
        every=config.validate_every,
        patience=config.patience,
        keep_best=config.keep == "best",
    )
