"""Training an actor, whole runs on the toy task."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from interlat.chat import render
from interlat.config import TrainConfig, UserError
from interlat.models.actor import Actor, embedding_weight
from interlat.training.actor import Training, build_actor, parameter_groups
from training import toy as toy_module
from training.toy import Toy, make_toy, train

CONFIG = TrainConfig(
    steps=12,
    batch_size=8,
    learning_rate=2e-2,
    adapter_learning_rate=2e-2,
    precision="fp32",
    mismatched_share=0.1,
    log_every=2,
    save_every=4,
    dropout=0.1,
)
GOLDEN = {
    "loss": [3.8431, 2.9489, 2.5401, 2.3671, 2.1289, 2.0436],
    "task_own": [3.698, 2.8187, 2.4468, 2.214, 2.0109, 1.9272],
    "task_other": [3.6887, 2.7848, 2.3684, 2.2202, 1.9583, 1.8686],
    "alignment": [0.00087474, 9.7246e-06, 2.7458e-06, 1.752e-05, 0.0029307, 0.0029972],
    "grad_norm": [3.161, 1.4965, 0.70673, 0.80233, 1.6715, 1.4604],
}


@pytest.fixture(scope="module")
def finished(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Training]:
    output = tmp_path_factory.mktemp("finished") / "actor"
    return output, train(toy, output, CONFIG)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{file}/{name}": tensor
        for file in ("model.safetensors", "communication_adapter.safetensors")
        for name, tensor in load_file(folder / file).items()
    }


def test_losses_are_the_golden_ones(finished: tuple[Path, Training]) -> None:
    """A change that should not change numbers must reproduce these."""
    points = finished[1].points
    for name, expected in GOLDEN.items():
        assert [point[name] for point in points] == pytest.approx(expected, rel=2e-3, abs=1e-4)


def test_it_leaves_an_actor_and_nothing_else(finished: tuple[Path, Training]) -> None:
    output, _ = finished
    assert [path.name for path in output.parent.iterdir()] == ["actor"]
    names = {path.name for path in output.iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "communication_adapter.safetensors",
        "communication_adapter.json",
        "tokenizer.json",
    } <= names
    assert not any(name.endswith((".pt", ".pth", ".bin", ".pkl")) for name in names)
    assert Actor.load(output).sender_width == 32


def test_final_numbers_sum_up_the_run(finished: tuple[Path, Training]) -> None:
    _, training = finished
    last = training.points[-1]
    assert last["step"] == 12
    assert training.final["loss"] == last["loss"]
    assert training.final["adapter_output_scale"] == last["adapter_output_scale"]
    counts = [v for k, v in training.final.items() if k.startswith("samples_")]
    assert sum(counts) == 12 * 8
    assert not any("per_second" in name for name in (*training.final, *last))


def test_points_make_a_table(finished: tuple[Path, Training]) -> None:
    header, *rows = finished[1].csv().splitlines()
    assert header.split(",")[:2] == ["step", "loss"]
    assert [row.split(",")[0] for row in rows] == ["2", "4", "6", "8", "10", "12"]


@pytest.mark.slow
def test_the_actor_learns_to_go_where_its_message_says(tmp_path: Path) -> None:
    """Nothing else in the toy task tells tasks apart, so only the message can decide."""
    toy = make_toy(tmp_path)
    config = TrainConfig(
        steps=300,
        batch_size=24,
        learning_rate=3e-3,
        adapter_learning_rate=3e-3,
        precision="fp32",
        none_share=0.1,
        uninformed_share=0.1,
    )
    training = train(toy, tmp_path / "actor", config)
    assert training.final["accuracy_own"] > 0.98
    actor = Actor.load(tmp_path / "actor")
    task = toy.material.tasks[5]
    for heard in (5, 6, 20):
        place = toy.material.tasks[heard].conversations[1]["value"]
        assert place_said(actor, toy, task.task_id, f"toy-{heard}") == place


def place_said(actor: Actor, toy: Toy, task_id: str, heard: str) -> str:
    """The actor's first reply in a task when it hears some task's message."""
    task = next(task for task in toy.material.tasks if task.task_id == task_id)
    (rows_LD,) = actor.message_rows([toy.material.messages.get(heard).hidden_LD])
    rendered = render(
        actor.tokenizer, task.conversations[:1], message=len(rows_LD), add_generation_prompt=True
    )
    ids_BT = torch.tensor([rendered.token_ids])
    slots_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    slots_BT[0, list(rendered.slots)] = True
    with torch.no_grad():
        embeds_BTD = actor.embed(ids_BT, slots_BT, rows_LD)
        reply = actor.model.generate(inputs_embeds=embeds_BTD, max_new_tokens=6, do_sample=False)
    return str(actor.tokenizer.decode(reply[0], skip_special_tokens=True))


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_actor(
    finished: tuple[Path, Training], tmp_path: Path
) -> None:
    command = [sys.executable, toy_module.__file__, str(tmp_path), json.dumps(asdict(CONFIG))]
    checkpoint = tmp_path / "actor.partial" / "checkpoint-8" / "complete"
    process = subprocess.Popen(command, env={**os.environ, "TOY_PAUSE_AT": "9"})
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "actor").exists()
    subprocess.run(command, check=True, env={**os.environ, "TOY_EXPECT_FIRST": "9"})
    output, training = finished
    assert json.loads((tmp_path / "points.json").read_text()) == training.points
    resumed = weights(tmp_path / "actor")
    for name, expected in weights(output).items():
        assert torch.equal(resumed[name], expected), name


@pytest.mark.slow
def test_two_ranks_train_what_one_does(toy: Toy, tmp_path: Path) -> None:
    config = replace(CONFIG, dropout=0.0)
    alone = train(toy, tmp_path / "alone", config)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    rendezvous = ["--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"]
    script = [toy_module.__file__, str(tmp_path), json.dumps(asdict(config))]
    subprocess.run([*torchrun, *rendezvous, *script], check=True, env=dict(os.environ))
    points = json.loads((tmp_path / "points.json").read_text())
    for shared, expected in zip(points, alone.points, strict=True):
        assert shared == pytest.approx(expected, rel=1e-3, abs=1e-5)
    together = weights(tmp_path / "actor")
    for name, expected in weights(tmp_path / "alone").items():
        torch.testing.assert_close(together[name], expected, atol=2e-4, rtol=1e-2)


def test_model_and_adapter_have_their_own_rates_and_only_matrices_decay(toy: Toy) -> None:
    config = TrainConfig(learning_rate=0.1, adapter_learning_rate=0.2, weight_decay=0.3)
    actor = build_actor(toy.model(), toy.tokenizer, 32, config, seed=1)
    groups = parameter_groups(actor, config)
    count = sum(p.numel() for group in groups for p in group["params"])
    assert count == sum(p.numel() for p in actor.parameters())
    assert actor.adapter is not None
    adapter = {id(p) for p in actor.adapter.parameters()}
    for group in groups:
        for parameter in group["params"]:
            assert group["lr"] == (0.2 if id(parameter) in adapter else 0.1)
            assert group["weight_decay"] == (0.3 if parameter.ndim > 1 else 0.0)


def test_messages_of_another_width_get_a_projector(tmp_path: Path) -> None:
    toy = make_toy(tmp_path, sender_width=20)
    train(toy, tmp_path / "actor", replace(CONFIG, steps=2))
    actor = Actor.load(tmp_path / "actor")
    assert actor.sender_width == 20
    assert actor.message_rows([torch.randn(3, 20)])[0].shape == (3, 32)


def test_an_actor_of_another_family_gets_markers_and_the_scale_of_its_embeddings(
    toy: Toy, tiny_checkpoint: Path
) -> None:
    tokenizer = Actor.load(tiny_checkpoint).tokenizer
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            initializer_range=0.07,
        )
    )
    actor = build_actor(model, tokenizer, 32, CONFIG, seed=1).eval()
    rows_LD = actor.message_rows([torch.randn(300, 32)])[0]
    assert rows_LD.std().item() == pytest.approx(embedding_weight(model).std().item(), rel=0.03)


def test_heads_that_do_not_divide_the_width_are_refused(toy: Toy) -> None:
    config = replace(CONFIG, heads=5)
    with pytest.raises(UserError, match=r"train\.heads: 5 does not divide the model's width 32"):
        build_actor(toy.model(), toy.tokenizer, 32, config, seed=1)


def test_nothing_is_written_when_the_material_does_not_fit(toy: Toy, tmp_path: Path) -> None:
    tasks = [replace(toy.material.tasks[0], task_id="unheard"), *toy.material.tasks]
    broken = toy._replace(material=replace(toy.material, tasks=tasks))
    with pytest.raises(UserError, match=r"no latents for 1 of 49 tasks \(unheard\)"):
        train(broken, tmp_path / "actor", CONFIG)
    assert list(tmp_path.iterdir()) == []
