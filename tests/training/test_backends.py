"""Sharding weights over processes changes where they lie, not what they become."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from deepspeed.runtime.config import DeepSpeedConfig
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy
from transformers import TrainingArguments

from interlat.config import Backend, TrainConfig, UserError
from interlat.files import read_json
from interlat.models.actor import Actor
from interlat.training.backends import FILES, restore, scalars_to_vectors, trainer_arguments
from training import toy as toy_module
from training.toy import Toy, train

CONFIG = TrainConfig(
    steps=8,
    batch_size=8,
    learning_rate=1e-2,
    adapter_learning_rate=1e-2,
    mismatched_share=0.1,
    log_every=2,
    save_every=4,
)
LORA = {"lora_rank": 4, "gradient_checkpointing": True}
BEST = {"validation_share": 0.25, "validate_every": 4, "keep": "best"}
SMALL = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0}
OFFLOAD = {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}


def run(folder: Path, config: TrainConfig, **environment: str) -> int:
    """Train on two processes; the exit status."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    rendezvous = ["--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"]
    script = [toy_module.__file__, str(folder), json.dumps(asdict(config))]
    command = [*torchrun, *rendezvous, *script]
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "settings", "killed"),
    [("zero2", BEST, False), ("zero3", LORA, True), ("fsdp2", {"micro_batches": 2}, True)],
)
def test_two_sharded_ranks_train_what_one_whole_one_does(
    toy: Toy, tmp_path: Path, backend: Backend, settings: dict[str, object], killed: bool
) -> None:
    """With what else must not matter: LoRA, accumulation, the best checkpoint, a kill half-way."""
    config = replace(CONFIG, **settings)  # type: ignore[arg-type]
    alone = train(toy, tmp_path / "alone", config)
    sharded = replace(config, backend=backend)
    if killed:
        assert run(tmp_path, sharded, TOY_DIE_AT="6") != 0
        assert not (tmp_path / "actor").exists()
    assert run(tmp_path, sharded, TOY_EXPECT_FIRST="5" if killed else "1") == 0
    points = json.loads((tmp_path / "points.json").read_text())
    for shared, expected in zip(points, alone.points, strict=True):
        assert shared == pytest.approx(expected, rel=1e-3, abs=1e-5)
    for file in ("model.safetensors", "communication_adapter.safetensors"):
        together, expected_weights = (load_file(tmp_path / f / file) for f in ("actor", "alone"))
        assert together.keys() == expected_weights.keys()
        for name, weight in expected_weights.items():
            torch.testing.assert_close(together[name], weight, atol=2e-4, rtol=1e-2)
    assert Actor.load(tmp_path / "actor").sender_width == 32


@pytest.mark.parametrize("backend", ["zero2", "zero3"])
@pytest.mark.parametrize("offload", [{}, OFFLOAD])
def test_deepspeed_understands_its_files(backend: Backend, offload: dict[str, object]) -> None:
    settings = {**read_json(FILES[backend]), **SMALL, "gradient_accumulation_steps": 2}
    settings["bf16"] = {"enabled": True}
    stage = settings["zero_optimization"]["stage"]
    settings["zero_optimization"] |= offload if stage == 3 else {}
    config = DeepSpeedConfig(settings)
    assert config.zero_config.stage == int(backend[-1])
    assert config.bfloat16_config.enabled
    assert (config.zero_config.offload_param is not None) is (stage == 3 and bool(offload))


@pytest.mark.parametrize("offload", [False, True])
def test_accelerate_understands_the_file_of_fsdp2(offload: bool, tmp_path: Path) -> None:
    settings = {**read_json(FILES["fsdp2"]), "cpu_offload": offload}
    arguments = TrainingArguments(
        str(tmp_path), fsdp=True, fsdp_config=settings, use_cpu=True, report_to="none"
    )
    plugin = FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
    plugin.set_mixed_precision("bf16")
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward
    assert isinstance(plugin.cpu_offload, CPUOffloadPolicy) is offload
    assert plugin.mixed_precision_policy.param_dtype is torch.bfloat16


def test_layers_are_sharded_each_by_itself(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    arguments = trainer_arguments("fsdp2", nn.ModuleList([toy.model()]))
    layers = arguments["fsdp_config"]["transformer_layer_cls_to_wrap"]
    assert layers == ["Qwen2DecoderLayer"]


def test_one_process_has_nothing_to_shard_over() -> None:
    with pytest.raises(UserError, match=r"train\.backend: zero3 shards over processes"):
        trainer_arguments("zero3", nn.Linear(2, 2))


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"zero2 needs conf/train/deepspeed/zero2\.json"):
        trainer_arguments("zero2", nn.Linear(2, 2))


def test_restored_weights_have_their_shapes_and_ties_again() -> None:
    module = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    module["b"].weight = module["a"].weight
    module.register_parameter("scale", nn.Parameter(torch.tensor(1.0)))
    shapes = {name: p.shape for name, p in module.named_parameters(remove_duplicate=False)}
    scalars_to_vectors(module)
    assert module.scale.shape == (1,)
    restore(module, {"a.weight": torch.eye(2), "scale": torch.tensor([3.0])}, shapes)
    assert module.scale.item() == 3
    assert module.scale.shape == ()
    assert module["b"].weight is module["a"].weight
    assert torch.equal(module["b"].weight, torch.eye(2))
