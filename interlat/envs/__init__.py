"""Interactive environments: text in, text out."""

from pathlib import Path
from typing import Any

from interlat.config import TaskConfig
from interlat.envs.base import Maker, make, register

__all__ = ["GAMES", "environment_config", "make", "register"]

GAMES = Path("data/games/json_2.1.1")
"""Where the prepare stage writes evaluation games."""


def environment_config(task: TaskConfig, games: Path = GAMES) -> dict[str, Any]:
    """The keyword arguments of ``make`` for the tasks that the prepare stage wrote."""
    return {
        "games": games if task.games == "generated" else Path(task.games),
        "receptacles": task.receptacles,
        "distractors": task.distractors,
        "hiding_places": task.hiding_places,
        "step_limit": task.step_limit,
        "prompt": task.prompt,
    }


def _alfworld() -> Maker:
    from interlat.envs.alfworld.environment import AlfworldEnvironment

    return AlfworldEnvironment


register("alfworld", _alfworld)
