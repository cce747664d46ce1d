import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from interlat.config import TaskConfig, UserError
from interlat.envs import environment_config, make
from interlat.envs.base import Metrics
from interlat.envs.textcraft import BOOK_FILE
from interlat.envs.textcraft.prepare import ALL_SPLITS, STEPS, deal_goals, prepare
from interlat.tasks import Task, read_tasks

SMALL = TaskConfig(
    name="textcraft",
    distractors=3,
    train_games=30,
    valid_games=8,
    final_games=4,
    step_limit=12,
    success_steps=(8, 12),
)
Prepared = tuple[Path, Metrics]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("prepared")
    return folder, prepare(SMALL, folder / "tasks", folder / "games", ALL_SPLITS)


def tasks_of(folder: Path, split: str) -> list[tuple[Task, Task]]:
    """Each task as the informed and as the searching expert played it."""
    told, searched = (
        read_tasks(folder / "tasks" / k / f"{split}.jsonl") for k in ("layout", "none")
    )
    return list(zip(told, searched, strict=True))


def actions(task: Task) -> list[str]:
    return [turn["value"] for turn in task.conversations if turn["from"] == "gpt"]


@pytest.mark.parametrize("split", ["train", "valid_seen", "valid_unseen", "final_unseen"])
def test_both_knowledges_tell_of_the_same_games(prepared: Prepared, split: str) -> None:
    for told, searched in tasks_of(prepared[0], split):
        same = ("task_id", "instruction", "env_args", "split")
        assert all(getattr(told, name) == getattr(searched, name) for name in same)
        assert told.plan is not None
        assert told.plan in (told.knowledge or "")
        assert searched.knowledge is None
        assert searched.plan is not None
        supply = {action for action in actions(told) if action.startswith("get")}
        assert not any(get in searched.plan for get in supply)


def test_the_informed_expert_follows_its_plan_to_a_win(prepared: Prepared) -> None:
    folder, _ = prepared
    world = make("textcraft", **environment_config(SMALL, folder / "games"))
    for told, searched in tasks_of(folder, "valid_unseen"):
        assert told.plan == f"{told.env_args['goal']} : {' ; '.join(actions(told))} ."
        assert len(actions(told)) in STEPS
        for task in (told, searched):
            assert world.reset(task) == task.instruction
            results = [world.step(action) for action in actions(task)]
            said = [turn["value"] for turn in task.conversations if turn["from"] == "human"]
            assert [result.observation for result in results[:-1]] == said[1:]
            assert results[-1].won or len(results) == SMALL.step_limit


def test_unseen_goals_are_crafted_in_no_train_task(prepared: Prepared) -> None:
    folder, _ = prepared
    goals = deal_goals(folder / "games" / BOOK_FILE)
    unseen = {*goals.valid_unseen, *goals.final_unseen}
    assert not set(goals.valid_unseen) & set(goals.final_unseen)
    assert len(goals.seen) >= 60
    assert len(unseen) >= 20
    for split in ALL_SPLITS:
        played = {told.env_args["goal"] for told, _ in tasks_of(folder, split)}
        assert played <= (unseen if split.endswith("unseen") else set(goals.seen))


def test_knowing_what_there_is_saves_steps(prepared: Prepared) -> None:
    _, metrics = prepared
    assert metrics["train"]["games"] == 30
    assert metrics["train"]["informed_expert"] == {"success_8": 1.0, "success_12": 1.0}
    searching = metrics["train"]["searching_expert"]
    assert searching["success_8"] < 0.7 < searching["success_12"]


def test_neither_workers_nor_hash_seed_change_a_byte(prepared: Prepared, tmp_path: Path) -> None:
    folder, _ = prepared
    script = (
        "import sys; from pathlib import Path; from interlat.config import TaskConfig\n"
        "from interlat.envs.textcraft.prepare import prepare\n"
        "if __name__ == '__main__':\n"
        f"    prepare({SMALL!r}, Path('tasks'), Path('games'), ['valid_unseen'], workers=2)\n"
    )
    (tmp_path / "script.py").write_text(script)
    environment = {"PYTHONHASHSEED": "3", "PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment, check=True)
    for name in ("tasks/layout/valid_unseen.jsonl", "tasks/none/valid_unseen.jsonl"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_what_cannot_be_prepared_is_said(tmp_path: Path, workshop_file: Path) -> None:
    with pytest.raises(UserError, match="'test' is none of train"):
        prepare(SMALL, tmp_path, tmp_path, ["test"])
    with pytest.raises(UserError, match="up to 8 steps"):
        prepare(dataclasses.replace(SMALL, step_limit=7), tmp_path, tmp_path)
    poor = dataclasses.replace(SMALL, data=str(workshop_file))
    with pytest.raises(UserError, match=r"workshop\.json: too few of its things"):
        prepare(poor, tmp_path, tmp_path)
