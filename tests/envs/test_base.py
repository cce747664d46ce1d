from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from agents.scripted import ScriptedEnvironment

from interlat.config import TaskConfig, UserError
from interlat.envs import Restorable, base, environment_config, make, preparation
from interlat.envs.base import parse_reply
from interlat.envs.textcraft.environment import TextCraftEnvironment
from interlat.envs.textcraft.recipes import load_book, write_book


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("go to cabinet 1", "go to cabinet 1"),
        ("Thought: hm.\nAction: look\nAction: wait", "look"),
        ("Action:\n  open fridge 1  \n", "open fridge 1"),
        ("look\nand see", "look"),
        ("Action:", ""),
        ("", ""),
    ],
)
def test_the_action_is_the_first_line_after_the_marker(reply: str, action: str) -> None:
    assert parse_reply(reply) == action


def test_an_unknown_environment_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"'chess'; there is: .*alfworld"):
        make("chess")


def test_a_place_names_an_environment_of_the_users_own() -> None:
    world = make("agents.scripted:ScriptedEnvironment", step_limit=3)
    assert isinstance(world, ScriptedEnvironment)
    with pytest.raises(UserError, match=r"agents\.scripted:Missing cannot be imported"):
        make("agents.scripted:Missing")


def test_an_installed_package_offers_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "agents.scripted:ScriptedEnvironment"
    offered = [EntryPoint("offered", place, base.ENTRY_POINTS)]
    monkeypatch.setattr(base, "entry_points", lambda group: offered)
    assert isinstance(make("offered", step_limit=3), ScriptedEnvironment)
    with pytest.raises(UserError, match="offered has tasks of its own making"):
        preparation("offered")


def test_a_kind_without_settings_of_its_own_gets_the_general_ones() -> None:
    task = TaskConfig(name="agents.scripted:ScriptedEnvironment", data="here", step_limit=9)
    assert environment_config(task) == {"data": "here", "step_limit": 9, "prompt": "plain"}


def test_the_kinds_that_come_with_interlat_are_whole(tmp_path: Path) -> None:
    write_book(tmp_path / "textcraft.json", load_book(None))
    for name in ("alfworld", "textcraft"):
        task = TaskConfig(name=name, train_games=3)
        world = make(name, **environment_config(task, tmp_path))
        assert isinstance(world, Restorable)
        assert preparation(name).count_games(task, ["train"]) == 3
        world.close()


def test_not_every_environment_can_go_back() -> None:
    assert isinstance(TextCraftEnvironment(), Restorable)
    assert not isinstance(ScriptedEnvironment(step_limit=1), Restorable)
