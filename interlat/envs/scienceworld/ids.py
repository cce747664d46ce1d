"""Which number is which task: the published numbering, and files of numbers.

A task is a pair (name, variation), as ("boil", 0). AgentGym numbers all variations of its tasks one
after the other and leaves some tasks out. Its published tasks go by a numbering without task 2-3,
which its server's code has; 4,339 numbers, which every published id fits.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from scienceworld.utils import infer_task

from interlat.config import UserError
from interlat.envs.scienceworld.jvm import TASKS, variation_counts

LEFT_OUT = frozenset({"2-3", "5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})
"""Tasks that the published numbering does not count."""
Variation = tuple[str, int]


def numbering(left_out: Collection[str] = LEFT_OUT) -> list[Variation]:
    """Every (name, variation) at the place of its number."""
    counts = variation_counts()
    return [
        (name, variation)
        for task, name in TASKS.items()
        if task not in left_out
        for variation in range(counts[name])
    ]


def find_variation(args: Mapping[str, Any]) -> Variation:
    """What {"name": "boil", "variation": 0} or {"index": 0}, a published number, says.

    Raises UserError when there is no such task.
    """
    match args:
        case {"index": int(index)}:
            numbers = numbering()
            if -len(numbers) <= index < len(numbers):
                return numbers[index]
            raise UserError(f"scienceworld: {index} is none of the numbers 0 to {len(numbers) - 1}")
        case {"name": str(given), "variation": int(variation)}:
            name = infer_task(given)
            count = variation_counts().get(name, 0)
            if 0 <= variation < count:
                return name, variation
            if count:
                raise UserError(f"scienceworld: {given} has {count} variations, found {variation}")
            names = ", ".join(TASKS.values())
            raise UserError(f"scienceworld: no task is called {given!r}; there is: {names}")
    raise UserError(
        f"scienceworld: env_args must have `name` and `variation`, or `index`; found {dict(args)}"
    )


def read_ids(path: Path) -> list[Variation]:
    """The tasks that a JSON file lists.

    Its entries are pairs, ["task-1-boil", 21], or records of a published number,
    {"item_id": "sciworld_3491"}. Raises UserError for anything else.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [find_variation(_args(entry)) for entry in entries]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; task.data is a folder of SPLIT.json") from None
    except (ValueError, TypeError, KeyError):
        raise UserError(
            f'{path}: expected a JSON list of ["task-1-boil", 21] or {{"item_id": "sciworld_3491"}}'
        ) from None


def _args(entry: Any) -> dict[str, Any]:
    if isinstance(entry, dict):
        return {"index": int(entry["item_id"].removeprefix("sciworld_"))}
    name, variation = entry
    return {"name": name, "variation": variation}
