"""Users' own play: records of {id, conversations}."""

import json
from pathlib import Path

import pytest

from interlat.config import UserError
from interlat.tasks import write_tasks
from interlat.training.conversations import read_play
from training.toy import toy_task

TURNS = [
    {"from": "human", "value": "You are in a house. Answer with an action."},
    {"from": "gpt", "value": "OK", "loss": False},
    {"from": "human", "value": "Find the cup."},
    {"from": "gpt", "value": "go to shelf 1"},
]


def written(folder: Path, content: object) -> str:
    path = folder / "play.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_instruction_and_task_become_one_turn(tmp_path: Path) -> None:
    (task,) = read_play(written(tmp_path, [{"id": "a", "conversations": TURNS, "reward": 1}]))
    assert task.task_id == "a"
    assert [turn["value"] for turn in task.conversations] == [
        "You are in a house. Answer with an action.\nFind the cup.",
        "go to shelf 1",
    ]


def test_other_conversations_stay_as_they_are(tmp_path: Path) -> None:
    turns = [TURNS[2], TURNS[3], {"from": "human", "value": "done"}, TURNS[3]]
    tasks = read_play(
        written(tmp_path, [{"id": number, "conversations": turns} for number in (1, 2)])
    )
    assert [task.task_id for task in tasks] == ["1", "2"]
    assert list(tasks[0].conversations) == turns


def test_a_task_file_of_ours_is_read_as_one(tmp_path: Path) -> None:
    made = [toy_task(i, informed=True) for i in range(3)]
    write_tasks(tmp_path / "train.jsonl", made)
    assert read_play(str(tmp_path / "train.jsonl")) == made


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"conversations": TURNS}], "record 1: it has no field 'id'"),
        ([{"id": "a", "conversations": []}], "record 1: field 'conversations' must be a list"),
        ([{"id": "a", "conversations": [{"role": "user"}]}], "'conversations' must be a list"),
        ([{"id": "a", "conversations": TURNS}] * 2, "record 2: id 'a' comes twice"),
        ([], "there is no record in it"),
    ],
)
def test_what_cannot_be_played_is_named(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_play(written(tmp_path, content))
