"""Tasks and demonstrations: what the prepare stage calls.

A task is a goal by its number. The products are parted once: those of the unseen splits are never
asked for in train; the others' goals are shared out among train and the seen splits. A split has as
many goals as its setting says, or all in its share where these are fewer.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from interlat.config import TaskConfig, UserError
from interlat.envs.base import Advance, Metrics
from interlat.envs.recorded import KNOWLEDGE, Recorded, write_recorded
from interlat.envs.webshop.environment import Style, first_turn, next_turn
from interlat.envs.webshop.experts import Play, knowledge_text, plan_text, play
from interlat.envs.webshop.goals import Goal
from interlat.envs.webshop.shop import Shop, open_shop
from interlat.tasks import Task, Turn

SPLITS = ("train", "valid_seen", "valid_unseen")
"""Splits that are made unless others are asked for."""
UNSEEN = 0.2
"""Share of the products that train never asks for."""


class Share(NamedTuple):
    """Which goals a split draws from: a stretch of those about seen or unseen products."""

    unseen: bool
    start: float
    end: float


SHARES = {
    "train": Share(False, 0.0, 0.7),
    "valid_seen": Share(False, 0.7, 0.8),
    "final_seen": Share(False, 0.8, 1.0),
    "valid_unseen": Share(True, 0.0, 0.3),
    "final_unseen": Share(True, 0.3, 1.0),
}


def count_games(config: TaskConfig, splits: Sequence[str]) -> int:
    """How many games ``prepare`` will report to ``advance``."""
    shop = _shop(config)
    return sum(len(choose_goals(shop, config, split)) for split in splits)


def prepare(
    config: TaskConfig,
    tasks: Path,
    games: Path,
    splits: Sequence[str] = SPLITS,
    *,
    workers: int = 1,
    advance: Advance = lambda done: None,
) -> Metrics:
    """Write tasks/<knowledge>/<split>.jsonl; nothing goes to ``games``, and one process is enough.

    Raises UserError for a split that there is not, or for which the catalogue is too small.
    """
    shop = _shop(config)
    chosen = {split: choose_goals(shop, config, split) for split in splits}
    metrics: Metrics = {}
    for split, numbers in chosen.items():
        recorded = []
        for number in numbers:
            recorded.append(_record(shop, number, split, config))
            advance(1)
        metrics[split] = write_recorded(tasks, split, recorded, config.success_steps)
    return metrics


def choose_goals(shop: Shop, config: TaskConfig, split: str) -> list[int]:
    """The numbers of a split's goals. Raises UserError as ``prepare`` does."""
    if split not in SHARES:
        raise UserError(f"splits: {split!r} is none of {', '.join(SHARES)}")
    share = SHARES[split]
    asked = sorted({goal.product.asin for goal in shop.goals})
    rng = random.Random(f"{config.seed} webshop splits")
    hidden = set(rng.sample(asked, round(UNSEEN * len(asked))))
    pool = [n for n, goal in enumerate(shop.goals) if (goal.product.asin in hidden) == share.unseen]
    rng.shuffle(pool)
    pool = pool[round(share.start * len(pool)) : round(share.end * len(pool))]
    if not pool:
        raise UserError(
            f"task.data: {split} would be empty, the catalogue has {len(shop.goals)} goals about "
            f"{len(asked)} products; more are needed"
        )
    if split == "train":
        return pool[: config.train_games]
    if split.startswith("final"):
        random.Random(f"{config.final_seed} webshop final").shuffle(pool)
        return pool[: config.final_games]
    return pool[: config.valid_games]


def _shop(config: TaskConfig) -> Shop:
    return open_shop(None if config.data is None else Path(config.data), config.seed)


def _record(shop: Shop, number: int, split: str, config: TaskConfig) -> Recorded:
    """Let both experts play a goal."""
    goal = shop.goals[number]
    tasks, steps = {}, {}
    for knowledge, informed in KNOWLEDGE.items():
        demonstration = play(shop, goal, informed=informed, step_limit=config.step_limit)
        tasks[knowledge] = Task(
            task_id=f"{split}-{number:05d}",
            env="webshop",
            split=split,
            instruction=goal.instruction,
            knowledge=knowledge_text(goal) if informed else None,
            plan=plan_text(goal, informed=informed),
            conversations=_conversation(demonstration, config.prompt),
            env_args={"goal": number},
        )
        won = demonstration.reward == 1.0
        steps[knowledge] = len(demonstration.actions) if won else None
    return Recorded(_content(goal), tasks, steps)


def _content(goal: Goal) -> str:
    return f"{goal.product.asin} {goal.instruction}"


def _conversation(demonstration: Play, style: Style) -> tuple[Turn, ...]:
    """An episode as turns, ended by its last action."""
    first, *rest = demonstration.observations[:-1]
    human = [first_turn(first, style), *(next_turn(text, style) for text in rest)]
    prefix = "Action: " if style == "react" else ""
    return tuple(
        turn
        for observation, action in zip(human, demonstration.actions, strict=True)
        for turn in (
            Turn({"from": "human", "value": observation}),
            Turn({"from": "gpt", "value": prefix + action}),
        )
    )
