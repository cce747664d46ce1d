import dataclasses
import json
import logging
from pathlib import Path

import pytest

from interlat.config import TaskConfig, UserError
from interlat.envs import make
from interlat.envs.base import Metrics
from interlat.questions.generate import deal_patterns
from interlat.questions.prepare import ALL_SPLITS, LEFT_OUT, prepare
from interlat.tasks import Task, read_tasks

SMALL = TaskConfig(
    name="math",
    train_games=70,
    valid_games=35,
    final_games=35,
    step_limit=1,
    success_steps=(1,),
)
Prepared = tuple[Path, Metrics]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("prepared")
    return folder, prepare(SMALL, folder / "tasks", folder / "games", ALL_SPLITS)


def tasks_of(folder: Path, split: str) -> list[tuple[Task, Task]]:
    """Each task with the sheet and without."""
    told, untold = (read_tasks(folder / "tasks" / k / f"{split}.jsonl") for k in ("layout", "none"))
    return list(zip(told, untold, strict=True))


@pytest.mark.parametrize("split", ALL_SPLITS)
def test_both_knowledges_tell_of_the_same_problems(prepared: Prepared, split: str) -> None:
    for told, untold in tasks_of(prepared[0], split):
        same = ("task_id", "instruction", "env_args", "split")
        assert all(getattr(told, name) == getattr(untold, name) for name in same)
        assert told.plan is not None
        assert told.plan in (told.knowledge or "")
        assert untold.knowledge is None
        assert untold.plan != told.plan


def test_the_informed_expert_is_right_and_the_other_one_now_and_then(prepared: Prepared) -> None:
    folder, metrics = prepared
    world = make("math")
    right = {True: 0, False: 0}
    for pair in tasks_of(folder, "train"):
        for task, informed in zip(pair, (True, False), strict=True):
            world.reset(task)
            right[informed] += world.step(str(task.conversations[1]["value"])).won
    assert right[True] == 70
    assert metrics["train"]["informed_expert"] == {"success_1": 1.0}
    assert metrics["train"]["searching_expert"]["success_1"] == round(right[False] / 70, 4)
    assert 0.2 < right[False] / 70 < 0.6


def test_levels_and_subjects_come_round(prepared: Prepared) -> None:
    kinds = [
        (t.env_args["type"], t.env_args["level"]) for t, _ in tasks_of(prepared[0], "valid_seen")
    ]
    assert len(set(kinds)) == 35


def test_unseen_problems_follow_patterns_that_train_nothing(prepared: Prepared) -> None:
    folder, _ = prepared
    for split in ("train", "valid_unseen", "final_unseen"):
        for told, _ in tasks_of(folder, split)[:35:5]:  # algebra to precalculus, level 1
            subject = told.env_args["type"].lower().replace(" & ", "_and_").replace(" ", "_")
            steps = (told.plan or "").partition(" : ")[2].removesuffix(" .").split(" ; ")
            pattern = tuple(step.split()[0] for step in steps)
            assert pattern in deal_patterns(subject, 1).of(split)


def test_the_same_settings_write_the_same_bytes(prepared: Prepared, tmp_path: Path) -> None:
    prepare(SMALL, tmp_path / "tasks", tmp_path / "games", ["valid_unseen"])
    file = Path("tasks", "layout", "valid_unseen.jsonl")
    assert (tmp_path / file).read_bytes() == (prepared[0] / file).read_bytes()


def test_a_subject_and_levels_may_be_chosen(tmp_path: Path) -> None:
    chosen = dataclasses.replace(SMALL, subjects=("geometry",), levels=(3, 5), valid_games=4)
    prepare(chosen, tmp_path / "tasks", tmp_path / "games", ["valid_seen"])
    kinds = [(t.env_args["type"], t.env_args["level"]) for t, _ in tasks_of(tmp_path, "valid_seen")]
    assert kinds == [("Geometry", "Level 3"), ("Geometry", "Level 5")] * 2


def own(tmp_path: Path, count: int, **settings: int) -> TaskConfig:
    rows = [
        {"problem": f"What is {i}+1?", "solution": rf"\boxed{{{i + 1}}}", "level": 1 + i % 5}
        for i in range(count)
    ]
    rows.append({"problem": "What is lost?", "solution": "", "level": 1})
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return dataclasses.replace(SMALL, data=str(path), **settings)


def test_users_own_questions_are_dealt_out_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = own(tmp_path, 40, valid_games=5, final_games=6)
    with caplog.at_level(logging.WARNING):
        metrics = prepare(config, tmp_path / "tasks", tmp_path / "games", ALL_SPLITS)
    assert [metrics[split]["games"] for split in ALL_SPLITS] == [18, 5, 5, 6, 6]
    asked = [t.instruction for split in ALL_SPLITS for t, _ in tasks_of(tmp_path, split)]
    assert len(set(asked)) == 40
    task = tasks_of(tmp_path, "train")[0][0]
    assert task.plan is None
    assert task.knowledge is None
    assert task.conversations[1]["value"] == task.env_args["solution"]
    left = json.loads((tmp_path / "games" / LEFT_OUT).read_text())
    assert (left["number"], left["reason"]) == (41, "no solution")
    assert "1 of 41 records are left out" in caplog.text
    assert metrics["train"]["source"]["left out: no solution"] == 1


def test_what_cannot_be_prepared_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'test' is none of train"):
        prepare(SMALL, tmp_path, tmp_path, ["test"])
    with pytest.raises(UserError, match=r"leave none for .*; lower task\.valid_games"):
        prepare(own(tmp_path, 60), tmp_path / "tasks", tmp_path / "games")
