"""Tasks and demonstrations: what the prepare stage calls.

A split's tasks come from the part of each task's variations that the simulator sets aside: train
from its training part, valid_seen and final_seen from its development part, valid_unseen and
final_unseen from its test part. They are drawn evenly over the tasks, and only those are taken
that the simulator's own solution wins within the step limit; tasks of which it does not win the
first training variation are left out. With a folder as ``task.data``, a split that has a list
there, SPLIT.json, is that list (see ``read_ids``).

There is one expert, that solution. Who knows nothing is shown the same play, and has no plan.
"""

import random
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from itertools import groupby, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from interlat.config import TaskConfig, UserError
from interlat.envs.base import Advance, Metrics
from interlat.envs.recorded import KNOWLEDGE, Recorded, write_recorded
from interlat.envs.scienceworld.environment import ScienceWorldEnvironment
from interlat.envs.scienceworld.ids import Variation, read_ids
from interlat.envs.scienceworld.jvm import TASKS, World
from interlat.envs.scienceworld.text import Style, first_turn
from interlat.envs.workers import end_with_parent
from interlat.tasks import Task, Turn

SPLITS = ("train", "valid_seen", "valid_unseen")
"""Splits that are made unless others are asked for."""
NO_PLAN = "do what the task says step by step . look for each thing that it names ."
"""The plan of a sender that has not seen the house."""
_ROOM = re.compile(r"(?:room|location) is called the (.+?)\.")
_MOVE = re.compile(r"(?:go|teleport) to (?:the )?(.+)")
_THING = re.compile(r"(?:pick up|focus on|activate|read|open) (?!door)(?!.*in inventory)(.+)")
_ASIDE = re.compile(r"look|examine|wait|open door|task|inventory")


class Part(NamedTuple):
    """Variations that a split may have: of one part every second one, or all."""

    name: str
    start: int
    stride: int


PARTS = {
    "train": Part("Train", 0, 1),
    "valid_seen": Part("Dev", 0, 2),
    "final_seen": Part("Dev", 1, 2),
    "valid_unseen": Part("Test", 0, 2),
    "final_unseen": Part("Test", 1, 2),
}


class Play(NamedTuple):
    """What the simulator's solution does and sees, and whether it wins within the step limit."""

    actions: tuple[str, ...]
    observations: tuple[str, ...]
    """One more than the actions."""
    won: bool


def count_games(config: TaskConfig, splits: Sequence[str]) -> int:
    """How many games ``prepare`` will report to ``advance``, at most."""
    return sum(len(_listed(config, split) or range(_amount(config, split))) for split in splits)


def prepare(
    config: TaskConfig,
    tasks: Path,
    games: Path,
    splits: Sequence[str] = SPLITS,
    *,
    workers: int = 1,
    advance: Advance = lambda done: None,
) -> Metrics:
    """Write tasks/<knowledge>/<split>.jsonl; nothing goes to ``games``.

    The tasks of ``task.name: scienceworld-easy`` have all of the simulator's simplifications.
    Raises UserError for a split that there is not, or that has no task.
    """
    metrics: Metrics = {}
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=end_with_parent) as executor:
        for split in splits:
            recorded = []
            for game in _games(executor, config, split):
                recorded.append(game)
                advance(1)
            if not recorded:
                raise UserError(
                    f"task.step_limit: no task of {split} is won in {config.step_limit} steps"
                )
            metrics[split] = write_recorded(tasks, split, recorded, config.success_steps)
    return metrics


def _games(executor: Executor, config: TaskConfig, split: str) -> Iterator[Recorded]:
    """A split's games: those on its list, or the first so many that are won."""
    record = partial(_record, config, split)
    listed = _listed(config, split)
    if listed is not None:
        yield from executor.map(record, listed)
        return
    wanted = _amount(config, split)
    for row in _rows(split, config.seed, _hopeful(executor, config)):
        for game in executor.map(record, row):
            if wanted and _won(game):
                wanted -= 1
                yield game
        if not wanted:
            return


@lru_cache(maxsize=1)
def _hopeful(executor: Executor, config: TaskConfig) -> tuple[str, ...]:
    """The tasks whose first training variation is won; the others are too long, and slow to try."""
    first = next(_rows("train", config.seed, tuple(TASKS.values())))
    games = executor.map(partial(_record, config, "train"), first)
    return tuple(name for (name, _), game in zip(first, games, strict=True) if _won(game))


