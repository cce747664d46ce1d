"""Recipes, the books that hold them, and the files that books are read from.

Two forms: a book of our own, one JSON file

    {"classes": {"plank": ["ash plank", "elm plank"]},
     "recipes": ["craft 4 ash plank using 1 ash log", "craft 1 table using 4 plank, 2 nail"]}

where an ingredient may be a class (any one of its members) and what no recipe makes can be got; and
a folder of Minecraft recipes (data/minecraft/recipes/*.json), from which shaped and shapeless
crafting are taken by the rules of the original game.
"""

import importlib.resources
import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from interlat.config import UserError
from interlat.files import atomic_write_json

log = logging.getLogger(__name__)

RECIPE_FOLDERS = ("data/minecraft/recipes", "recipes", ".")
"""Where in a user's folder Minecraft's recipes may lie."""
_LINE = re.compile(r"craft (?P<amount>[1-9]\d{0,5}) (?P<makes>[^\d,][^,]*) using (?P<using>.+)")
_PART = re.compile(r"(?P<amount>[1-9]\d{0,5}) (?P<name>[^\d,][^,]*)")


class Part(NamedTuple):
    """An ingredient: so many of an item, or of any one item of a class."""

    name: str
    amount: int


class Recipe(NamedTuple):
    """One way to make ``amount`` pieces of an item."""

    makes: str
    amount: int
    using: tuple[Part, ...]

    def __str__(self) -> str:
        """The command that the game prints."""
        return craft(self.makes, self.amount, self.using)


class Book:
    """Recipes, looked up by what they make. Never changed once made."""

    def __init__(
        self,
        recipes: Iterable[Recipe],
        classes: Mapping[str, Sequence[str]],
        *,
        items: Iterable[str] = (),
        namespace: str = "",
    ) -> None:
        """classes: class -> its items. items: others that there are, whatever they are good for.

        namespace: stands before the name of an item that was just crafted.
        """
        self.recipes = tuple(recipes)
        self.classes = {name: tuple(items) for name, items in classes.items()}
        self.namespace = namespace
        self._closures: dict[str, tuple[Recipe, ...]] = {}
        by_item: dict[str, list[Recipe]] = defaultdict(list)
        for recipe in self.recipes:
            by_item[recipe.makes].append(recipe)
        self.by_item: Mapping[str, tuple[Recipe, ...]] = {k: tuple(v) for k, v in by_item.items()}
        named = {part.name for recipe in self.recipes for part in recipe.using}
        self.raw = named.union(items) - by_item.keys() - self.classes.keys()
        """What can be got, everywhere and in any amount unless a task says otherwise."""

    @cached_property
    def depth(self) -> Mapping[str, int]:
        """Item or class -> the fewest recipes one above the other; without what cannot be made."""
        found = dict.fromkeys(self.raw, 0)
        rounds = True
        while rounds:
            rounds = False
            for name in (*self.by_item, *self.classes):
                ways = [
                    1 + max(found[part.name] for part in recipe.using)
                    for recipe in self.makers(name)
                    if all(part.name in found for part in recipe.using)
                ]
                if ways and min(ways) < found.get(name, len(self.recipes) + 1):
                    found[name] = min(ways)
                    rounds = True
        return found

    @cached_property
    def goals(self) -> tuple[str, ...]:
        """Everything that can be crafted, shallow ones first."""
        possible = (item for item in self.by_item if item in self.depth)
        return tuple(sorted(possible, key=lambda item: self.depth[item]))

    @cached_property
    def uses(self) -> Mapping[str, tuple[Recipe, ...]]:
        """Item or class -> the recipes that name it as an ingredient."""
        found: dict[str, list[Recipe]] = defaultdict(list)
        for recipe in self.recipes:
            for part in recipe.using:
                found[part.name].append(recipe)
        return {name: tuple(recipes) for name, recipes in found.items()}

    def items(self, name: str) -> tuple[str, ...]:
        """The items of a class, or the item itself."""
        return self.classes.get(name, (name,))

    def makers(self, name: str) -> tuple[Recipe, ...]:
        """The recipes of an item, or of all items of a class."""
        return tuple(recipe for item in self.items(name) for recipe in self.by_item.get(item, ()))

    def closure(self, goal: str) -> tuple[Recipe, ...]:
        """All recipes that may take part in making an item, its own first."""
        if goal not in self._closures:
            found: dict[Recipe, None] = {}
            waiting = [goal]
            while waiting:
                for recipe in self.makers(waiting.pop()):
                    if recipe not in found:
                        found[recipe] = None
                        waiting += [part.name for part in reversed(recipe.using)]
            self._closures[goal] = tuple(found)
        return self._closures[goal]

    def identifier(self, item: str) -> str:
        """How the game names an item that it has just crafted."""
        return f"{self.namespace}:{item.replace(' ', '_')}" if self.namespace else item


