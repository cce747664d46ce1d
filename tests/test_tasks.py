"""Tasks come back as they were written, and a bad line is named."""

import json
from pathlib import Path

import pytest

from interlat.config import UserError
from interlat.tasks import Task, read_tasks, write_tasks

GOOD = {"task_id": "a", "env": "alfworld", "split": "train", "instruction": "put it away"}


@pytest.fixture
def task() -> Task:
    return Task(
        task_id="a",
        env="alfworld",
        split="train",
        instruction="put a plate in fridge.\nNow.",
        knowledge="plate 1 cabinet 5",
        plan="find plate 1",
        conversations=(
            {"from": "human", "value": "you see"},
            {"from": "gpt", "value": "go", "loss": False},
        ),
        env_args={"game": "data/games/a"},
    )


def test_tasks_come_back_as_written(tmp_path: Path, task: Task) -> None:
    other = Task(task_id="ß", env="alfworld", split="train", instruction="x")
    write_tasks(tmp_path / "t.jsonl", [task, other])
    assert read_tasks(tmp_path / "t.jsonl") == [task, other]
    assert read_tasks(tmp_path / "t.jsonl", limit=1) == [task]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not valid JSON"),
        ("", "line 2: not valid JSON"),
        ("[]", "line 2: expected a task"),
        (json.dumps(GOOD), "line 2: task_id 'a' comes twice"),
        (json.dumps({**GOOD, "task_id": "b", "plam": ""}), "line 2: unknown field 'plam'"),
        (json.dumps({**GOOD, "task_id": 3}), "line 2: field 'task_id' must be text"),
        (json.dumps({**GOOD, "task_id": "b", "instruction": ""}), "field 'instruction'"),
        (json.dumps({**GOOD, "task_id": "b", "plan": []}), "field 'plan' must be text or null"),
        (json.dumps({**GOOD, "task_id": "b", "env_args": []}), "'env_args' must be an object"),
        (
            json.dumps({**GOOD, "task_id": "b", "conversations": [{"from": "user"}]}),
            "'conversations' must be a list",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(UserError, match=message):
        read_tasks(path)


def test_an_empty_or_missing_split_is_a_user_s_mistake(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("")
    with pytest.raises(UserError, match="the split is empty"):
        read_tasks(tmp_path / "t.jsonl")
    with pytest.raises(UserError, match="no such file"):
        read_tasks(tmp_path / "u.jsonl")
    (tmp_path / "v.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UserError, match="not UTF-8"):
        read_tasks(tmp_path / "v.jsonl")
