import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlat.config import UserError
from interlat.envs.alfworld.experts import play
from interlat.envs.alfworld.generate import Difficulty, draw_spec
from interlat.envs.pool import (
    EnvironmentFailure,
    EnvironmentPool,
    Restored,
    Snapshot,
    Started,
    Stepped,
)
from interlat.tasks import Task

CONFIG = {
    "games": Path("nowhere"),
    "receptacles": 20,
    "distractors": 8,
    "hiding_places": 6,
    "step_limit": 20,
}
DIFFICULTY = Difficulty(20, 8, 6)


def tasks(count: int) -> list[Task]:
    places = [{"seed": 7, "split": "train", "index": index} for index in range(count)]
    return [Task(f"t{n}", "alfworld", "train", "x", env_args=args) for n, args in enumerate(places)]


@pytest.fixture
def pool() -> Iterator[EnvironmentPool]:
    with EnvironmentPool("alfworld", CONFIG, 1, seconds=20.0) as pool:
        yield pool


def worker() -> int:
    (process,) = multiprocessing.active_children()
    assert process.pid is not None
    return process.pid


def play_all(pool: EnvironmentPool, count: int) -> list[list[str]]:
    """Every episode's turns, the informed expert playing in lockstep."""
    plays = [
        play(draw_spec(7, "train", index, DIFFICULTY), informed=True, step_limit=20)
        for index in range(count)
    ]
    started = pool.reset_many(tasks(count))
    turns = [[each.turn] for each in started if isinstance(each, Started)]
    running = set(range(count))
    for step in range(20):
        if not running:
            break
        outcomes = pool.step_many({slot: plays[slot].actions[step] for slot in running})
        for slot, outcome in outcomes.items():
            assert isinstance(outcome, Stepped)
            turns[slot].append(outcome.turn)
            if outcome.result.done:
                assert outcome.result.won
                running.remove(slot)
    return turns


def test_workers_play_as_this_process_does() -> None:
    with (
        EnvironmentPool("alfworld", CONFIG, 2) as two,
        EnvironmentPool("alfworld", CONFIG, 0) as no,
    ):
        assert play_all(two, 5) == play_all(no, 5)


def test_a_crashed_worker_fails_its_episodes_and_not_the_next_batch(pool: EnvironmentPool) -> None:
    pool.reset_many(tasks(2))
    os.kill(worker(), signal.SIGKILL)
    outcomes = pool.step_many({0: "look", 1: "look"})
    assert all(isinstance(outcome, EnvironmentFailure) for outcome in outcomes.values())
    assert all(isinstance(outcome, Started) for outcome in pool.reset_many(tasks(2)))


def test_a_hanging_worker_is_given_up() -> None:
    with EnvironmentPool("alfworld", CONFIG, 1, seconds=10.0) as pool:
        pool.reset_many(tasks(1))
        pool._seconds = 0.5
        os.kill(worker(), signal.SIGSTOP)
        outcome = pool.step_many({0: "look"})[0]
        assert outcome == EnvironmentFailure("no answer within 0.5 s")
        assert multiprocessing.active_children() == []


def test_an_environments_failure_is_its_episodes_alone(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "game.tw-pddl").write_text("{")
    broken = Task("b", "alfworld", "train", "x", env_args={"game": "broken"})
    with EnvironmentPool("alfworld", {**CONFIG, "games": tmp_path}, 0) as pool:
        first, second = pool.reset_many([broken, *tasks(1)])
    assert isinstance(first, EnvironmentFailure)
    assert first.error.startswith("JSONDecodeError")
    assert isinstance(second, Started)


def test_a_users_mistake_ends_the_run(pool: EnvironmentPool) -> None:
    gone = Task("g", "alfworld", "train", "x", env_args={"game": "gone"})
    with pytest.raises(UserError, match="no such game"):
        pool.reset_many([gone])


def test_closing_leaves_no_process_behind() -> None:
    with EnvironmentPool("alfworld", CONFIG, 2) as pool:
        pool.reset_many(tasks(2))
    assert multiprocessing.active_children() == []


def test_an_environment_without_snapshots_says_so() -> None:
    place = "agents.scripted:ScriptedEnvironment"
    with EnvironmentPool(place, {"step_limit": 3}, 0) as pool:
        pool.reset_many([Task("s", place, "train", "x")])
        outcome = pool.snapshot_many([0])[0]
    assert isinstance(outcome, EnvironmentFailure)
    assert "cannot go back" in outcome.error


def test_a_snapshot_outlives_the_process_that_it_was_taken_in(pool: EnvironmentPool) -> None:
    pool.reset_many(tasks(1))
    first = pool.step_many({0: "inventory"})[0]
    moment = pool.snapshot_many([0])[0]
    assert isinstance(first, Stepped)
    assert isinstance(moment, Snapshot)
    os.kill(worker(), signal.SIGKILL)
    assert isinstance(pool.snapshot_many([0])[0], EnvironmentFailure)
    assert pool.restore_many({0: moment}) == {0: Restored()}
    second = pool.step_many({0: "inventory"})[0]
    assert isinstance(second, Stepped)
    assert second.result.info["steps"] == first.result.info["steps"] + 1
