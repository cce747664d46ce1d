"""The Hugging Face Trainer (accelerate underneath), bound to objectives that normalise themselves.

An objective divides by the counts of a whole step, so gradients are summed, not averaged, over
ranks and micro-batches. Checkpoints lie in a work folder outside the stage's output; one counts
only when its marker, written last, is there. A run that is killed and started again ends with the
same weights and logged points: the data are a function of the step, and random states are kept.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler, SequentialSampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import TrainerControl, TrainerState

from interlat import distributed
from interlat.config import UserError
from interlat.files import atomic_write_json, atomic_write_text, read_json

log = logging.getLogger(__name__)
FINGERPRINT, COMPLETE, WEIGHTS = "fingerprint.json", "complete", "model.safetensors"
TIMINGS = frozenset({"supervised_tokens_per_second"})
"""Logged points that differ from run to run."""

Point = dict[str, float]


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


@dataclass(frozen=True)
class Training:
    """What a finished run has to say: points by step, and final numbers; no timings in either."""

    points: list[Point]
    final: dict[str, float | int]

    def csv(self) -> str:
        """The points as a table, the step first."""
        names = ["step", *(name for name in self.points[0] if name != "step")]
        rows = [",".join(f"{point[name]:.6g}" for name in names) for point in self.points]
        return "\n".join([",".join(names), *rows, ""])


class Output(Protocol):
    """What an objective's forward pass returns."""

    loss: Tensor
    terms: Tensor


class Watcher(Protocol):
    """Told after every step, with a point where one was logged."""

    def __call__(self, step: int, point: Point | None, /) -> None: ...


def fit(
    objective: nn.Module,
    data: Dataset[Any],
    collate: Callable[[Sequence[Any]], dict[str, Any]],
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    *,
    terms: Sequence[str],
    tokens: Sequence[int] | None,
    probe: Callable[[], Point],
    work: Path,
    fingerprint: Mapping[str, Any],
    watch: Watcher,
) -> list[Point]:
    """Train until ``schedule.steps``, resuming from ``work`` what has the same fingerprint.

    data: all samples in order, batch_size of them a step. terms: names of the objective's terms;
    tokens: supervised tokens of each step, where throughput is wanted; probe: further values to
    log, read from the model.
    Returns the logged points, one every ``log_every`` steps, timings included.
    Raises UserError when the processes and micro-batches do not divide the batch.
    """
    world = distributed.world_size()
    if schedule.batch_size % (world * schedule.micro_batches):
        raise UserError(
            f"a batch of {schedule.batch_size} samples cannot be shared by {world} processes with "
            f"{schedule.micro_batches} micro-batches each: choose a batch size that they divide"
        )
    checkpoint = _prepare(work, fingerprint)
    trainer = _SummingTrainer(
        model=objective,
        args=_arguments(schedule, work, next(objective.parameters()).device, world),
        train_dataset=data,
        data_collator=collate,
        optimizers=(optimizer, None),
        callbacks=[_Watch(watch)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.follow(terms, tokens, probe)
    if checkpoint is not None:
        log.info("resuming from %s", checkpoint)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return [point for point in trainer.state.log_history if "loss" in point]


def is_deterministic(name: str) -> bool:
    """Whether a logged value is the same in every run of the same commit."""
    return name not in TIMINGS


def _arguments(
    schedule: Schedule, work: Path, device: torch.device, world: int
) -> TrainingArguments:
    every = schedule.log_every
    return TrainingArguments(
        output_dir=str(work),
        max_steps=schedule.steps,
        per_device_train_batch_size=schedule.batch_size // world // schedule.micro_batches,
        gradient_accumulation_steps=schedule.micro_batches,
        warmup_steps=round(schedule.warmup_share * schedule.steps),
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": round(schedule.decay_share * schedule.steps)},
        max_grad_norm=schedule.gradient_clip,
        bf16=schedule.bf16,
        use_cpu=device.type == "cpu",
        seed=schedule.seed,
        logging_steps=every,
        logging_nan_inf_filter=False,
        # Sums since the last logged point are not saved, so points and checkpoints coincide.
        save_steps=-(-schedule.save_every // every) * every,
        save_total_limit=2,
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
        # A rank whose samples carry no message does not use the adapter.
        ddp_find_unused_parameters=world > 1,
    )


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


class _SummingTrainer(Trainer):
    """A Trainer that adds up losses and logs an objective's terms."""

    loss_is_scaled_for_ga = True

    def follow(
        self, terms: Sequence[str], tokens: Sequence[int] | None, probe: Callable[[], Point]
    ) -> None:
        """Say what there is to log."""
        self._terms, self._tokens, self._probe = terms, tokens, probe
        self._sums = torch.zeros(len(terms), device=self.args.device)
        self._last: tuple[int, float] | None = None

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """This rank's part of the step's loss, times the ranks that average their gradients."""
        if self._last is None:
            self._last = self.state.global_step, time.perf_counter()
        output: Output = model(**inputs)
        self._sums += output.terms
        return output.loss * distributed.world_size()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the terms' means since the last point; the Trainer's closing remarks are dropped."""
        if "loss" not in logs or self._last is None:
            return
        (step, then), now = self._last, time.perf_counter()
        means = self.accelerator.reduce(self._sums, "sum") / (self.state.global_step - step)
        logs |= dict(zip(self._terms, means.tolist(), strict=True)) | self._probe()
        if self._tokens is not None:
            supervised = sum(self._tokens[step : self.state.global_step])
            logs["supervised_tokens_per_second"] = supervised / max(now - then, 1e-9)
        self._sums.zero_()
        self._last = self.state.global_step, now
        super().log(logs)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Leave a batch as it is: accelerate's loader has placed it, whatever its types."""
        return inputs

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return SequentialSampler(cast(Sized, self.train_dataset))

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if self.args.should_save and output_dir is not None:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            save_model(cast(nn.Module, self.model), str(Path(output_dir) / WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_model(cast(nn.Module, self.model), Path(resume_from_checkpoint) / WEIGHTS)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        distributed.barrier()
        if self.args.should_save:
            folder = f"{self.args.output_dir}/checkpoint-{self.state.global_step}"
            atomic_write_text(Path(folder) / COMPLETE, "")


class _Watch(TrainerCallback):
    """Passes steps and points on, on rank 0."""

    def __init__(self, watch: Watcher) -> None:
        self._watch = watch

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Tell that a step is done; the last one is always logged."""
        control.should_log |= state.global_step == state.max_steps
        if state.is_world_process_zero:
            self._watch(state.global_step, None)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Tell the point that was logged."""
        if state.is_world_process_zero:
            self._watch(state.global_step, state.log_history[-1])
