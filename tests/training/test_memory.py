"""What saves memory changes no numbers: accumulation and gradient checkpointing."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from interlat.config import TrainConfig
from interlat.training.actor import train_actor
from training.toy import Toy, train, watch

CONFIG = TrainConfig(
    steps=6,
    batch_size=8,
    learning_rate=1e-2,
    adapter_learning_rate=1e-2,
    mismatched_share=0.1,
    alignment_cosine_weight=0.1,
    log_every=2,
)


@pytest.mark.parametrize("saving", [{"micro_batches": 4}, {"gradient_checkpointing": True}])
def test_saving_memory_changes_no_loss_and_no_weight(
    toy: Toy, tmp_path: Path, saving: dict[str, int]
) -> None:
    """Four micro-batches of two are one of eight, in every term; so is computing twice."""
    plain = train(toy, tmp_path / "plain", CONFIG)
    saved = train(toy, tmp_path / "saved", replace(CONFIG, **saving))  # type: ignore[arg-type]
    for point, expected in zip(saved.points, plain.points, strict=True):
        assert point == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for file in ("model.safetensors", "communication_adapter.safetensors"):
        found, wanted = (load_file(tmp_path / folder / file) for folder in ("saved", "plain"))
        for name, weight in wanted.items():
            torch.testing.assert_close(found[name], weight, atol=1e-4, rtol=1e-3)


def test_half_precision_is_near(toy: Toy, tmp_path: Path) -> None:
    exact = train(toy, tmp_path / "exact", CONFIG)
    half = train(toy, tmp_path / "half", replace(CONFIG, precision="bf16"))
    for point, expected in zip(half.points, exact.points, strict=True):
        assert point["task"] == pytest.approx(expected["task"], rel=0.05)


@pytest.mark.parametrize("rank", [0, 4])
def test_half_precision_weights_learn_in_full(toy: Toy, tmp_path: Path, rank: int) -> None:
    """A step of a hundred-thousandth would round to none in bfloat16."""
    config = replace(CONFIG, steps=2, precision="bf16", learning_rate=1e-5, lora_rank=rank)
    actor = train_actor(
        toy.model().to(torch.bfloat16),
        toy.tokenizer,
        toy.material,
        config,
        seed=1,
        output=tmp_path / "actor",
        watch=watch,
    )
    assert actor.final["grad_norm"] > 0
    weights = load_file(tmp_path / "actor" / "model.safetensors")
    start = toy.model().to(torch.bfloat16).state_dict()
    name = "model.embed_tokens.weight"
    assert weights[name].dtype == (torch.bfloat16 if rank else torch.float32)
    assert rank or (weights[name] != start[name]).any()
