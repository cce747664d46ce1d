import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat.config import UserError
from interlat.envs.pool import EnvironmentPool, Restored, Snapshot, Started, Stepped
from interlat.envs.textcraft.environment import TextCraftEnvironment
from interlat.envs.textcraft.recipes import load_book
from interlat.envs.textcraft.solve import solve
from interlat.tasks import Task

STOOL = [
    "get 1 elm log",
    "craft 4 elm plank using 1 elm log",
    "get 3 flax",
    "craft 2 cord using 3 flax",
    "craft 1 stool using 3 elm plank, 1 cord",
]


def task(**env_args: Any) -> Task:
    return Task("t", "textcraft", "train", "craft it", env_args=env_args)


@pytest.fixture
def environment(workshop_file: Path) -> TextCraftEnvironment:
    return TextCraftEnvironment(book=workshop_file, step_limit=8)


def test_a_game_begins_with_its_commands_and_goal() -> None:
    environment = TextCraftEnvironment()
    text = environment.reset(task(goal="stool", distractors=2, seed="a"))
    commands, goal = text.split("\n\n")
    own = load_book(None).closure("stool")
    assert goal == "Goal: craft stool."
    assert commands.splitlines()[0] == "Crafting commands:"
    assert set(map(str, own)) < set(commands.splitlines())
    assert len(commands.splitlines()) == 1 + len(own) + 2
    assert environment.reset(task(goal="stool", distractors=2, seed="a")) == text
    assert environment.reset(task(goal="stool", distractors=2, seed="b")) != text


def test_crafting_the_goal_wins_once(environment: TextCraftEnvironment) -> None:
    environment.reset(task(goal="stool"))
    results = [environment.step(action) for action in STOOL]
    assert [result.reward for result in results] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert results[-1].done
    assert results[-1].won
    after = environment.step("inventory")
    assert (after.reward, after.done, after.won) == (0.0, True, True)


def test_time_runs_out_and_that_is_no_win(environment: TextCraftEnvironment) -> None:
    environment.reset(task(goal="stool"))
    results = [environment.step("hm") for _ in range(8)]
    assert [result.done for result in results] == [*[False] * 7, True]
    assert not results[-1].won
    assert results[-1].info == {"steps": 8, "valid": False}


def test_what_is_missing_cannot_be_found(environment: TextCraftEnvironment) -> None:
    environment.reset(task(goal="stool", missing=["elm log"]))
    assert environment.step("get 1 elm log").observation == "Could not find elm log"
    assert "get 1 elm log" not in environment.admissible()
    assert "get 1 ash log" in environment.admissible()


def test_every_admissible_action_is_possible(environment: TextCraftEnvironment) -> None:
    environment.reset(task(goal="painted stool"))
    for action in STOOL[:4]:
        environment.step(action)
    here = environment.snapshot()
    assert STOOL[4] in environment.admissible()
    for action in environment.admissible():
        environment.restore(here)
        assert environment.step(action).info["valid"], action


def test_a_goal_may_be_a_number(environment: TextCraftEnvironment) -> None:
    goals = [environment.reset(task(index=index)).rpartition("craft ")[2] for index in range(6)]
    assert goals[:5] == ["ash plank.", "elm plank.", "cord.", "stool.", "painted stool."]
    assert goals[5] == goals[0]


@pytest.mark.parametrize("env_args", [{}, {"goal": "dragon"}, {"index": "x"}])
def test_a_task_about_nothing_is_the_users_mistake(
    environment: TextCraftEnvironment, env_args: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="task t: env_args must have `goal`"):
        environment.reset(task(**env_args))


def test_an_explanation_comes_first_in_react_style(workshop_file: Path) -> None:
    environment = TextCraftEnvironment(book=workshop_file, prompt="react")
    observation = environment.reset(task(goal="stool"))
    turn = environment.first_turn(observation)
    assert turn.startswith("You are in a workshop")
    assert turn.endswith(observation)
    assert environment.parse_action("Thought: hm\nAction: get 3 flax") == "get 3 flax"


@given(st.integers(0, 200), st.lists(st.integers(0, 999), max_size=12), st.integers(0, 12))
def test_restoring_equals_replaying(index: int, choices: list[int], middle: int) -> None:
    first, second = TextCraftEnvironment(), TextCraftEnvironment()
    first.reset(task(index=index))
    snapshot, actions = first.snapshot(), list[str]()
    for number, choice in enumerate(choices):
        if number == middle:
            snapshot, actions = first.snapshot(), []
        possible = [*first.admissible(), "get 1 dragon"]
        actions.append(possible[choice % len(possible)])
        first.step(actions[-1])
    ending = first.snapshot()
    for environment in (first, second):
        environment.restore(pickle.loads(pickle.dumps(snapshot)))
        results = [environment.step(action) for action in actions]
        assert environment.snapshot() == ending
    assert all(result.info["steps"] <= len(choices) for result in results)


def test_snapshots_travel_between_workers() -> None:
    book = load_book(None)
    goal = "painted cart"
    steps = solve(book, goal) or []
    with EnvironmentPool("textcraft", {"step_limit": 30}, 2) as pool:
        started = pool.reset_many([task(goal=goal), task(goal="jar")])
        assert all(isinstance(each, Started) for each in started)
        for step in steps[:6]:
            pool.step_many({0: step})
        moment = pool.snapshot_many([0])[0]
        assert isinstance(moment, Snapshot)
        assert pool.restore_many({1: moment, 2: moment}) == {1: Restored(), 2: Restored()}
        for step in steps[6:]:
            outcomes = pool.step_many({0: step, 1: step, 2: step})
            assert outcomes[0] == outcomes[1] == outcomes[2]
    last = outcomes[1]
    assert isinstance(last, Stepped)
    assert last.result.won
