"""TextCraft: make a thing from raw material by a list of crafting commands.

After the game of ADaPT (arXiv 2311.05772) and AgentGym, with files read in sorted order and chance
of its own. Comes with a recipe book; reads Minecraft's recipes as well.
"""

from pathlib import Path
from typing import Any

from interlat.config import TaskConfig
from interlat.envs.base import EnvironmentKind

BOOK_FILE = "textcraft.json"
"""The recipe book of the prepared tasks, among the prepared games."""


def settings(task: TaskConfig, games: Path) -> dict[str, Any]:
    """The keyword arguments of ``TextCraftEnvironment``."""
    return {"book": games / BOOK_FILE, "step_limit": task.step_limit, "prompt": task.prompt}


KIND = EnvironmentKind(
    environment="interlat.envs.textcraft.environment:TextCraftEnvironment",
    settings=settings,
    preparation="interlat.envs.textcraft.prepare",
)
