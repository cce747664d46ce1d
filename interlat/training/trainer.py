"""The Hugging Face Trainer (accelerate underneath), bound to objectives that normalise themselves.

An objective divides by the counts of a whole step, so gradients are summed, not averaged, over
ranks and micro-batches. Checkpoints lie in a work folder outside the stage's output; one counts
only when its marker, written last, is there. A run that is killed and started again ends with the
same weights and logged points: the data are a function of the step, and random states are kept.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import TrainingArguments
from transformers.trainer_callback import TrainerState

from interlat import distributed
from interlat.config import Backend, UserError
from interlat.files import atomic_write_json, read_json
from interlat.training.backends import reading_of_checkpoints, restore, trainer_arguments
from interlat.training.loop import (
    COMPLETE,
    TIMINGS,
    WEIGHTS,
    Collate,
    EarlyStopping,
    SummingTrainer,
)
from interlat.training.loop import Point as Point
from interlat.training.loop import Validation as Validation
from interlat.training.loop import Watcher as Watcher

log = logging.getLogger(__name__)
FINGERPRINT, STATE = "fingerprint.json", "trainer_state.json"


@dataclass(frozen=True)
class Schedule:
    """How long, how fast, how often to log and save.

    decay_share: steps at the end over which the rate falls to zero, as half a cosine; before them,
    after the warm-up, it is constant. batch_size: samples of a step, over all ranks.
    micro_batches: passes that each rank cuts its part of them into, to save memory.
    """

    steps: int
    batch_size: int
    micro_batches: int
    warmup_share: float
    decay_share: float
    gradient_clip: float
    bf16: bool
    save_every: int
    log_every: int
    seed: int
    backend: Backend = "ddp"


@dataclass(frozen=True)
class Training:
    """What a finished run has to say: points by step, and final numbers; no timings in either."""

    points: list[Point]
    final: dict[str, float | int]

    def csv(self) -> str:
        """The points as a table, the step first; empty where a point lacks a value."""
        names = list(dict.fromkeys(["step", *(name for point in self.points for name in point)]))
        rows = [
            ",".join(f"{point[name]:.6g}" if name in point else "" for name in names)
            for point in self.points
        ]
        return "\n".join([",".join(names), *rows, ""])


def fit(
    objective: nn.Module,
    data: Dataset[Any],
    collate: Collate,
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    *,
    terms: Sequence[str],
    tokens: Sequence[int] | None,
    probe: Callable[[], Point],
    work: Path,
    fingerprint: Mapping[str, Any],
    watch: Watcher,
    validation: Validation | None = None,
) -> list[Point]:
    """Train until ``schedule.steps``, resuming from ``work`` what has the same fingerprint.

    data: all samples in order, batch_size of them a step. terms: names of the objective's terms;
    tokens: supervised tokens of each step, where throughput is wanted; probe: further values to
    log, read from the model.
    Returns the logged points, one every ``log_every`` steps, timings included; the points of
    validated steps have ``validation_loss`` and the terms' like, too. The objective holds the
    weights to keep: all of them on rank 0, whatever the backend; other ranks may have shards.
    Raises UserError when the processes and micro-batches do not divide the batch, or the backend
    cannot be had.
    """
    world = distributed.world_size()
    if schedule.batch_size % (world * schedule.micro_batches):
        raise UserError(
            f"a batch of {schedule.batch_size} samples cannot be shared by {world} processes with "
            f"{schedule.micro_batches} micro-batches each: choose a batch size that they divide"
        )
    arguments = _arguments(schedule, validation, work, objective)
    checkpoint = _prepare(work, fingerprint)
    shapes = {name: p.shape for name, p in objective.named_parameters(remove_duplicate=False)}
    trainer = SummingTrainer(objective, arguments, data, collate, validation, watch)
    trainer.follow(optimizer, terms, tokens, probe)
    if checkpoint is not None:
        log.info("resuming from %s", checkpoint)
    if checkpoint is not None and _has_stopped(checkpoint):
        trainer.state = TrainerState.load_from_json(str(checkpoint / STATE))
        restore(objective, _read(checkpoint, objective), shapes)
    else:
        with reading_of_checkpoints(schedule.backend):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            trainer.gather(shapes)
    best = trainer.state.best_model_checkpoint
    if validation is not None and validation.keep_best and best is not None:
        restore(objective, _read(Path(best), objective), shapes)
    return _points(trainer.state.log_history)


def is_deterministic(name: str) -> bool:
    """Whether a logged value is the same in every run of the same commit."""
    return name not in TIMINGS


def _arguments(
    schedule: Schedule, validation: Validation | None, work: Path, objective: nn.Module
) -> TrainingArguments:
    world, every = distributed.world_size(), schedule.log_every
    batch = schedule.batch_size // world // schedule.micro_batches

    def logged(steps: int) -> int:
        """Sums since the last logged point are not saved: whatever is done is done at points."""
        return -(-steps // every) * every

    save_every = schedule.save_every
    validating: dict[str, Any] = {}
    if validation is not None:
        save_every = validation.every if validation.keep_best else save_every
        validating = {
            "eval_strategy": "steps",
            "eval_steps": logged(validation.every),
            "metric_for_best_model": "loss",
            "greater_is_better": False,
            "restore_callback_states_from_checkpoint": True,
        }
    return TrainingArguments(
        output_dir=str(work),
        max_steps=schedule.steps,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        gradient_accumulation_steps=schedule.micro_batches,
        warmup_steps=round(schedule.warmup_share * schedule.steps),
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": round(schedule.decay_share * schedule.steps)},
        max_grad_norm=schedule.gradient_clip,
        bf16=schedule.bf16,
        use_cpu=next(objective.parameters()).device.type == "cpu",
        seed=schedule.seed,
        logging_steps=every,
        logging_nan_inf_filter=False,
        save_steps=logged(save_every),
        save_total_limit=2,
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
        **validating,
        **trainer_arguments(schedule.backend, objective),
    )


def _read(checkpoint: Path, objective: nn.Module) -> dict[str, Tensor]:
    """The weights of a checkpoint, where the objective's are."""
    device = next(objective.parameters()).device
    return load_file(checkpoint / WEIGHTS, device=str(device))


def _points(history: Sequence[Point]) -> list[Point]:
    """The logged points, with what was validated at the same step in one."""
    validated = {p["step"]: p for p in history if "validation_loss" in p}
    return [point | validated.get(point["step"], {}) for point in history if "loss" in point]


def _has_stopped(checkpoint: Path) -> bool:
    """Whether training had ended early when the checkpoint was written."""
    callbacks = read_json(checkpoint / STATE)["stateful_callbacks"]
    stopping = callbacks.get(EarlyStopping.__name__)
    if stopping is None:
        return False
    waited = stopping["attributes"]["early_stopping_patience_counter"]
    return bool(waited >= stopping["args"]["early_stopping_patience"])


def _prepare(work: Path, fingerprint: Mapping[str, Any]) -> Path | None:
    """Drop another run's work and unfinished checkpoints; the newest checkpoint, if any."""
    if distributed.is_main():
        stored = work / FINGERPRINT
        if not stored.is_file() or read_json(stored) != dict(fingerprint):
            shutil.rmtree(work, ignore_errors=True)
            atomic_write_json(stored, dict(fingerprint))
        for folder in work.glob("checkpoint-*"):
            if not (folder / COMPLETE).is_file():
                shutil.rmtree(folder)
    distributed.barrier()
    checkpoints = {int(f.name.rpartition("-")[2]): f for f in work.glob("checkpoint-*")}
    return checkpoints[max(checkpoints)] if checkpoints else None
