import json
import pickle

import pytest

from interlat.config import TaskConfig, UserError
from interlat.envs import Restorable, environment_config, find, make
from interlat.envs.pool import EnvironmentPool, Stepped
from interlat.questions.accuracy import verdict
from interlat.questions.environment import QuestionEnvironment
from interlat.tasks import Task

TASK = Task(
    "train-00001",
    "math",
    "train",
    r"What is $\frac{1}{2}$ of {14}?",
    env_args={"solution": r"It is \boxed{7}.", "type": "Prealgebra", "level": "Level 1"},
)
CONFIG = TaskConfig(name="math", step_limit=1, success_steps=(1,))


def test_it_is_found_by_its_name() -> None:
    world = make("math", **environment_config(CONFIG))
    assert isinstance(world, QuestionEnvironment)
    assert isinstance(world, Restorable)
    assert find("math").preparation == "interlat.questions.prepare"


@pytest.mark.parametrize(
    ("reply", "won", "reason"),
    [
        (r"x = 7 so \boxed{7}", True, "same text"),
        (r"\boxed{8}", False, "different"),
        ("no idea", False, "no answer"),
        ("", False, "no answer"),
    ],
)
def test_a_reply_is_graded_and_ends_the_episode(reply: str, won: bool, reason: str) -> None:
    world = QuestionEnvironment()
    assert world.reset(TASK) == TASK.instruction
    result = world.step(world.parse_action(reply))
    assert (result.won, result.reward, result.done) == (won, float(won), True)
    told = json.loads(result.observation)
    assert told["reason"] == reason
    assert told["gold"] == "7"
    assert (told["type"], told["level"]) == ("Prealgebra", "Level 1")
    assert result.info["valid"] == (reason != "no answer")
    closed = verdict([{"from": "human", "value": world.next_turn(result.observation)}])
    assert closed is not None
    assert closed.correct == won


def test_a_second_reply_earns_nothing() -> None:
    world = QuestionEnvironment()
    world.reset(TASK)
    assert world.step(r"\boxed{7}").reward == 1.0
    assert world.step(r"\boxed{7}").reward == 0.0


def test_a_word_level_reply_keeps_its_box() -> None:
    world = QuestionEnvironment()
    assert world.parse_action(r"so 3 ; answer \ boxed { 7 }") == r"so 3 ; answer \boxed { 7 }"
    world.reset(TASK)
    assert world.step(world.parse_action(r"3 \ boxed { 7 } 5")).won


def test_a_snapshot_pickles_and_goes_back() -> None:
    world = QuestionEnvironment()
    world.reset(TASK)
    before = pickle.loads(pickle.dumps(world.snapshot()))
    world.step(r"\boxed{8}")
    other = QuestionEnvironment()
    other.restore(before)
    assert other.step(r"\boxed{7}").won


def test_the_react_prompt_asks_for_a_box_and_leaves_braces_alone() -> None:
    said = QuestionEnvironment(prompt="react").first_turn(TASK.instruction)
    assert r"within \boxed{}" in said
    assert said.endswith(TASK.instruction)
    assert QuestionEnvironment().first_turn(TASK.instruction) == TASK.instruction


def test_a_task_without_an_answer_is_a_user_s_mistake() -> None:
    with pytest.raises(UserError, match="task t: env_args has no text `solution`"):
        QuestionEnvironment().reset(Task("t", "math", "train", "What?"))


@pytest.mark.slow
def test_mathematics_is_graded_inside_a_pool() -> None:
    """Its workers are daemons, which may start no process by multiprocessing."""
    with EnvironmentPool("math", environment_config(CONFIG), workers=1, seconds=200) as pool:
        pool.reset_many([TASK])
        outcome = pool.step_many({0: r"\boxed{\sqrt{49}}"})[0]
        assert isinstance(outcome, Stepped)
        assert outcome.result.won
        assert outcome.result.info["reason"] == "equivalent"
