"""Where weights and optimizer states lie while a model is trained.

Whole on every process (ddp), or sharded over them by DeepSpeed (zero2, zero3) or by torch (fsdp2),
as files in conf/train/ say in those libraries' own words; "auto" there is filled by the Trainer.
Sharded weights are gathered for checkpoints, so a checkpoint never tells how it was trained.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import DistributedType
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from interlat import distributed
from interlat.config import Backend, UserError
from interlat.files import read_json

FILES: Mapping[Backend, Path] = {
    "zero2": Path("conf/train/deepspeed/zero2.json"),
    "zero3": Path("conf/train/deepspeed/zero3.json"),
    "fsdp2": Path("conf/train/torch/fsdp2.json"),
}

FORCE_DATA_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def trainer_arguments(backend: Backend, module: nn.Module) -> dict[str, Any]:
    """What the Trainer must be told to train ``module`` with a backend.

    Raises UserError when there is nothing to shard over, or no file that says how.
    """
    if backend == "ddp":
        # A rank whose samples carry no message does not use the adapter.
        return {"ddp_find_unused_parameters": distributed.world_size() > 1}
    if distributed.world_size() == 1:
        raise UserError(
            f"train.backend: {backend} shards over processes, and there is one: "
            "raise launch.processes, or set train.backend to ddp"
        )
    path = FILES[backend]
    if not path.is_file():
        raise UserError(f"train.backend: {backend} needs {path}; run in the project's folder")
    settings = read_json(path)
    if backend == "fsdp2":
        layers = {"transformer_layer_cls_to_wrap": sorted(_layer_classes(module))}
        return {"fsdp": True, "fsdp_config": {**settings, **layers}}
    _compile_nothing_on_cpu()
    return {"deepspeed": settings}


def reading_of_checkpoints(backend: Backend) -> AbstractContextManager[None]:
    """Where checkpoints are read to go on from: as data, none of them is executed."""
    return nullcontext() if backend in ("ddp", "fsdp2") else _reading_of_deepspeed()


def shard_on_cpu(accelerator: Accelerator, plugin: FullyShardedDataParallelPlugin) -> None:
    """Have an accelerator on CPUs shard with FSDP2, which it does by itself on GPUs only."""
    accelerator.state.fsdp_plugin = plugin
    for state in (accelerator.state, PartialState()):
        state.distributed_type = DistributedType.FSDP


def to_full_precision(module: nn.Module) -> None:
    """Make what is trained float32, in place: in half precision a small step rounds to none."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def scalars_to_vectors(module: nn.Module) -> None:
    """Give parameters without a dimension one, in place: none can be sharded."""
    for parameter in module.parameters():
        if parameter.ndim == 0:
            parameter.data = parameter.data.reshape(1)


def whole(parameter: Tensor) -> Tensor:
    """A parameter's value, gathered from all ranks where it is sharded by FSDP2."""
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def restore(module: nn.Module, weights: Mapping[str, Tensor], shapes: Mapping[str, Any]) -> None:
    """Put ``weights`` in the place of a module's parameters, sharded or not; ties stay.

    shapes: of the parameters before anything was sharded. Parameters that are not named stay.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for tied in names.values():
        if found := [weights[name] for name in tied if name in weights]:
            parameter = nn.Parameter(found[0].reshape(shapes[tied[0]]), requires_grad=False)
            for name in tied:
                owner, _, own_name = name.rpartition(".")
                setattr(module.get_submodule(owner), own_name, parameter)


def buffers_to_cpu(module: nn.Module) -> None:
    """Move buffers to where gathered weights are."""
    for name, buffer in list(module.named_buffers()):
        owner, _, own_name = name.rpartition(".")
        setattr(module.get_submodule(owner), own_name, buffer.cpu())


@contextmanager
def _reading_of_deepspeed() -> Iterator[None]:
    """Keep DeepSpeed from unpickling whatever a checkpoint names but two classes of its own.

    Models that are loaded afterwards are not sharded, as they would be while its settings stand.
    """
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum

    def stage(kind: Any, name: str) -> ZeroStageEnum:
        """What some versions of Python write an enumeration's member as: getattr(kind, name)."""
        if kind is not ZeroStageEnum:
            raise ValueError(f"a checkpoint asks for {name} of {kind}")
        return ZeroStageEnum[name]

    readable = [LossScaler, ZeroStageEnum, (stage, "builtins.getattr")]
    os.environ[FORCE_DATA_ONLY] = "1"
    try:
        with torch.serialization.safe_globals(readable):
            yield
    finally:
        del os.environ[FORCE_DATA_ONLY]
        unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]


def _layer_classes(module: nn.Module) -> set[str]:
    """Names of the layers that are sharded each by itself."""
    models = [m for m in module.modules() if isinstance(m, PreTrainedModel)]
    return {name for model in models for name in model._no_split_modules or ()}


def _compile_nothing_on_cpu() -> None:
    """Keep DeepSpeed from compiling its shared-memory collectives, which gloo replaces."""
    if torch.cuda.is_available():
        return
    from deepspeed import ops

    ops.__compatible_ops__["deepspeed_shm_comm"] = False
