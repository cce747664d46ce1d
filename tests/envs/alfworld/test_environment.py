import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from interlat.config import UserError
from interlat.envs.alfworld.engine import GAME_FILE
from interlat.envs.alfworld.environment import AlfworldEnvironment
from interlat.envs.alfworld.experts import play
from interlat.envs.alfworld.generate import Difficulty, GameSpec, draw_spec, game_data
from interlat.tasks import Task

WIN = (
    "go to cabinet 1",
    "open cabinet 1",
    "take plate 1 from cabinet 1",
    "go to sinkbasin 1",
    "clean plate 1 with sinkbasin 1",
    "go to fridge 1",
    "open fridge 1",
    "move plate 1 to fridge 1",
)


def make(games: Path, **changes: Any) -> AlfworldEnvironment:
    config = {"receptacles": 20, "distractors": 8, "hiding_places": 6, "step_limit": 10}
    return AlfworldEnvironment(games=games, **{**config, **changes})


def task(**env_args: Any) -> Task:
    return Task("t", "alfworld", "train", "put a clean plate in fridge.", env_args=env_args)


@pytest.fixture
def games(kitchen: GameSpec, tmp_path: Path) -> Path:
    (tmp_path / "kitchen").mkdir()
    (tmp_path / "kitchen" / GAME_FILE).write_text(json.dumps(game_data(kitchen, [])))
    return tmp_path


def test_won_is_what_the_engine_says(games: Path) -> None:
    environment = make(games)
    observation = environment.reset(task(game="kitchen"))
    assert observation.endswith("and a sinkbasin 1. Your task is to: put a clean plate in fridge.")
    results = [environment.step(action) for action in WIN]
    assert [result.done for result in results] == [False] * 7 + [True]
    assert results[-1].won
    assert results[-1].reward == 1.0


def test_a_time_out_is_no_win(games: Path) -> None:
    environment = make(games, step_limit=7)
    environment.reset(task(game="kitchen"))
    last = [environment.step(action) for action in WIN[:7]][-1]
    assert (last.done, last.won, last.reward) == (True, False, 0.0)


def test_an_impossible_action_costs_a_step(games: Path) -> None:
    environment = make(games)
    environment.reset(task(game="kitchen"))
    result = environment.step("fly to the moon")
    assert result.observation == "Nothing happens."
    assert result.info == {"steps": 1, "valid": False}


def test_a_train_game_is_made_again_from_its_numbers(tmp_path: Path) -> None:
    environment = make(tmp_path, step_limit=20)
    spec = draw_spec(7, "train", 3, Difficulty(20, 8, 6))
    environment.reset(task(seed=7, split="train", index=3))
    results = [
        environment.step(action) for action in play(spec, informed=True, step_limit=20).actions
    ]
    assert results[-1].won


def test_the_react_style_explains_this_games_commands(games: Path) -> None:
    environment = make(games, prompt="react")
    turn = environment.first_turn(environment.reset(task(game="kitchen")))
    assert "\nmove <object> to <receptacle>\n" in turn
    assert environment.parse_action("Thought: go.\nAction: go to fridge 1") == "go to fridge 1"


def test_official_games_put_in_and_on(official_games: Path) -> None:
    environment = make(official_games, prompt="react")
    file = next(iter(sorted(official_games.rglob(GAME_FILE))))
    folder = str(file.parent.relative_to(official_games))
    turn = environment.first_turn(environment.reset(task(game=folder)))
    assert "\nput <object> in/on <receptacle>\n" in turn
    assert any(command.startswith("go to ") for command in environment.admissible())


def test_a_missing_game_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such game"):
        make(tmp_path).reset(task(game="gone"))
    with pytest.raises(UserError, match="env_args"):
        make(tmp_path).reset(task())


def test_a_game_that_loads_too_slowly_is_given_up(games: Path) -> None:
    with pytest.raises(TimeoutError, match=r"more than 0\.001 s"):
        make(games, load_seconds=0.001).reset(task(game="kitchen"))


def test_a_snapshot_brings_a_game_back_in_any_environment(games: Path) -> None:
    first, second = make(games), make(games)
    first.reset(task(game="kitchen"))
    for action in WIN[:4]:
        first.step(action)
    middle, commands = first.snapshot(), first.admissible()
    endings = [first.step(action) for action in WIN[4:]]
    for environment in (first, second):
        environment.restore(pickle.loads(pickle.dumps(middle)))
        assert environment.admissible() == commands
        assert [environment.step(action) for action in WIN[4:]] == endings
    assert endings[-1].won


def test_a_game_that_comes_out_different_is_told(games: Path) -> None:
    environment = make(games)
    environment.reset(task(game="kitchen"))
    false = environment.snapshot().after("look", "You see a dragon.")
    with pytest.raises(RuntimeError, match="'look' brought something else"):
        environment.restore(false)


def test_nothing_is_to_be_kept_before_the_first_game(games: Path) -> None:
    with pytest.raises(ValueError, match="reset comes first"):
        make(games).snapshot()