def _won(game: Recorded) -> bool:
    return game.steps["layout"] is not None


def _listed(config: TaskConfig, split: str) -> list[Variation] | None:
    """The user's list of a split's tasks, where there is one."""
    file = Path(config.data or "", f"{split}.json")
    if config.data is not None and file.is_file():
        return read_ids(file)
    if split not in PARTS:
        lists = f", and no list is at {file}" if config.data else ""
        raise UserError(f"splits: {split!r} is none of {', '.join(PARTS)}{lists}")
    return None


def _amount(config: TaskConfig, split: str) -> int:
    if split == "train":
        return config.train_games
    return config.final_games if split.startswith("final") else config.valid_games


def _rows(split: str, seed: int, names: Sequence[str]) -> Iterator[list[Variation]]:
    """A split's variations in the order in which they are taken: one of each task, and again."""
    part = PARTS[split]
    columns: list[list[Variation]] = []
    for name in names:
        numbers = _parts()[name][part.name][part.start :: part.stride]
        random.Random(f"{seed} scienceworld {split} {name}").shuffle(numbers)
        columns.append([(name, number) for number in numbers])
    for row in zip_longest(*columns):
        yield [variation for variation in row if variation is not None]


@lru_cache
def _parts() -> dict[str, dict[str, list[int]]]:
    """Task name -> its variations by part."""
    world = World()
    try:
        return {name: world.parts(name) for name in TASKS.values()}
    finally:
        world.close()


def _record(config: TaskConfig, split: str, variation: Variation) -> Recorded:
    """Let the simulator's solution play a task."""
    name, number = variation
    args = {"name": name, "variation": number}
    if config.name.endswith("-easy"):
        args["simplifications"] = "easy"
    task = Task(f"{split}-{name}-{number}", "scienceworld", split, name, env_args=args)
    shown = _play(task, config.step_limit)
    conversation = _conversation(shown, config.prompt)
    tasks = {
        knowledge: replace(
            task,
            instruction=shown.observations[0],
            knowledge=knowledge_text(shown) if informed else None,
            plan=plan_text(shown) if informed else NO_PLAN,
            conversations=conversation,
        )
        for knowledge, informed in KNOWLEDGE.items()
    }
    steps = len(shown.actions) if shown.won else None
    return Recorded(f"{name} {number}", tasks, dict.fromkeys(KNOWLEDGE, steps))


def _play(task: Task, step_limit: int) -> Play:
    environment = ScienceWorldEnvironment(step_limit=step_limit)
    args = task.env_args
    gold = _world().gold(args["name"], args["variation"], args.get("simplifications", ""))
    observations, actions, won = [environment.reset(task)], [], False
    for action in gold:
        result = environment.step(action)
        actions.append(action)
        observations.append(result.observation)
        won = result.won
        if result.done:
            break
    environment.close()
    return Play(tuple(actions), tuple(observations), won)


@lru_cache
def _world() -> World:
    """A world of this process for solutions; it keeps the JVM for the next task."""
    return World()


def knowledge_text(shown: Play) -> str:
    """In which room each thing is that the solution takes, opens, switches on or points at."""
    found: dict[str, None] = {}
    room = _room_in(shown.observations[0]) or "the house"
    for action, observation in zip(shown.actions, shown.observations[1:], strict=True):
        room = _room_in(observation) or room
        if moved := _MOVE.fullmatch(action):
            room = moved[1]
        if thing := _THING.fullmatch(action):
            found[f"{thing[1]} in {room}"] = None
    return " ; ".join(found)


def plan_text(shown: Play) -> str:
    """What the solution does, without what only looks, waits or opens a door."""
    steps = [action for action in shown.actions if not _ASIDE.match(action)]
    return " . ".join(step for step, _ in groupby(steps)) + " ."


def _room_in(observation: str) -> str | None:
    found = _ROOM.search(observation)
    return found[1] if found else None


def _conversation(shown: Play, style: Style) -> tuple[Turn, ...]:
    """The play as turns, ended by its last action."""
    human = [first_turn(shown.observations[0], style), *shown.observations[1:-1]]
    prefix = "Action: " if style == "react" else ""
    return tuple(
        turn
        for observation, action in zip(human, shown.actions, strict=True)
        for turn in (
            Turn({"from": "human", "value": observation}),
            Turn({"from": "gpt", "value": prefix + action}),
        )
    )
