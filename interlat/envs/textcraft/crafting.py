"""The game's rules as one pure function: what an action does to what the player carries."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from interlat.envs.textcraft.recipes import Book, Part, Recipe

Inventory = Mapping[str, int]
"""Item -> pieces; never changed, only replaced."""
ECHO = 100
"""Characters of a bad action that an answer repeats, at most."""
_CRAFT = re.compile(r"craft (.*) using (.*)", re.ASCII)
_GET = re.compile(r"get ([0-9]{1,6}) (.*)", re.ASCII)
_COUNTED = re.compile(r"([0-9]{1,6}) (.*)", re.ASCII)


class Answer(NamedTuple):
    """What came of an action."""

    text: str
    inventory: Inventory
    made: str | None = None
    """The item that was crafted."""
    valid: bool = True


class CannotDo(Exception):
    """The action is not possible; the text says why."""


def act(book: Book, missing: Collection[str], inventory: Inventory, action: str) -> Answer:
    """Do one action: ``craft 1 table using 4 ash plank, 2 nail``, ``get 2 ash log``, ``inventory``.

    missing: raw items that are not to be had here. A command is understood whatever follows it. One
    that cannot be done changes nothing and is answered with the reason.
    """
    for pattern, do in _VERBS:
        if found := pattern.match(action):
            try:
                return do(book, missing, inventory, *found.groups())
            except CannotDo as reason:
                return Answer(str(reason), inventory, valid=False)
    return Answer(f"Could not execute {_shown(action)}", inventory, valid=False)


def possible_crafts(book: Book, recipe: Recipe, inventory: Inventory) -> list[str]:
    """The commands with which the inventory allows to follow a recipe, one for each choice."""
    choices: list[tuple[Part, ...]] = [()]
    for name, count in recipe.using:
        had = [item for item in book.items(name) if inventory.get(item, 0) >= count]
        choices = [(*chosen, Part(item, count)) for chosen in choices for item in had]
    return [
        str(Recipe(recipe.makes, recipe.amount, using))
        for using in choices
        if all(inventory[item] >= count for item, count in _summed(using).items())
    ]


def _craft(
    book: Book, missing: Collection[str], inventory: Inventory, makes: str, using: str
) -> Answer:
    counted = _COUNTED.match(makes)
    item = counted[2] if counted else makes
    parts = [_part(text.strip()) for text in using.split(",")]
    needed = _summed(parts)
    if any(inventory.get(name, 0) < count for name, count in needed.items()):
        raise CannotDo(f"Could not find enough items to craft {_shown(book.identifier(item))}")
    recipe = next((r for r in book.by_item.get(item, ()) if _follows(book, r, parts)), None)
    if recipe is None:
        raise CannotDo(f"Could not find a valid recipe for {_shown(makes)}")
    left = {name: had - needed.get(name, 0) for name, had in inventory.items()}
    left = {name: had for name, had in left.items() if had}
    left[item] = left.get(item, 0) + recipe.amount
    return Answer(f"Crafted {recipe.amount} {book.identifier(item)}", left, made=item)


def _get(
    book: Book, missing: Collection[str], inventory: Inventory, count: str, item: str
) -> Answer:
    if item not in book.raw or item in missing:
        raise CannotDo(f"Could not find {_shown(item)}")
    got = {**inventory, item: inventory.get(item, 0) + int(count)}
    return Answer(f"Got {int(count)} {item}", got)


def _list(book: Book, missing: Collection[str], inventory: Inventory) -> Answer:
    carried = "".join(f"[{item}] ({count}) " for item, count in inventory.items())
    return Answer(f"Inventory: {carried or 'You are not carrying anything.'}", inventory)


_VERBS: Sequence[tuple[re.Pattern[str], Callable[..., Answer]]] = (
    (_CRAFT, _craft),
    (_GET, _get),
    (re.compile("inventory"), _list),
)


def _part(text: str) -> Part:
    found = _COUNTED.match(text)
    if found is None:
        raise CannotDo(f"Wrong item format: {_shown(text)}")
    return Part(found[2], int(found[1]))


def _summed(parts: Sequence[Part]) -> dict[str, int]:
    total: dict[str, int] = {}
    for name, count in parts:
        total[name] = total.get(name, 0) + count
    return total


def _follows(book: Book, recipe: Recipe, parts: Sequence[Part]) -> bool:
    """Whether the parts are the recipe's, each once; named items before classes."""
    rest = list(parts)
    for name, count in sorted(recipe.using, key=lambda part: part.name in book.classes):
        items = book.items(name)
        same = next((p for p in rest if p.name in items and p.amount == count), None)
        if same is None:
            return False
        rest.remove(same)
    return not rest


def _shown(text: str) -> str:
    """The start of what an agent wrote, as one printable line."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:ECHO])