def craft(item: str, amount: int, using: Iterable[Part]) -> str:
    """The command that makes an item."""
    return f"craft {amount} {item} using " + ", ".join(f"{many} {name}" for name, many in using)


def load_book(path: Path | None) -> Book:
    """The book in a file of our own form or in a folder of Minecraft's; None for the shipped one.

    Raises UserError, with the file's name, for what is missing, malformed or can never be made.
    """
    if path is None:
        shipped = importlib.resources.files("interlat.envs.textcraft") / "book.json"
        return _own_book(json.loads(shipped.read_text()), Path("book.json"))
    if path.suffix == ".json":
        return _own_book(_read(path), path)
    for folder in RECIPE_FOLDERS:
        if files := sorted((path / folder).glob("*.json")):
            return _minecraft_book(files)
    raise UserError(
        f"{path}: no data/minecraft/recipes/*.json there, nor recipes/*.json; name a folder with "
        "them or a recipe book (.json), or leave task.data null for the book that comes with us"
    )


@lru_cache(maxsize=4)
def shared_book(path: Path | None) -> Book:
    """``load_book``, once a process."""
    return load_book(path)


def write_book(path: Path, book: Book) -> None:
    """Write a book in our own form."""
    atomic_write_json(
        path,
        {
            "namespace": book.namespace,
            "classes": book.classes,
            "items": sorted(book.raw - book.uses.keys()),
            "recipes": [str(recipe) for recipe in book.recipes],
        },
    )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; stages/prepare.py writes a book") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None


def _own_book(tree: Any, path: Path) -> Book:
    tree = tree if isinstance(tree, dict) else {}
    classes, lines, items = (tree.get(key, {}) for key in ("classes", "recipes", "items"))
    if not (lines and _is_names(lines) and _is_names(items or []) and isinstance(classes, dict)):
        raise UserError(f'{path}: expected {{"classes": {{name: [item, ...]}}, "recipes": [...]}}')
    recipes = [_own_recipe(line, path) for line in lines]
    made = {recipe.makes for recipe in recipes}
    for name, members in classes.items():
        if not members or not _is_names(members):
            raise UserError(f"{path}: class {name!r}: expected a list of items")
        if unknown := [item for item in members if item not in made]:
            raise UserError(f"{path}: class {name!r}: no recipe makes {', '.join(unknown)}")
        if name in made:
            raise UserError(f"{path}: {name!r} is a class and an item")
    book = Book(recipes, classes, items=items, namespace=str(tree.get("namespace", "")))
    if never := [item for item in book.by_item if item not in book.depth]:
        raise UserError(f"{path}: in a circle, each needs another to be made: {', '.join(never)}")
    return book


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _own_recipe(line: str, path: Path) -> Recipe:
    found = _LINE.fullmatch(line)
    parts = [_PART.fullmatch(part) for part in found["using"].split(", ")] if found else []
    using = tuple(Part(part["name"], int(part["amount"])) for part in parts if part)
    if found is None or len(using) < len(parts):
        raise UserError(
            f"{path}: not a recipe: {line[:80]!r}; expected `craft 4 ash plank using 1 ash log`, "
            "ingredients separated by a comma"
        )
    return Recipe(found["makes"], int(found["amount"]), using)


