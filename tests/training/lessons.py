"""A handful of generated ALFWorld tasks for training a base model on.

Run as a script it trains in a process of its own: lessons.py FOLDER JSON-OF-BASE-SETTINGS.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from interlat import distributed
from interlat.config import BaseConfig, CollectConfig
from interlat.envs.alfworld.experts import knowledge_text, plan_text, play
from interlat.envs.alfworld.generate import Difficulty, GameSpec, draw_spec
from interlat.envs.alfworld.text import clean, conversation
from interlat.tasks import Task
from interlat.training.sft import Lessons, train_base
from interlat.training.trainer import Training
from training.toy import watch

TEMPLATE = CollectConfig().prompt_template
MOVE = "move <object> to <receptacle>"


class School(NamedTuple):
    """The same games as both experts see them."""

    informed: list[Task]
    searching: list[Task]

    def lessons(self, config: BaseConfig, seed: int = 1) -> Lessons:
        """The samples of a run."""
        return Lessons(*self, config, TEMPLATE, seed=seed)


def make_school(games: int = 12) -> School:
    """Small rooms, told by the experts."""
    specs = [draw_spec(7, "train", i, Difficulty(8, 2, 2)) for i in range(games)]
    return School(*([_task(spec, informed) for spec in specs] for informed in (True, False)))


def _task(spec: GameSpec, informed: bool) -> Task:
    shown = play(spec, informed=informed, step_limit=20)
    return Task(
        task_id=spec.game_id,
        env="alfworld",
        split="train",
        instruction=clean(shown.observations[0]),
        knowledge=knowledge_text(spec) if informed else None,
        plan=plan_text(spec, informed=informed),
        conversations=conversation(shown.observations, shown.actions, "plain", MOVE),
    )


def train(school: School, output: Path, config: BaseConfig, seed: int = 1) -> Training:
    """Train a base model from scratch."""
    return train_base(*school, config, TEMPLATE, seed=seed, output=output, watch=watch)


def main(folder: Path, config: BaseConfig) -> None:
    """Train in a process of its own, alone or under torchrun."""
    torch.set_num_threads(1)
    with distributed.process_group():
        training = train(make_school(), folder / "base", config)
    if distributed.is_main():
        (folder / "points.json").write_text(json.dumps(training.points))


if __name__ == "__main__":
    main(Path(sys.argv[1]), BaseConfig(**json.loads(sys.argv[2])))
