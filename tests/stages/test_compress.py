"""The documents' own command trains a student; collection asks it, and its actor reads that."""

import importlib.util
import json
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner, Result

from interlat.config import TrainConfig
from interlat.latents.message import Message
from interlat.latents.store import LatentStore
from interlat.latents.writer import LatentWriter
from interlat.models.actor import Actor, ActorRecord, Sender
from interlat.models.compressor import Compressor
from interlat.models.load import load_causal_lm
from interlat.training.actor import build_actor

ROOT = Path(__file__).parent.parent.parent
TASKS, WIDTH = 8, 24
SMALL = ["--set", "launch.processes=1", "--batch_size", "4", "--log_every", "1"]


def stage(name: str) -> click.Command:
    spec = importlib.util.spec_from_file_location(name, ROOT / "stages" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command: click.Command = module.main
    return command


def invoke(name: str, *arguments: str) -> Result:
    return CliRunner().invoke(stage(name), arguments)


@pytest.fixture
def workspace(tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Play, messages of a sender of width 24, and an actor that reads them."""
    turns = [{"from": "human", "value": "find the mug"}, {"from": "gpt", "value": "take mug 1"}]
    records = [
        {"id": f"t{i}", "task": "find the mug", "conversations": turns} for i in range(TASKS)
    ]
    (tmp_path / "play.json").write_text(json.dumps(records))
    sender = Sender("teacher", "a" * 64, WIDTH)
    model = {"name": sender.name, "weights_sha256": sender.weights_sha256}
    writer = LatentWriter(
        tmp_path / "hidden_states", {"model": model}, width=WIDTH, dtype="float16"
    )
    writer.claim()
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randn(5, WIDTH, generator=generator) for _ in range(TASKS)]
    writer.write_piece(0, [Message(f"t{i}", row, "find mug 1") for i, row in enumerate(rows)])
    writer.publish(1, parquet=False)
    config = TrainConfig(heads=4)
    actor = build_actor(*load_causal_lm(str(tiny_checkpoint)), WIDTH, config, seed=1)
    actor.record = ActorRecord(sender=sender)
    actor.save(tmp_path / "teacher_model")
    (tmp_path / "params.yaml").write_text("seed: 1\n")
    (tmp_path / "tiny").symlink_to(tiny_checkpoint)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compress(*more: str) -> Result:
    """The documents' command, with further arguments."""
    words = "--teacher-model teacher_model --hidden-repo hidden_states --K 3 --epochs 1"
    words += " --data play.json --student_model_path tiny --output_dir out/student"
    return invoke("compress", *SMALL, *words.split(), *more)


@pytest.mark.slow
def test_the_documents_command_and_what_follows(workspace: Path) -> None:
    done = compress("--model_max_length", "4096")
    assert done.exit_code == 0, done.output
    output = workspace / "out" / "student"
    assert Compressor.load(output).record.message_width == WIDTH
    final = json.loads((output / "compress.json").read_text())
    assert (final["K"], final["messages_shorter"]) == (3, 0)
    assert (output / "compress.csv").read_text().startswith("step,loss,")
    assert not (workspace / "metrics").exists()

    words = "--compressed --compressor out/student --dataset_path play.json --output_dir out/store"
    done = invoke("collect", "--set", "launch.processes=1", *words.split())
    assert done.exit_code == 0, done.output
    store = LatentStore(workspace / "out" / "store")
    assert (len(store), store.lengths.tolist()) == (TASKS, [3] * TASKS)
    actor = Actor.load(workspace / "teacher_model")
    actor.record.check_sender(store, any_sender=False)
    assert actor.message_rows([store[0].hidden_LD])[0].shape == (3, 32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--K", "0"], "compress.K: expected an integer >= 1, found 0"),
        (["--K", "250"], "compress.K: 250 steps do not fit behind prompts of"),
        (["--teacher-model", "tiny"], "the actor has no adapter, through which a student is"),
        (["--teacher-model", "nowhere"], "the teacher nowhere does not exist"),
        (["--projector", "false"], "the student is 32 wide, the actor reads messages of width 24"),
        (["--keep", "best"], "compress.keep: best and compress.patience judge by held-out tasks"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    workspace: Path, arguments: list[str], words: str
) -> None:
    done = compress(*arguments)
    assert done.exit_code == 2, done.output
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("error: "))
    assert words in line
    assert not (workspace / "out").exists()