class _Grouped(NamedTuple):
    """A Minecraft recipe, and the group of what it makes, if any."""

    recipe: Recipe
    group: str | None


def _minecraft_book(files: Sequence[Path]) -> Book:
    """The original game's rules: no ``_block`` alone, groups are classes, circles are cut.

    A recipe that would close a circle with those of earlier files is left out; a class of which no
    item has a recipe becomes an item.
    """
    found = [grouped for path in files if (grouped := _minecraft_recipe(path)) is not None]
    if not found:
        raise UserError(f"{files[0].parent}: no shaped or shapeless crafting recipe in any file")
    class_of: dict[str, str] = {}
    needs: dict[str, set[str]] = defaultdict(set)
    kept: list[Recipe] = []
    for recipe, group in found:
        using = [part.name for part in recipe.using]
        if len(using) == 1 and using[0].endswith(" block"):
            continue
        if group and group != recipe.makes:
            class_of[recipe.makes] = group
        if any(recipe.makes in needs[name] for name in using):
            log.debug("left out, as it closes a circle: %s", recipe)
            continue
        kept.append(recipe)
        needs[recipe.makes].update(using, *(needs[name] for name in using))
    names = {name for recipe, _ in found for name in (recipe.makes, *dict(recipe.using))}
    classes: dict[str, list[str]] = defaultdict(list)
    for item in dict.fromkeys(recipe.makes for recipe in kept):
        if item in class_of:
            classes[class_of[item]].append(item)
    return Book(kept, classes, items=names, namespace="minecraft")


def _minecraft_recipe(path: Path) -> _Grouped | None:
    """None for a file that is not about crafting. Raises UserError when it is malformed."""
    tree = _read(path)
    kind = tree.get("type") if isinstance(tree, dict) else None
    if not isinstance(kind, str):
        raise UserError(f"{path}: expected a recipe as a JSON object with a `type`")
    read = {"crafting_shaped": _shaped, "crafting_shapeless": _shapeless}.get(_identity(kind))
    if read is None:
        return None
    try:
        using: dict[str, int] = defaultdict(int)
        for name, count in read(tree):
            using[name] += count
        if not using or 0 in using.values():
            raise ValueError("a pattern and its key do not agree")
        result = tree["result"]
        makes, count = (result, 1) if isinstance(result, str) else (_id(result), _count(result))
        recipe = Recipe(_name(makes), count, tuple(Part(*part) for part in using.items()))
        return _Grouped(recipe, _name(tree["group"]) if tree.get("group") else None)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path}: not a crafting recipe: {what}") from None


def _shaped(tree: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    pattern = "".join(tree["pattern"])
    for symbol, choice in tree["key"].items():
        yield _ingredient(choice), pattern.count(symbol)


def _shapeless(tree: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for choice in tree["ingredients"]:
        yield _ingredient(choice), 1


def _ingredient(choice: Any) -> str:
    """An item or a tag; the first of several alternatives."""
    first = choice[0] if isinstance(choice, list) else choice
    for key in ("item", "tag"):
        if key in first:
            return _name(first[key])
    raise ValueError(f"an ingredient that names neither item nor tag: {json.dumps(first)[:80]}")


def _id(result: Mapping[str, Any]) -> str:
    return str(result["item"] if "item" in result else result["id"])


def _count(result: Mapping[str, Any]) -> int:
    return int(result.get("count") or 1)


def _name(identifier: str) -> str:
    """minecraft:oak_planks -> oak planks."""
    return _identity(identifier).replace("_", " ")


def _identity(identifier: str) -> str:
    return identifier.rpartition(":")[2]
