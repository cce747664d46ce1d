"""Training a student to think in K steps: the whole run, from a language model to a checkpoint.

The actor that the messages are for is the teacher: frozen, in eval mode, and checked afterwards to
be unchanged. Work lies in ``<output>.partial`` as in actor.py.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interlat import distributed
from interlat.config import CollectConfig, CompressConfig, UserError
from interlat.files import atomic_directory
from interlat.latents.store import LatentStore
from interlat.models.actor import Actor, Sender, embedding_weight
from interlat.models.card import write_student_card
from interlat.models.compressor import Compressor, CompressorRecord
from interlat.models.load import tokenizer_digest, weights_digest
from interlat.models.sender import output_head
from interlat.tasks import Task, tasks_digest
from interlat.training.actor import LAST_SHARE, validated
from interlat.training.backends import to_full_precision
from interlat.training.compression_course import CompressionCourse
from interlat.training.compression_objective import TERMS, CompressionObjective
from interlat.training.trainer import (
    Schedule,
    Training,
    Validation,
    Watcher,
    fit,
    is_deterministic,
)


def train_compressor(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    teacher: Actor,
    tasks: Sequence[Task],
    messages: LatentStore,
    config: CompressConfig,
    asked: CollectConfig,
    *,
    seed: int,
    output: Path,
    watch: Watcher,
) -> Training:
    """Train ``model`` to say in K steps what ``messages`` say; write the student to ``output``.

    tasks: play with a message each. asked: how the student is asked, as the sender is in
    collection. Raises UserError, before training, when these do not fit each other.
    """
    taught = teacher_digest(teacher)
    fingerprint = {
        "config": asdict(config),
        "seed": seed,
        "student": weights_digest(model),
        "tokenizer": tokenizer_digest(tokenizer),
        "teacher": taught,
        "prompt": [asked.prompt_template, asked.chat_template],
        "tasks": tasks_digest(tasks),
        "messages": messages.digest,
    }
    student = build_student(model, tokenizer, teacher, messages, config, asked, seed=seed)
    student.record = replace(student.record, teacher_sha256=taught)
    validation = None
    if config.validation_share:
        tasks, held_out = _hold_out(tasks, config.validation_share, seed=seed)
        validation = _validation(held_out, messages, student, teacher, config, seed=seed)
    course = CompressionCourse(tasks, messages, student, teacher, config, seed=seed)
    objective = CompressionObjective(student, teacher, config)
    points = fit(
        objective,
        course,
        course.collate,
        torch.optim.AdamW(_parameter_groups(student, config), lr=config.learning_rate, fused=True),
        _schedule(config, seed),
        terms=TERMS,
        tokens=[totals.supervised for totals in course.totals],
        probe=dict,
        work=_work(output),
        fingerprint=fingerprint,
        watch=watch,
        validation=validation,
    )
    if teacher_digest(teacher) != taught:
        raise RuntimeError("the frozen actor was changed by the training of the student")
    if distributed.is_main():
        with atomic_directory(output) as folder:
            student.eval().save(folder)
            write_student_card(folder, student, points[-1], config, seed=seed)
        shutil.rmtree(_work(output))
    distributed.barrier()
    points = [{k: v for k, v in point.items() if is_deterministic(k)} for point in points]
    return Training(points, _final(points, course, student))


def build_student(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    teacher: Actor,
    messages: LatentStore,
    config: CompressConfig,
    asked: CollectConfig,
    *,
    seed: int,
) -> Compressor:
    """An untrained student for this teacher, in full precision where it learns.

    Raises UserError for a teacher that does not read as many rows, or reads none through an
    adapter, and for a student of another width where ``config`` allows no projector.
    """
    if teacher.adapter is None:
        raise UserError(
            "the actor has no adapter, through which a student is taught: train one with "
            "actor.kind=latent and train.adapter=true"
        )
    most, width = teacher.record.max_message_length, embedding_weight(model).shape[1]
    if most is not None and most < config.K:
        raise UserError(f"compress.K: the actor reads {most} rows of a message, found {config.K}")
    if width != teacher.sender_width and not config.projector:
        raise UserError(
            f"the student is {width} wide, the actor reads messages of width "
            f"{teacher.sender_width}: a projector is needed, set compress.projector to true"
        )
    record = CompressorRecord(
        steps=config.K,
        message_width=teacher.sender_width,
        prompt_template=asked.prompt_template,
        chat_template=asked.chat_template,
        sender=teacher.record.sender or Sender.of(messages),
    )
    torch.manual_seed(seed)
    student = Compressor(model, tokenizer, record, checkpointing=config.gradient_checkpointing)
    if output_head(model).weight is not embedding_weight(model):
        output_head(model).requires_grad_(False)  # no word is ever predicted
    to_full_precision(student)
    return student


def teacher_digest(teacher: Actor) -> str:
    """SHA-256 of all that the actor reads with."""
    parts = weights_digest(teacher.model) + (teacher.adapter.digest if teacher.adapter else "")
    return hashlib.sha256(parts.encode()).hexdigest()


def _work(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial")


def _schedule(config: CompressConfig, seed: int) -> Schedule:
    return Schedule(
        steps=config.steps,
        batch_size=config.batch_size,
        micro_batches=config.micro_batches,
        warmup_share=config.warmup_share,
        decay_share=config.decay_share,
        gradient_clip=config.gradient_clip,
        bf16=config.precision == "bf16",
        save_every=config.save_every,
        log_every=config.log_every,
        seed=seed,
    )


def _parameter_groups(student: Compressor, config: CompressConfig) -> list[dict[str, Any]]:
    """What is trained; only matrices decay."""
    parameters = [p for p in student.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def _hold_out(tasks: Sequence[Task], share: float, *, seed: int) -> tuple[list[Task], list[Task]]:
    """The tasks to train on, and a share of them that is not."""
    count = round(share * len(tasks))
    if not 0 < count < len(tasks):
        raise UserError(
            f"compress.validation_share: {share:g} of {len(tasks)} tasks are {count}: "
            "there must be some to train on and some to validate on"
        )
    shuffled = [tasks[i] for i in np.random.default_rng([seed, 1]).permutation(len(tasks))]
    return shuffled[count:], shuffled[:count]


def _validation(
    held_out: Sequence[Task],
    messages: LatentStore,
    student: Compressor,
    teacher: Actor,
    config: CompressConfig,
    *,
    seed: int,
) -> Validation:
    """The held-out tasks once over, in steps like those of training."""
    once = replace(config, steps=-(-len(held_out) // config.batch_size))
    course = CompressionCourse(held_out, messages, student, teacher, once, seed=seed)
    return Validation(
        course,
        course.collate,
        every=config.validate_every,
        patience=config.patience,
        keep_best=config.keep == "best",
    )


def _final(
    points: Sequence[dict[str, float]], course: CompressionCourse, student: Compressor
) -> dict[str, float | int]:
    """Means of the logged values over the end of the run, and sizes."""
    last = points[-max(1, round(LAST_SHARE * len(points))) :]
    means = {
        name: sum(point[name] for point in last) / len(last)
        for name in ("loss", *TERMS, "grad_norm")
    }
    return {
        **means,
        **validated(points, best=course.config.keep == "best"),
        "K": student.steps,
        "messages_shorter": course.shorter,
        "supervised_tokens": sum(t.supervised for t in course.totals[: int(last[-1]["step"])]),
        "parameters": sum(p.numel() for p in student.parameters()),
    }
