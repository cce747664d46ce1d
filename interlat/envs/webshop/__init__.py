"""WebShop: shopping by search and clicks, in this process, without Java."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interlat.config import TaskConfig, UserError
from interlat.envs.base import EnvironmentKind

NEEDED = ("bm25s", "rapidfuzz", "Stemmer")
if not all(map(find_spec, NEEDED)):
    raise UserError('task.name: webshop needs more packages: pip install "interlat[webshop]"')


def settings(task: TaskConfig, games: Path) -> dict[str, Any]:
    """The keyword arguments of ``WebShopEnvironment``."""
    return {
        "data": task.data,
        "seed": task.seed,
        "step_limit": task.step_limit,
        "prompt": task.prompt,
    }


KIND = EnvironmentKind(
    environment="interlat.envs.webshop.environment:WebShopEnvironment",
    settings=settings,
    preparation="interlat.envs.webshop.prepare",
)
