"""What the game says first: crafting commands, some of no use here, and the goal."""

import random
from collections.abc import Sequence
from typing import Literal

from interlat.envs.textcraft.recipes import Book, Recipe

Style = Literal["plain", "react"]
_REACT = """\
You are in a workshop, and a goal tells you what to craft. Each turn you get an observation and \
choose what to do next. Answer with "Thought: <your thoughts>" and a line "Action: <your next \
action>", or with the action line alone. The actions are:
craft <number> <item> using <number> <item>, <number> <item>
get <number> <item>
inventory
Only the crafting commands listed below work, in the amounts given; where one names a kind of \
thing, any item of that kind serves, and you name the item. What no command makes you can get, \
unless there is none here. "Could not find" means that the action was not possible.

"""


def first_turn(observation: str, style: Style) -> str:
    """The first human turn."""
    return _REACT + observation if style == "react" else observation


def listed(book: Book, goal: str, distractors: int, seed: str) -> list[Recipe]:
    """The recipes that a game shows, shuffled: all that may serve the goal, and some that do not.

    Distractors use what the others use as well, as long as there are such recipes.
    """
    rng = random.Random(f"textcraft commands {goal} {seed}")
    own = book.closure(goal)
    used = (part.name for recipe in own for part in recipe.using)
    near = dict.fromkeys(r for name in used for r in book.uses[name] if r not in own)
    shown = [*own, *rng.sample(list(near), min(distractors, len(near)))]
    rng.shuffle(shown)
    return shown


def first_observation(goal: str, recipes: Sequence[Recipe]) -> str:
    """The commands and the goal."""
    commands = "\n".join(map(str, recipes))
    return f"Crafting commands:\n{commands}\n\nGoal: craft {goal}."
