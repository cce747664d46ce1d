"""LoRA: what is trained, what is left alone, and what a checkpoint of it looks like."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from interlat.config import TrainConfig
from interlat.training.actor import build_actor, parameter_groups, train_actor
from interlat.training.lora import add_lora, marker_ids, merge
from interlat.training.trainer import Point
from training.toy import Toy, train

CONFIG = TrainConfig(
    steps=8,
    batch_size=8,
    learning_rate=2e-2,
    adapter_learning_rate=2e-2,
    log_every=2,
    save_every=4,
    lora_rank=4,
    lora_dropout=0.1,
)


@pytest.fixture(scope="module")
def trained(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("lora") / "actor"
    train(toy, output, CONFIG)
    return output


def test_the_checkpoint_is_the_base_model_with_layers_and_markers_changed(
    toy: Toy, trained: Path
) -> None:
    base = {name: p.detach() for name, p in toy.model().named_parameters()}
    weights = load_file(trained / "model.safetensors")
    assert weights.keys() == base.keys()
    markers = marker_ids(toy.tokenizer)
    for name, weight in weights.items():
        changed = weight != base[name]
        if name == "model.embed_tokens.weight":
            assert changed[markers].any(dim=1).all()
            changed[markers] = False
        if name.endswith("proj.weight"):
            assert changed.any(), name
        else:
            assert not changed.any(), name


def test_it_learns(toy: Toy, trained: Path, tmp_path: Path) -> None:
    points = train(toy, tmp_path / "actor", replace(CONFIG, steps=30)).points
    assert points[-1]["task"] < points[0]["task"] - 0.2


def test_only_updates_markers_and_adapter_are_trained(toy: Toy) -> None:
    actor = build_actor(toy.model(), toy.tokenizer, 32, CONFIG, seed=1)
    assert actor.adapter is not None
    adapter = sum(p.numel() for p in actor.adapter.parameters())
    width, feed_forward, layers, rank = 32, 64, 2, CONFIG.lora_rank
    projections = 4 * (width + width) + 3 * (width + feed_forward)
    add_lora(actor, CONFIG)
    count = sum(p.numel() for group in parameter_groups(actor, CONFIG) for p in group["params"])
    assert count == adapter + layers * rank * projections + 2 * width


def test_merging_changes_no_answer(toy: Toy) -> None:
    actor = build_actor(toy.model(), toy.tokenizer, 32, CONFIG, seed=1).eval()
    lora = add_lora(actor, CONFIG)
    lora.eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in lora.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 10
    ids_BT = torch.arange(len(toy.tokenizer))[None]
    with torch.no_grad():
        before = actor.logits(actor.hidden_states(actor.embed(ids_BT)))
        merge(lora)
        after = actor.logits(actor.hidden_states(actor.embed(ids_BT)))
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)
    plain = build_actor(toy.model(), toy.tokenizer, 32, CONFIG, seed=1).eval()
    assert actor.model.state_dict().keys() == plain.model.state_dict().keys()


def test_resumed_equals_uninterrupted(toy: Toy, trained: Path, tmp_path: Path) -> None:
    def stop(step: int, point: Point | None) -> None:
        if step == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_actor(
            toy.model(),
            toy.tokenizer,
            toy.material,
            CONFIG,
            seed=1,
            output=tmp_path / "actor",
            watch=stop,
        )
    checkpoint = tmp_path / "actor.partial" / "checkpoint-4" / "model.safetensors"
    assert not any("base_layer" in name for name in load_file(checkpoint))
    train(toy, tmp_path / "actor", CONFIG)
    for file in ("model.safetensors", "communication_adapter.safetensors"):
        resumed, expected = (load_file(folder / file) for folder in (tmp_path / "actor", trained))
        for name, weight in expected.items():
            assert torch.equal(resumed[name], weight), name
