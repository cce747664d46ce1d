"""Demonstrated tasks on disk, the same form for every environment."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from interlat.tasks import Task, write_tasks

KNOWLEDGE = {"layout": True, "none": False}
"""Folder of tasks -> does the sender know what the actor cannot see, and the expert with it?"""
_WORD = re.compile(r"[a-z]+ \d+|[a-z]+|[^\s\w]")


class Recorded(NamedTuple):
    """One game as a task of each knowledge, and in how many steps each expert won it, if it did."""

    content: str
    """What the game is about: equal for games that would be one game twice."""
    tasks: dict[str, Task]
    steps: dict[str, int | None]


def write_recorded(
    folder: Path, split: str, recorded: Sequence[Recorded], success_steps: Sequence[int]
) -> dict[str, Any]:
    """Write folder/<knowledge>/<split>.jsonl; returns the split's metrics.

    {"games", "plan_words": mean length of a plan in words ("plate 1" is one) by knowledge, and each
    expert's success within each of ``success_steps``}.
    """
    for knowledge in KNOWLEDGE:
        tasks = (game.tasks[knowledge] for game in recorded)
        write_tasks(folder / knowledge / f"{split}.jsonl", tasks)
    steps = {
        expert: [game.steps[knowledge] for game in recorded]
        for expert, knowledge in (("informed_expert", "layout"), ("searching_expert", "none"))
    }
    plans = {
        knowledge: [len(_WORD.findall(game.tasks[knowledge].plan or "")) for game in recorded]
        for knowledge in KNOWLEDGE
    }
    return {
        "games": len(recorded),
        "plan_words": {knowledge: round(mean(words), 2) for knowledge, words in plans.items()},
    } | {
        expert: {
            f"success_{limit}": round(sum(s is not None and s <= limit for s in won) / len(won), 4)
            for limit in success_steps
        }
        for expert, won in steps.items()
    }
