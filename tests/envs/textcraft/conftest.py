"""Small recipe books for the TextCraft tests."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from interlat.envs.textcraft.recipes import Book, Part, Recipe, load_book, shared_book

WORKSHOP = {
    "classes": {"plank": ["ash plank", "elm plank"]},
    "recipes": [
        "craft 4 ash plank using 1 ash log",
        "craft 4 elm plank using 1 elm log",
        "craft 2 cord using 3 flax",
        "craft 2 cord using 1 hemp, 1 wax",
        "craft 1 stool using 3 plank, 1 cord",
        "craft 1 painted stool using 1 stool, 1 elm plank, 2 paint",
    ],
}


@pytest.fixture(autouse=True)
def _fresh_books() -> Iterator[None]:
    yield
    shared_book.cache_clear()


@pytest.fixture
def workshop_file(tmp_path: Path) -> Path:
    path = tmp_path / "workshop.json"
    path.write_text(json.dumps(WORKSHOP))
    return path


@pytest.fixture
def workshop(workshop_file: Path) -> Book:
    """A class, an item with two recipes, depth 1 to 3."""
    return load_book(workshop_file)


@pytest.fixture
def write_minecraft(tmp_path: Path) -> Callable[[Mapping[str, Any]], Path]:
    """Writes recipe files, name -> content, as a data pack has them; returns its folder."""

    def write(files: Mapping[str, Any]) -> Path:
        folder = tmp_path / "pack" / "data/minecraft/recipes"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / f"{name}.json").write_text(text)
        return tmp_path / "pack"

    return write


@st.composite
def books(draw: st.DrawFn) -> Book:
    """Any book without circles: things are made of things with smaller numbers, or of classes."""
    raw = [f"raw {letter}" for letter in "abcd"]
    known, recipes = list(raw), list[Recipe]()
    classes: dict[str, list[str]] = {}
    for number in range(draw(st.integers(1, 7))):
        item = f"thing {'abcdefg'[number]}"
        for _ in range(draw(st.integers(1, 2))):
            names = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
            using = tuple(Part(name, draw(st.integers(1, 5))) for name in names)
            recipes.append(Recipe(item, draw(st.integers(1, 4)), using))
        known.append(item)
        if draw(st.booleans()):
            kind = f"kind {'abcdefg'[number]}"
            things = [name for name in known if name.startswith("thing")]
            classes[kind] = draw(st.lists(st.sampled_from(things), min_size=1, unique=True))
            known.append(kind)
    return Book(recipes, classes)
