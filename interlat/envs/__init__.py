"""Interactive environments: text in, text out."""

from functools import partial
from pathlib import Path
from typing import Any

from interlat.config import TaskConfig
from interlat.envs.base import (
    EnvironmentKind,
    Restorable,
    find,
    imported,
    make,
    preparation,
    register,
)

__all__ = [
    "GAMES",
    "EnvironmentKind",
    "Restorable",
    "environment_config",
    "find",
    "make",
    "preparation",
    "register",
]

GAMES = Path("data/games")
"""Where the prepare stage writes what environments read when they play."""


def environment_config(task: TaskConfig, games: Path = GAMES) -> dict[str, Any]:
    """The keyword arguments of ``make`` for the tasks that the prepare stage wrote."""
    return find(task.name).settings(task, games)


for _name, _aliases in (
    ("alfworld", ()),
    ("textcraft", ()),
    ("scienceworld", ("sciworld", "scienceworld-easy")),
    ("webshop", ()),
):
    register(_name, partial(imported, f"interlat.envs.{_name}:KIND"), aliases=_aliases)
register("math", partial(imported, "interlat.questions.environment:KIND"))
for _name in ("textcraft", "sciworld", "alfworld", "webshop"):
    _place = f"interlat.envs.agentgym:{_name.upper()}"
    register(f"agentgym-{_name}", partial(imported, _place))
