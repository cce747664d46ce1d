"""The Trainer underneath: it adds up losses, logs an objective's terms and validates by them."""

import time
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from accelerate import FullyShardedDataParallelPlugin
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import TrainerControl, TrainerState

from interlat import distributed
from interlat.files import atomic_write_text
from interlat.training.backends import buffers_to_cpu, restore, scalars_to_vectors, shard_on_cpu

COMPLETE, WEIGHTS = "complete", "model.safetensors"
"""Files of a checkpoint: its marker, and what is trained."""
TIMINGS = frozenset({"supervised_tokens_per_second"})
"""Logged points that differ from run to run."""

Point = dict[str, float]
Collate = Callable[[Sequence[Any]], dict[str, Any]]


@dataclass(frozen=True)
class Validation:
    """Samples that are not trained on, in steps of the same size, and what follows from them.

    every: steps between two looks, and after the last step. patience: looks without a lower loss
    after which training ends, 0 for none. keep_best: end with the weights of the lowest loss, not
    the last ones; checkpoints are then as frequent as validations.
    """

    data: Dataset[Any]
    collate: Collate
    every: int
    patience: int = 0
    keep_best: bool = False


class Output(Protocol):
    """What an objective's forward pass returns."""

    loss: Tensor
    terms: Tensor


class Watcher(Protocol):
    """Told after every step, and of every point that is logged."""

    def __call__(self, step: int, point: Point | None, /) -> None: ...


class SummingTrainer(Trainer):
    """A Trainer that adds up losses, logs an objective's terms and validates by them."""

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        objective: nn.Module,
        arguments: TrainingArguments,
        data: Dataset[Any],
        collate: Collate,
        validation: Validation | None,
        watch: Watcher,
    ) -> None:
        super().__init__(
            model=objective,
            args=arguments,
            train_dataset=data,
            eval_dataset=validation and validation.data,
            data_collator=collate,
            callbacks=[_Watch(watch)],
        )
        self.remove_callback(PrinterCallback)
        self._collate_validation = validation.collate if validation else None
        if validation is not None and validation.patience:
            self.add_callback(EarlyStopping(validation.patience))
        self._trained = [name for name, p in objective.named_parameters() if p.requires_grad]
        if arguments.fsdp or arguments.deepspeed:
            scalars_to_vectors(objective)

    def follow(
        self,
        optimizer: torch.optim.Optimizer,
        terms: Sequence[str],
        tokens: Sequence[int] | None,
        probe: Callable[[], Point],
    ) -> None:
        """Say how to learn and what there is to log."""
        self._chosen = optimizer
        self._terms, self._tokens, self._probe = terms, tokens, probe
        self._sums = torch.zeros(len(terms), device=self.args.device)
        self._last: tuple[int, float] | None = None

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.fsdp and not self.is_fsdp_enabled:
            plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
            shard_on_cpu(self.accelerator, plugin)
            self.is_fsdp_enabled = True

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        self.optimizer = self._chosen
        return self.optimizer

    def gather(self, shapes: Mapping[str, Any]) -> None:
        """Give rank 0 its module whole again, where training has sharded it."""
        if self.args.fsdp or self.args.deepspeed:
            weights = self.accelerator.get_state_dict(self.model_wrapped)
            if self.args.should_save:
                restore(cast(nn.Module, self.model), weights, shapes)
                buffers_to_cpu(cast(nn.Module, self.model))

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

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """The means over steps of validation of the loss and its terms; they are logged, too."""
        loader = self.get_eval_dataloader()
        passes = len(loader) // self.args.gradient_accumulation_steps
        names = ("loss", *self._terms)
        sums = torch.zeros(len(names), device=self.args.device)
        self.model_wrapped.eval()
        with torch.no_grad():
            for inputs in loader:
                output: Output = self.model_wrapped(**inputs)
                sums += torch.cat([output.loss.reshape(1).float(), output.terms])
        means = (self.accelerator.reduce(sums, "sum") / passes).tolist()
        super().log({f"validation_{k}": v for k, v in zip(names, means, strict=True)})
        metrics = {f"{metric_key_prefix}_{k}": v for k, v in zip(names, means, strict=True)}
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        self._last = self.state.global_step, time.perf_counter()
        return metrics

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

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Validation's samples in order; its loader draws from no one else's random numbers."""
        loader = DataLoader(
            cast(Dataset[Any], self.eval_dataset),
            batch_size=self.args.per_device_eval_batch_size,
            collate_fn=self._collate_validation,
            generator=torch.Generator(),
        )
        return cast(DataLoader[Any], self.accelerator.prepare_data_loader(loader))

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Leave a batch as it is: accelerate's loader has placed it, whatever its types."""
        return inputs

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return SequentialSampler(cast(Sized, self.train_dataset))

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save what is trained; state_dict: the gathered weights, where they are sharded."""
        if not self.args.should_save or output_dir is None:
            return
        weights = state_dict or cast(nn.Module, self.model).state_dict()
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        trained = {name: weights[name].contiguous() for name in self._trained}
        save_file(trained, Path(output_dir) / WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self.is_fsdp_enabled:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        weights = load_file(Path(resume_from_checkpoint) / WEIGHTS)
        cast(nn.Module, self.model).load_state_dict(weights, strict=False)

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


class EarlyStopping(EarlyStoppingCallback):
    """Ends training after so many validations without a lower loss."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Leave out advice about the Trainer's own way to keep the best weights."""
