"""TextCraft tasks on disk: what the prepare stage calls.

Goals are dealt out once for a book: an unseen split's goals are crafted in no train task, though
every word of their making is used in one. What is to be had differs from task to task. Tasks are
made from (seed, split, index) alone.
"""

import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from interlat.config import TaskConfig, UserError
from interlat.envs.base import Advance, Metrics
from interlat.envs.recorded import KNOWLEDGE, Recorded, write_recorded
from interlat.envs.textcraft import BOOK_FILE
from interlat.envs.textcraft.experts import (
    Play,
    conversation,
    draw_supply,
    knowledge_text,
    plan_text,
    play,
)
from interlat.envs.textcraft.recipes import Book, load_book, shared_book, write_book
from interlat.envs.textcraft.solve import solve
from interlat.envs.textcraft.text import first_turn, listed
from interlat.tasks import Task, Turn

SPLITS = ("train", "valid_seen", "valid_unseen")
"""Splits that are made unless others are asked for."""
ALL_SPLITS = (*SPLITS, "final_seen", "final_unseen")
STEPS = range(4, 9)
"""Lengths of a plan that is more than the goal's own command and short enough to be said."""
CHOICES = 4
"""Raw items that could serve and are missing, at least: with fewer, a message is hardly needed."""
NOTES = 2
"""Makings of other things that the sender knows as well, at most; no two share a step."""
UNSEEN_SHARE = 0.25
"""Goals kept from training, at most; half of them for the final splits."""
_DEALT = "which goals are unseen"


class Making(NamedTuple):
    """A goal, the raw items that are missing, and the steps that make it without them."""

    goal: str
    missing: frozenset[str]
    steps: tuple[str, ...]


class Goals(NamedTuple):
    """The goals of each kind of split."""

    seen: tuple[str, ...]
    valid_unseen: tuple[str, ...]
    final_unseen: tuple[str, ...]

    def of(self, split: str) -> tuple[str, ...]:
        """A split's goals."""
        names = {"valid_unseen": self.valid_unseen, "final_unseen": self.final_unseen}
        return names.get(split, self.seen)


def count_games(config: TaskConfig, splits: Sequence[str]) -> int:
    """How many games ``prepare`` will report to ``advance``."""
    return sum(_amount(config, split) for split in splits)


def prepare(
    config: TaskConfig,
    tasks: Path,
    games: Path,
    splits: Sequence[str] = SPLITS,
    *,
    workers: int = 1,
    advance: Advance = lambda done: None,
) -> Metrics:
    """Write tasks/<knowledge>/<split>.jsonl, and the recipe book to games/.

    Raises UserError for a split that there is not, too few steps, and a recipe book that is
    missing, malformed or has nothing to choose in it.
    """
    for split in splits:
        if split not in ALL_SPLITS:
            raise UserError(f"splits: {split!r} is none of {', '.join(ALL_SPLITS)}")
    if config.step_limit < STEPS[-1]:
        raise UserError(f"task.step_limit: these tasks take up to {STEPS[-1]} steps")
    book = load_book(Path(config.data) if config.data else None)
    path = games / BOOK_FILE
    write_book(path, book)
    for kept in (shared_book, deal_goals):  # of a book that stood there before
        kept.cache_clear()
    if not deal_goals(path).final_unseen:
        raise UserError(
            f"{config.data}: too few of its things can be made in {STEPS[0]} to {STEPS[-1]} steps "
            f"from raw material of which {CHOICES} other sorts would do as well"
        )
    metrics: Metrics = {}
    with ProcessPoolExecutor(workers, get_context("spawn")) as executor:
        for split in splits:
            recorded = []
            work = partial(record, path, config, split)
            for game in executor.map(work, range(_amount(config, split)), chunksize=50):
                recorded.append(game)
                advance(1)
            metrics[split] = write_recorded(tasks, split, recorded, config.success_steps)
    return metrics


