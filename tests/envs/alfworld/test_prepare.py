import dataclasses
import json
from pathlib import Path

import pytest

from interlat.config import TaskConfig, UserError
from interlat.envs.alfworld.engine import load_game
from interlat.envs.alfworld.generate import Difficulty, GameSpec, draw_spec
from interlat.envs.alfworld.prepare import _content, _distinct, check_replica, prepare
from interlat.tasks import read_tasks

SMALL = TaskConfig(train_games=24, valid_games=6, final_games=6)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, object]]]:
    folder = tmp_path_factory.mktemp("prepared")
    return folder, prepare(SMALL, folder / "tasks", folder / "games")


def bytes_below(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_both_knowledges_tell_of_the_same_games(
    prepared: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    folder, _ = prepared
    for split, games in (("train", 24), ("valid_seen", 6), ("valid_unseen", 6)):
        layout = read_tasks(folder / "tasks/layout" / f"{split}.jsonl")
        none = read_tasks(folder / "tasks/none" / f"{split}.jsonl")
        assert len(layout) == games
        assert [task.task_id for task in layout] == [task.task_id for task in none]
        assert [task.env_args for task in layout] == [task.env_args for task in none]
        assert all(task.knowledge and task.plan for task in layout)
        assert all(task.knowledge is None and "search" in (task.plan or "") for task in none)


def test_every_written_game_is_won_by_its_walkthrough(
    prepared: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    folder, _ = prepared
    for task in read_tasks(folder / "tasks/layout/valid_unseen.jsonl"):
        place = folder / "games/json_2.1.1" / task.env_args["game"]
        game = load_game(place)
        game.reset()
        for command in json.loads((place / "game.tw-pddl").read_text())["walkthrough"]:
            game.step(command)
        assert game.won


def test_metrics_give_the_experts_ceilings(
    prepared: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    _, metrics = prepared
    assert list(metrics) == ["train", "valid_seen", "valid_unseen"]
    assert metrics["train"]["games"] == 24
    assert metrics["train"]["informed_expert"] == {"success_12": 1.0, "success_20": 1.0}
    assert set(metrics["valid_seen"]) >= {"searching_expert", "plan_words"}


@pytest.mark.slow
def test_the_number_of_workers_changes_no_byte(
    prepared: tuple[Path, dict[str, dict[str, object]]], tmp_path: Path
) -> None:
    folder, _ = prepared
    prepare(SMALL, tmp_path / "tasks", tmp_path / "games", workers=2)
    assert bytes_below(tmp_path) == bytes_below(folder)


def test_a_train_game_never_comes_back_in_an_evaluation_split() -> None:
    difficulty = Difficulty(20, 8, 6)
    free = _distinct(SMALL, "valid_seen", difficulty, set())
    taken = {_content(free[0]), _content(free[4])}
    again = _distinct(SMALL, "valid_seen", difficulty, taken)
    assert not taken & {_content(spec) for spec in again}
    assert [spec for spec in again if spec in free] == [free[1], free[2], free[3], free[5]]


def test_a_replica_that_differs_is_found_out(kitchen: GameSpec) -> None:
    check_replica(kitchen)
    renamed = [place._replace(name=f"x{place.name}") for place in kitchen.receptacles]
    with pytest.raises(RuntimeError, match="differ in train-0-00002 at 'reset'"):
        check_replica(dataclasses.replace(kitchen, receptacles=tuple(renamed), items=()))


def test_final_games_alone_come_from_their_own_seed(tmp_path: Path) -> None:
    metrics = prepare(SMALL, tmp_path / "tasks", tmp_path / "games", ["final_unseen"])
    (first, *_) = read_tasks(tmp_path / "tasks/layout/final_unseen.jsonl")
    assert list(metrics) == ["final_unseen"]
    spec = draw_spec(SMALL.final_seed, "final_unseen", 0, Difficulty(20, 8, 6))
    assert first.task_id == spec.game_id


def test_what_cannot_be_prepared_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'test' is none of train"):
        prepare(SMALL, tmp_path, tmp_path, ["test"])
    with pytest.raises(UserError, match=r"task.receptacles, task.hiding_places: no room"):
        prepare(dataclasses.replace(SMALL, hiding_places=40), tmp_path, tmp_path)
    with pytest.raises(UserError, match="no solvable game"):
        prepare(dataclasses.replace(SMALL, games=str(tmp_path)), tmp_path, tmp_path)


def test_official_games_become_tasks(official_games: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, games=str(official_games))
    metrics = prepare(config, tmp_path, tmp_path / "unused", ["valid_seen"], workers=2)
    tasks = read_tasks(tmp_path / "layout/valid_seen.jsonl")
    assert metrics == {"valid_seen": {"games": len(tasks)}}
    assert tasks[0].instruction.startswith("You are in the middle of a room.")
    assert (official_games / tasks[0].env_args["game"] / "game.tw-pddl").exists()
    assert not (tmp_path / "unused").exists()
