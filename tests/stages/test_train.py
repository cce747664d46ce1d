"""The documents' own command trains on a user's own data, and leaves the pipeline's files alone."""

import importlib.util
import json
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner, Result

from interlat.latents.message import Message
from interlat.latents.writer import LatentWriter
from interlat.models.actor import Actor

ROOT = Path(__file__).parent.parent.parent
TASKS, WIDTH = 8, 24
SMALL = ["--set", "launch.processes=1", "--batch_size", "4", "--micro_batches", "1"]


def write_store(path: Path, tasks: int, digest: str = "a" * 64) -> None:
    model = {"name": "teacher", "weights_sha256": digest}
    writer = LatentWriter(path, {"model": model}, width=WIDTH, dtype="float16")
    writer.claim()
    generator = torch.Generator().manual_seed(1)
    writer.write_piece(
        0,
        [
            Message(f"t{i}", torch.randn(5, WIDTH, generator=generator), "find mug 1", n_tokens=5)
            for i in range(tasks)
        ],
    )
    writer.publish(1, parquet=False)


@pytest.fixture
def workspace(tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One's own data: a JSON list of conversations, and messages of a wider sender."""
    turns = [
        {"from": "human", "value": "you see mug 1"},
        {"from": "gpt", "value": "OK"},
        {"from": "human", "value": "find the mug"},
        {"from": "gpt", "value": "take mug 1"},
    ]
    records = [{"id": f"t{i}", "conversations": turns} for i in range(TASKS)]
    (tmp_path / "training_data.json").write_text(json.dumps(records))
    write_store(tmp_path / "hidden_states", TASKS)
    (tmp_path / "params.yaml").write_text("train: {heads: 4, log_every: 1}\n")
    (tmp_path / "tiny").symlink_to(tiny_checkpoint)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def stage() -> click.Command:
    spec = importlib.util.spec_from_file_location("train", ROOT / "stages" / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command: click.Command = module.main
    return command


def documented(stage: click.Command, *more: str) -> Result:
    """Run the documents' command, with further arguments."""
    command = "--model_name_or_path tiny --data training_data.json --hidden-data hidden_states"
    words = [*SMALL, *command.split(), "--epochs", "1", "--output-dir", "out/actor"]
    return CliRunner().invoke(stage, [*words, *more])


@pytest.mark.slow
def test_the_documents_command(stage: click.Command, workspace: Path) -> None:
    done = documented(stage, "--learning_rate", "1e-4")
    assert done.exit_code == 0, done.output
    output = workspace / "out" / "actor"
    actor = Actor.load(output)
    assert actor.sender_width == WIDTH
    assert actor.record.sender is not None
    assert actor.record.sender.name == "teacher"
    final = json.loads((output / "train.json").read_text())
    assert final["samples_own"] == TASKS
    assert (output / "train.csv").read_text().startswith("step,loss,")
    assert "| start | tiny |" in (output / "README.md").read_text()
    assert not (workspace / "metrics").exists()
    assert not (workspace / "plots").exists()

    write_store(workspace / "others", TASKS, "b" * 64)
    again = ["--actor_path", "out/actor", "--hidden_data", "others", "--output_dir", "out/more"]
    refused = documented(stage, *again)
    assert refused.exit_code == 2
    assert "others holds messages of teacher (bbbbbbbbbbbb)" in refused.stderr
    assert not (workspace / "out" / "more").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--adapter", "false"], "the messages have width 24, the model reads 32"),
        (["--heads", "5"], "train.heads: 5 does not divide the model's width 32"),
        (["--hidden-data", "few"], "no latents for 3 of 8 tasks (t5, t6, t7): collect them, or"),
        (["--data", "silent.json"], "no supervised token in the conversations of t"),
        (["--epochs", "0"], "train.epochs: expected a number > 0 or null, found 0"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    stage: click.Command, workspace: Path, arguments: list[str], words: str
) -> None:
    write_store(workspace / "few", 5)
    silent = [{"from": "human", "value": "find the mug"}]
    records = [{"id": f"t{i}", "conversations": silent} for i in range(TASKS)]
    (workspace / "silent.json").write_text(json.dumps(records))
    done = documented(stage, *arguments)
    assert done.exit_code == 2, done.output
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("error: "))
    assert words in line
    assert not (workspace / "out").exists()


@pytest.mark.slow
def test_tasks_without_latents_and_long_messages_are_counted(
    stage: click.Command, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_store(workspace / "few", 5)
    arguments = ["--hidden-data", "few", "--allow_missing", "--max_message_length=3"]
    done = documented(stage, *arguments)
    assert done.exit_code == 0, done.output
    assert "left out for want of latents: 3 of 8 tasks (t5, t6, t7)" in caplog.text
    assert "5 of 5 messages are longer than train.max_message_length (3)" in caplog.text
    final = json.loads((workspace / "out" / "actor" / "train.json").read_text())
    assert (final["tasks_without_latents"], final["messages_truncated"]) == (3, 5)
    assert Actor.load(workspace / "out" / "actor").record.max_message_length == 3
