import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat.config import TaskConfig, UserError
from interlat.envs import environment_config, make
from interlat.envs.base import Restorable
from interlat.envs.webshop.environment import ANY_SEARCH, WebShopEnvironment
from interlat.envs.webshop.experts import informed_actions
from interlat.tasks import Task


def task(goal: object = 0) -> Task:
    return Task("t", "webshop", "train", "buy it", env_args={"goal": goal})


def environment(*, step_limit: int = 12, prompt: str = "plain") -> WebShopEnvironment:
    return WebShopEnvironment(data=None, seed=7, step_limit=step_limit, prompt=prompt)


def test_it_is_made_by_its_name_from_the_user_s_settings() -> None:
    config = environment_config(TaskConfig(name="webshop", step_limit=3, success_steps=(3,)))
    made = make("webshop", **config)
    assert "Find me" in made.reset(task())
    assert [made.step("search[shoes]").done for _ in range(3)] == [False, False, True]


def test_the_right_purchase_wins() -> None:
    env = environment()
    env.reset(task(5))
    results = [env.step(action) for action in informed_actions(env.shop, env.shop.goals[5])]
    assert [(r.reward, r.done, r.won) for r in results] == [
        *[(0.0, False, False)] * 4,
        (1.0, True, True),
    ]
    assert results[-1].info["score"]["type"] == 1.0


def test_a_wrong_purchase_ends_with_its_partial_reward_and_is_no_success() -> None:
    env = environment()
    env.reset(task(5))
    actions = list(informed_actions(env.shop, env.shop.goals[5]))
    results = [env.step(action) for action in [*actions[:2], actions[-1]]]
    # two attributes and the price of two attributes, two options and the price
    assert results[-1][1:4] == (pytest.approx(3 / 5), True, False)


def test_nothing_more_can_be_bought_afterwards() -> None:
    env = environment()
    env.reset(task(5))
    for action in informed_actions(env.shop, env.shop.goals[5]):
        last = env.step(action)
    after = env.step("search[shoes]")
    assert (after.observation, after.reward, after.done) == (last.observation, 0.0, True)
    assert after.info["valid"] is False


def test_a_time_out_is_no_success() -> None:
    env = environment(step_limit=2)
    env.reset(task())
    assert not env.step("search[shoes]").done
    last = env.step("click[nothing]")
    assert (last.reward, last.done, last.won, last.info) == (
        0.0,
        True,
        False,
        {"steps": 2, "valid": False},
    )


@given(st.lists(st.text(max_size=40) | st.sampled_from(["search[tea]", "click[< prev]"])))
def test_no_action_breaks_it(actions: list[str]) -> None:
    env = environment(step_limit=1000)
    observation = env.reset(task(3))
    for action in actions:
        result = env.step(env.parse_action(action))
        assert result.info["valid"] or result.observation == observation
        observation = result.observation


@pytest.mark.parametrize("action", ["", "买", "x" * 10_000, "search[" + "tea " * 2_500, "\x00\x1b"])
def test_a_bad_action_costs_a_step_and_shows_the_page_again(action: str) -> None:
    env = environment()
    page = env.reset(task())
    result = env.step(action)
    assert result.observation == page
    assert result.info == {"steps": 1, "valid": False}


def test_every_admissible_click_is_possible() -> None:
    env = environment(step_limit=1000)
    env.reset(task(2))
    assert env.admissible() == [ANY_SEARCH]
    for action in [*informed_actions(env.shop, env.shop.goals[2])][:-1]:
        env.step(action)
        moment = env.snapshot()
        assert env.admissible() == sorted(env.admissible())
        for click in env.admissible():
            assert env.step(click).info["valid"], click
            env.restore(moment)


def test_a_snapshot_goes_on_in_another_environment() -> None:
    one, other = environment(), environment()
    one.reset(task(5))
    actions = list(informed_actions(one.shop, one.shop.goals[5]))
    for action in actions[:3]:
        one.step(action)
    assert isinstance(one, Restorable)
    moment = pickle.loads(pickle.dumps(one.snapshot()))
    other.restore(moment)
    for action in actions[3:]:
        assert one.step(action) == other.step(action)
    one.restore(moment)
    assert [one.step(action).won for action in actions[3:]] == [False, True]


def test_environments_of_a_process_share_their_shop() -> None:
    assert environment().shop is environment().shop


def test_it_wants_a_goal_that_there_is() -> None:
    for goal in (-1, 2592, "0", None):
        with pytest.raises(UserError, match="`goal` from 0 to 2591"):
            environment().reset(task(goal))
    with pytest.raises(ValueError, match="reset comes first"):
        environment().snapshot()


def test_the_react_style_explains_and_shows_pages_as_they_are() -> None:
    env = environment(prompt="react")
    page = env.reset(task())
    assert env.first_turn(page).endswith(f"\n\n{page}")
    assert "click[" in env.first_turn(page)
    assert env.next_turn(page) == page
    assert env.parse_action("Thought: tea.\nAction: search[tea]") == "search[tea]"


def test_the_plain_style_gives_each_thing_a_line_and_the_instruction_once() -> None:
    env = environment()
    page = env.reset(task())
    instruction = env.shop.goals[0].instruction
    assert env.first_turn(page) == f"WebShop\nInstruction:\n{instruction}\nSearch"
    turn = env.next_turn(env.step("search[tea]").observation)
    assert turn.startswith("Back to Search\nPage 1 (Total results: ")
    assert instruction not in turn


def test_a_missing_folder_is_the_user_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"task\.data"):
        make("webshop", data=str(tmp_path), seed=1, step_limit=5, prompt="plain")
