"""The script tells a user's mistake in one line and writes nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interlat.tasks import Task, write_tasks

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with params.yaml and one task, and no messages and no models."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    task = Task("a", "alfworld", "valid_seen", "put a plate in fridge.", env_args={"game": "none"})
    write_tasks(tmp_path / "data" / "tasks" / "layout" / "valid_seen.jsonl", [task])
    (tmp_path / "data" / "tasks" / "layout" / "empty.jsonl").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--condition coffee", "'coffee' is not one of 'data', 'text', 'none', 'random_other'"),
        ("--hidden_source coffee", "hidden.source: expected one of data, text, none"),
        ("--set hidden.sauce=data", "hidden.sauce: unknown key; did you mean hidden.source?"),
        ("--condition none --splits empty", "empty.jsonl: the split is empty"),
        ("--condition none --splits valid_sen", "valid_sen.jsonl: no such file"),
        ("--splits valid_seen", "stages/collect.py --split valid_seen --knowledge layout"),
        ("--condition none --splits valid_seen", "model path models/actor does not exist"),
    ],
)
def test_a_mistake_is_one_line(workspace: Path, arguments: str, words: str) -> None:
    before = sorted(workspace.rglob("*"))

    done = subprocess.run(
        [sys.executable, ROOT / "stages" / "evaluate.py", *arguments.split()],
        cwd=workspace,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(workspace.rglob("*")) == before
