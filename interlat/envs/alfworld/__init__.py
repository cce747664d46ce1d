"""ALFWorld: household tasks in text, on the real engine, with generated or official games."""

from pathlib import Path
from typing import Any

from interlat.config import TaskConfig
from interlat.envs.base import EnvironmentKind

TREE = "json_2.1.1"
"""The folder of generated games among the prepared ones, in the official layout."""


def settings(task: TaskConfig, games: Path) -> dict[str, Any]:
    """The keyword arguments of ``AlfworldEnvironment``."""
    return {
        "games": games / TREE if task.games == "generated" else Path(task.games),
        "receptacles": task.receptacles,
        "distractors": task.distractors,
        "hiding_places": task.hiding_places,
        "step_limit": task.step_limit,
        "prompt": task.prompt,
    }


KIND = EnvironmentKind(
    environment="interlat.envs.alfworld.environment:AlfworldEnvironment",
    settings=settings,
    preparation="interlat.envs.alfworld.prepare",
)
