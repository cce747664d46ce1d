"""The oracle: the steps that make an item, whatever is missing and whatever is already carried."""

from collections.abc import Collection, Mapping
from math import ceil, inf
from typing import NamedTuple

from interlat.envs.textcraft.recipes import Book, Part, Recipe, craft


class Way(NamedTuple):
    """The cheapest known way to an item or class: a recipe to follow, or an item to take."""

    cost: float
    recipe: Recipe | None
    item: str


def solve(
    book: Book,
    goal: str,
    *,
    missing: Collection[str] = (),
    inventory: Mapping[str, int] | None = None,
    order: Mapping[Recipe, int] | None = None,
) -> list[str] | None:
    """Actions that end in crafting the goal; None when it cannot be made.

    missing: raw items that are not to be had. order: recipes in the order of preference among
    equals, the book's own unless given. Of every item the way with the fewest steps for one
    application is taken, and what is left over is used: minimal but where making two things from
    one material by detours would save steps.
    """
    ways = find_ways(book, goal, missing, order)
    if goal not in ways:
        return None
    names = _postorder(ways, goal)
    have = dict(inventory or {}) | {goal: 0}
    need = dict.fromkeys(names, 0) | {goal: 1}
    batches: dict[str, int] = {}
    for name in reversed(names):
        way, short = ways[name], need[name] - have.get(name, 0)
        batches[name] = 0
        if way.recipe is not None and short > 0:
            batches[name] = ceil(short / way.recipe.amount)
            for part in _chosen(ways, way.recipe):
                need[part.name] += batches[name] * part.amount
    steps = []
    for name in names:
        recipe, short = ways[name].recipe, need[name] - have.get(name, 0)
        if recipe is not None:
            command = craft(name, recipe.amount, _chosen(ways, recipe))
            steps += [command] * batches[name]
        elif short > 0:
            steps.append(f"get {short} {name}")
    return steps


def find_ways(
    book: Book,
    goal: str,
    missing: Collection[str] = (),
    order: Mapping[Recipe, int] | None = None,
) -> dict[str, Way]:
    """The cheapest way to everything below a goal that can be had; cost counts steps.

    Costs fall from round to round until none does; they grow along every way, so that no way comes
    back to itself.
    """
    rank = order or {}
    recipes = sorted(book.closure(goal), key=lambda recipe: rank.get(recipe, 0))
    names = dict.fromkeys(part.name for recipe in recipes for part in recipe.using)
    ways = {name: Way(1, None, name) for name in names if name in book.raw and name not in missing}
    kinds = [name for name in names if name in book.classes]
    changed = True
    while changed:
        changed = False
        for recipe in recipes:
            costs = [ways[part.name].cost for part in recipe.using if part.name in ways]
            if len(costs) == len(recipe.using):
                way = Way(1 + sum(costs), recipe, recipe.makes)
                changed |= _improve(ways, recipe.makes, way)
        for kind in kinds:
            made = [recipe.makes for recipe in recipes if recipe.makes in book.classes[kind]]
            for item in made:
                if item in ways:
                    changed |= _improve(ways, kind, Way(ways[item].cost, None, item))
    return ways


def _improve(ways: dict[str, Way], name: str, way: Way) -> bool:
    better = way.cost < (ways[name].cost if name in ways else inf)
    if better:
        ways[name] = way
    return better


def _chosen(ways: Mapping[str, Way], recipe: Recipe) -> list[Part]:
    """A recipe's ingredients, an item in every class's place."""
    return [Part(ways[part.name].item, part.amount) for part in recipe.using]


def _postorder(ways: Mapping[str, Way], goal: str) -> list[str]:
    """Every item that takes part, each after all that it is made of."""
    found: dict[str, None] = {}

    def visit(item: str) -> None:
        if item not in found:
            recipe = ways[item].recipe
            for part in _chosen(ways, recipe) if recipe else ():
                visit(part.name)
            found[item] = None

    visit(goal)
    return list(found)
