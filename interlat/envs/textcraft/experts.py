"""The two experts that write the demonstrations, and the words of plans and knowledge.

What is hidden in our tasks is the supply: of the raw items that could serve, only those of one way
to the goal are to be had. The informed expert knows them. The searching one supposes that all are,
goes about it in the order in which the commands are listed, and finds another way whenever
something could not be found.
"""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from interlat.envs.textcraft.crafting import Inventory, act
from interlat.envs.textcraft.recipes import Book, Recipe
from interlat.envs.textcraft.solve import find_ways, solve
from interlat.envs.textcraft.text import first_observation
from interlat.tasks import Turn


class Play(NamedTuple):
    """An expert's episode: one more observation than actions."""

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    won: bool


def draw_supply(book: Book, goal: str, rng: random.Random) -> frozenset[str]:
    """Raw items to go without, as many as can be while the goal can still be made."""
    candidates = sorted(
        {part.name for recipe in book.closure(goal) for part in recipe.using} & book.raw
    )
    rng.shuffle(candidates)
    missing: set[str] = set()
    for item in candidates:
        if goal in find_ways(book, goal, missing | {item}):
            missing.add(item)
    return frozenset(missing)


def play(
    book: Book,
    goal: str,
    recipes: Sequence[Recipe],
    missing: frozenset[str],
    *,
    informed: bool,
    step_limit: int,
) -> Play:
    """An expert's game, ended by crafting the goal, by giving up or by the step limit."""
    order = {recipe: place for place, recipe in enumerate(recipes)}
    observations, actions = [first_observation(goal, recipes)], list[str]()
    inventory: Inventory = {}
    known = set(missing if informed else ())
    steps = solve(book, goal, missing=known, order=order)
    won = False
    while steps and not won and len(actions) < step_limit:
        action = steps.pop(0)
        answer = act(book, missing, inventory, action)
        actions.append(action)
        observations.append(answer.text)
        inventory, won = answer.inventory, answer.made == goal
        if not answer.valid:  # only getting something can fail
            known.add(action.split(" ", 2)[2])
            steps = solve(book, goal, missing=known, inventory=inventory, order=order)
    return Play(tuple(observations), tuple(actions), won)


def plan_text(book: Book, goal: str, actions: Sequence[str] | None) -> str:
    """The sender's plan: the actions of an informed expert or, for None, what is to be found out.

    The latter says no more than the goal's own command does.
    """
    if actions is None:
        (recipe, *_) = book.by_item[goal]
        steps = [f"search for a way to make {many} {name}" for name, many in recipe.using]
        steps.append(f"craft {recipe.amount} {goal}")
    else:
        steps = list(actions)
    return _making(goal, steps)


def knowledge_text(makings: Mapping[str, Sequence[str]]) -> str:
    """What a scout has noted who made these things here: every thing, and how."""
    return " ".join(_making(item, steps) for item, steps in makings.items())


def conversation(play: Play, first: str, prefix: str) -> tuple[Turn, ...]:
    """An episode as turns, ended by its last action. first: its first human turn."""
    human = [first, *play.observations[1 : len(play.actions)]]
    return tuple(
        turn
        for observation, action in zip(human, play.actions, strict=True)
        for turn in (
            Turn({"from": "human", "value": observation}),
            Turn({"from": "gpt", "value": prefix + action}),
        )
    )


def _making(item: str, steps: Sequence[str]) -> str:
    return f"{item} : {' ; '.join(steps)} ."