@lru_cache(maxsize=2)
def deal_goals(path: Path) -> Goals:
    """Which of a book's goals each split has; those with nothing to choose have no place."""
    book = shared_book(path)
    rng = random.Random(_DEALT)
    makings = {
        goal: making
        for goal in book.goals
        if fits(making := draw_making(book, goal, random.Random(f"{_DEALT} {goal}")))
    }
    seen = list(makings)
    rng.shuffle(seen)
    uses = {goal: _words(book, goal) for goal in seen}
    unseen: list[str] = []
    for goal in list(seen):
        others = set().union(*(uses[other] for other in seen if other != goal))
        if len(unseen) < UNSEEN_SHARE * len(makings) and uses[goal] <= others:
            seen.remove(goal)
            unseen.append(goal)
    return Goals(tuple(seen), tuple(unseen[0::2]), tuple(unseen[1::2]))


def _words(book: Book, goal: str) -> set[str]:
    """The words of all commands that may serve a goal."""
    return {word for recipe in book.closure(goal) for word in str(recipe).split()}


def draw_making(book: Book, goal: str, rng: random.Random) -> Making:
    """A goal with a supply that leaves one way to make it."""
    missing = draw_supply(book, goal, rng)
    return Making(goal, missing, tuple(solve(book, goal, missing=missing) or ()))


def fits(making: Making) -> bool:
    """Whether there is something to know, to plan, and no step twice."""
    steps = making.steps
    return len(making.missing) >= CHOICES and len(steps) in STEPS and len(set(steps)) == len(steps)


def record(path: Path, config: TaskConfig, split: str, index: int) -> Recorded:
    """Draw a game and let both experts play it."""
    book, goals = shared_book(path), deal_goals(path).of(split)
    seed = config.final_seed if split.startswith("final") else config.seed
    name = f"{seed} {split} {index}"
    rng = random.Random(f"textcraft task {name}")
    making = next(
        drawn for _ in count() if fits(drawn := draw_making(book, rng.choice(goals), rng))
    )
    known = knowledge_text(_notes(book, making, deal_goals(path).seen, rng))
    recipes = listed(book, making.goal, config.distractors, name)
    tasks, steps = {}, {}
    for knowledge, informed in KNOWLEDGE.items():
        game = play(
            book,
            making.goal,
            recipes,
            making.missing,
            informed=informed,
            step_limit=config.step_limit,
        )
        steps[knowledge] = len(game.actions) if game.won else None
        tasks[knowledge] = Task(
            task_id=f"{split}-{index:05d}",
            env="textcraft",
            split=split,
            instruction=game.observations[0],
            knowledge=known if informed else None,
            plan=plan_text(book, making.goal, making.steps if informed else None),
            conversations=_turns(game, config),
            env_args={
                "goal": making.goal,
                "seed": name,
                "distractors": config.distractors,
                "missing": sorted(making.missing),
            },
        )
    return Recorded(name, tasks, steps)


def _turns(game: Play, config: TaskConfig) -> tuple[Turn, ...]:
    first = first_turn(game.observations[0], config.prompt)
    return conversation(game, first, "Action: " if config.prompt == "react" else "")


def _notes(
    book: Book, making: Making, others: Sequence[str], rng: random.Random
) -> dict[str, Sequence[str]]:
    """How the goal and some other things can be made here, shuffled."""
    near = {part.name for recipe in book.closure(making.goal) for part in recipe.using}
    notes: dict[str, Sequence[str]] = {making.goal: making.steps}
    taken = set(making.steps)
    for item in rng.sample(others, len(others)):
        if len(notes) > NOTES:
            break
        elsewhere = draw_supply(book, item, rng) - near
        steps = solve(book, item, missing=making.missing | elsewhere) or []
        if len(steps) in STEPS and taken.isdisjoint(steps):
            notes[item] = steps
            taken.update(steps)
    mixed = list(notes.items())
    rng.shuffle(mixed)
    return dict(mixed)


def _amount(config: TaskConfig, split: str) -> int:
    if split == "train":
        return config.train_games
    return config.final_games if split.startswith("final") else config.valid_games
