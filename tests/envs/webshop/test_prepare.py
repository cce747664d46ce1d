import dataclasses
from pathlib import Path

import pytest

from interlat.config import TaskConfig, UserError
from interlat.envs import environment_config, make, preparation
from interlat.envs.webshop.prepare import SHARES, choose_goals, count_games, prepare
from interlat.envs.webshop.shop import Shop
from interlat.tasks import read_tasks

SMALL = TaskConfig(
    name="webshop",
    train_games=30,
    valid_games=10,
    final_games=10,
    step_limit=12,
    success_steps=(8, 12),
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, object]]]:
    folder = tmp_path_factory.mktemp("prepared")
    return folder, prepare(SMALL, folder / "tasks", folder / "games")


def test_both_knowledges_tell_of_the_same_goals(
    prepared: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    folder, _ = prepared
    for split, games in (("train", 30), ("valid_seen", 10), ("valid_unseen", 10)):
        layout = read_tasks(folder / "tasks/layout" / f"{split}.jsonl")
        none = read_tasks(folder / "tasks/none" / f"{split}.jsonl")
        assert len(layout) == games
        assert [t.task_id for t in layout] == [t.task_id for t in none]
        assert [t.env_args for t in layout] == [t.env_args for t in none]
        assert all(t.knowledge and t.plan and t.conversations for t in layout)
        assert all(t.knowledge is None and t.plan and t.conversations for t in none)


def test_a_demonstration_plays_again_as_it_was_written(
    prepared: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    folder, _ = prepared
    env = make("webshop", **environment_config(SMALL, folder / "games"))
    for knowledge in ("layout", "none"):
        for task in read_tasks(folder / "tasks" / knowledge / "valid_unseen.jsonl"):
            turn = env.first_turn(env.reset(task))
            for said, reply in zip(task.conversations[::2], task.conversations[1::2], strict=True):
                assert said["value"] == turn
                result = env.step(env.parse_action(reply["value"]))
                assert result.info["valid"]
                turn = env.next_turn(result.observation)
            assert result.won or knowledge == "none"


def test_metrics_give_the_experts_ceilings(
    prepared: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    _, metrics = prepared
    assert list(metrics) == ["train", "valid_seen", "valid_unseen"]
    assert metrics["train"]["games"] == 30
    assert metrics["train"]["informed_expert"] == {"success_8": 1.0, "success_12": 1.0}
    assert set(metrics["valid_seen"]) >= {"searching_expert", "plan_words"}


def test_no_goal_is_in_two_splits_and_unseen_products_stay_unseen(shop: Shop) -> None:
    large = dataclasses.replace(SMALL, train_games=9999, valid_games=9999, final_games=9999)
    chosen = {split: choose_goals(shop, large, split) for split in SHARES}
    numbers = [number for split in chosen.values() for number in split]
    assert sorted(numbers) == list(range(len(shop.goals)))

    def products(*splits: str) -> set[str]:
        return {shop.goals[n].product.asin for split in splits for n in chosen[split]}

    assert not products("train", "valid_seen", "final_seen") & products(
        "valid_unseen", "final_unseen"
    )


def test_a_split_has_as_many_goals_as_there_are_at_most(shop: Shop) -> None:
    many = dataclasses.replace(SMALL, valid_games=9999)
    assert count_games(many, ["valid_unseen"]) == len(choose_goals(shop, many, "valid_unseen"))
    assert 120 < count_games(many, ["valid_unseen"]) < 9999


def test_the_final_games_have_a_seed_of_their_own_that_moves_no_train_goal(shop: Shop) -> None:
    other = dataclasses.replace(SMALL, final_seed=1, final_games=400)
    assert choose_goals(shop, other, "train") == choose_goals(shop, SMALL, "train")
    assert choose_goals(shop, other, "final_seen")[:10] != choose_goals(shop, SMALL, "final_seen")


def test_the_same_settings_write_the_same_bytes(
    prepared: tuple[Path, dict[str, dict[str, object]]], tmp_path: Path
) -> None:
    folder, _ = prepared
    prepare(SMALL, tmp_path, tmp_path, ["train"], workers=2)
    for knowledge in ("layout", "none"):
        file = f"{knowledge}/train.jsonl"
        assert (tmp_path / file).read_bytes() == (folder / "tasks" / file).read_bytes()


def test_react_demonstrations_carry_the_marker(tmp_path: Path) -> None:
    react = dataclasses.replace(SMALL, prompt="react", valid_games=1)
    prepare(react, tmp_path, tmp_path, ["valid_seen"])
    [task] = read_tasks(tmp_path / "layout/valid_seen.jsonl")
    assert task.conversations[1]["value"].startswith("Action: search[")
    assert "[SEP]" in task.conversations[2]["value"]


def test_an_unknown_split_and_a_tiny_catalogue_are_named(shop: Shop) -> None:
    with pytest.raises(UserError, match="'test' is none of train"):
        choose_goals(shop, SMALL, "test")
    empty = Shop.__new__(Shop)
    empty.goals = []
    with pytest.raises(UserError, match="train would be empty"):
        choose_goals(empty, SMALL, "train")


def test_the_prepare_stage_finds_it() -> None:
    assert preparation("webshop").SPLITS == ("train", "valid_seen", "valid_unseen")
