import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from envs.textcraft.conftest import WORKSHOP, books
from hypothesis import given

from interlat.config import UserError
from interlat.envs.textcraft.recipes import Book, Part, Recipe, load_book, write_book

Write = Callable[[Mapping[str, Any]], Path]
PLANKS = {
    "type": "minecraft:crafting_shapeless",
    "group": "planks",
    "ingredients": [{"item": "minecraft:oak_log"}],
    "result": {"item": "minecraft:oak_planks", "count": 4},
}
STICK = {
    "type": "minecraft:crafting_shaped",
    "pattern": ["#", "#"],
    "key": {"#": [{"tag": "minecraft:planks"}, {"item": "minecraft:bamboo"}]},
    "result": {"item": "minecraft:stick", "count": 4},
}


def shapeless(makes: str, *using: str) -> dict[str, Any]:
    ingredients = [{"item": f"minecraft:{name}"} for name in using]
    return {
        "type": "minecraft:crafting_shapeless",
        "ingredients": ingredients,
        "result": f"minecraft:{makes}",
    }


def test_the_shipped_book_is_large_and_deep() -> None:
    book = load_book(None)
    depths = [book.depth[goal] for goal in book.goals]
    assert len(book.goals) == len(book.by_item) >= 150
    assert depths == sorted(depths)
    assert set(depths) == {1, 2, 3, 4, 5}
    assert all(book.classes.get(name) or name in book.depth for name in book.uses)


def test_a_line_is_read_as_it_is_written(workshop: Book) -> None:
    (stool,) = workshop.by_item["stool"]
    assert stool == Recipe("stool", 1, (Part("plank", 3), Part("cord", 1)))
    assert [str(recipe) for recipe in workshop.recipes] == WORKSHOP["recipes"]


def test_what_no_recipe_makes_is_raw(workshop: Book) -> None:
    assert workshop.raw == {"ash log", "elm log", "flax", "hemp", "wax", "paint"}


def test_depth_is_of_the_shallowest_way(workshop: Book) -> None:
    depth = {name: workshop.depth[name] for name in ("wax", "plank", "cord", "painted stool")}
    assert depth == {"wax": 0, "plank": 1, "cord": 1, "painted stool": 3}


def test_a_closure_holds_all_that_may_take_part(workshop: Book) -> None:
    assert workshop.closure("painted stool")[0].makes == "painted stool"
    assert set(workshop.closure("painted stool")) == set(workshop.recipes)
    assert {recipe.makes for recipe in workshop.closure("cord")} == {"cord"}


@given(books())
def test_a_written_book_is_read_again(book: Book) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "book.json"
        write_book(path, book)
        again = load_book(path)
    assert (again.recipes, again.classes, again.raw) == (book.recipes, book.classes, book.raw)


def test_minecraft_recipes_follow_the_original_rules(write_minecraft: Write) -> None:
    book = load_book(
        write_minecraft(
            {
                "oak_planks": PLANKS,
                "stick": STICK,
                "gold_ingot": shapeless("gold_ingot", "gold_block"),
                "glass": {"type": "minecraft:smelting", "result": "minecraft:glass"},
            }
        )
    )
    assert [str(recipe) for recipe in book.recipes] == [
        "craft 4 oak planks using 1 oak log",
        "craft 4 stick using 2 planks",
    ]
    assert book.classes == {"planks": ("oak planks",)}
    assert book.raw == {"oak log", "gold block", "gold ingot"}
    assert book.identifier("oak planks") == "minecraft:oak_planks"


def test_equal_ingredients_are_counted_together(write_minecraft: Write) -> None:
    book = load_book(write_minecraft({"a": shapeless("cake", "milk", "egg", "milk")}))
    assert str(book.recipes[0]) == "craft 1 cake using 2 milk, 1 egg"


def test_of_a_circle_the_recipe_of_the_later_file_goes(
    write_minecraft: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="interlat")
    pack = {"z": shapeless("ingot", "nugget"), "a": shapeless("nugget", "ingot")}
    book = load_book(write_minecraft(pack))
    assert [recipe.makes for recipe in book.recipes] == ["nugget"]
    assert "closes a circle: craft 1 ingot using 1 nugget" in caplog.text


def test_a_tag_without_recipes_is_a_thing_that_can_be_got(write_minecraft: Write) -> None:
    book = load_book(write_minecraft({"stick": STICK}))
    assert book.raw == {"planks"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "bad.json: not valid JSON"),
        ("[]", "bad.json: expected a recipe"),
        ({**PLANKS, "ingredients": [{"fluid": "water"}]}, "bad.json: .*neither item nor tag"),
        ({**PLANKS, "ingredients": [[]]}, "bad.json: not a crafting recipe"),
        ({**PLANKS, "ingredients": []}, "bad.json: not a crafting recipe"),
        ({**PLANKS, "result": None}, "bad.json: not a crafting recipe"),
        ({k: v for k, v in STICK.items() if k != "key"}, "bad.json: .*there is no 'key'"),
        ({**STICK, "pattern": ["xx"]}, "bad.json: .*pattern and its key do not agree"),
    ],
)
def test_a_bad_recipe_file_is_named(content: Any, message: str, write_minecraft: Write) -> None:
    with pytest.raises(UserError, match=message):
        load_book(write_minecraft({"good": PLANKS, "bad": content}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipes": []}, "expected"),
        ({"recipes": ["make a stool"]}, "not a recipe: 'make a stool'"),
        ({"recipes": ["craft 1 stool using wood"]}, "not a recipe"),
        ({"recipes": ["craft 1 a using 1 b", "craft 1 b using 1 a"]}, "in a circle.*: a, b"),
        ({"classes": {"plank": ["oak plank"]}}, "class 'plank': no recipe makes oak plank"),
        ({"classes": {"stool": ["ash plank"]}}, "'stool' is a class and an item"),
        ({"classes": {"plank": "ash plank"}}, "class 'plank': expected a list"),
    ],
)
def test_a_bad_book_is_told_with_its_name(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps({**WORKSHOP, **({"classes": {}} if "recipes" in change else {})} | change)
    )
    with pytest.raises(UserError, match=f"mine.json: .*{message}"):
        load_book(path)


def test_a_folder_without_recipes_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no data/minecraft/recipes/\*\.json there"):
        load_book(tmp_path)
    with pytest.raises(UserError, match=r"gone\.json: No such file"):
        load_book(tmp_path / "gone.json")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/glass.json").write_text('{"type": "minecraft:smelting"}')
    with pytest.raises(UserError, match="no shaped or shapeless crafting recipe"):
        load_book(tmp_path)


def test_neither_hash_seed_nor_file_order_change_a_book(write_minecraft: Write) -> None:
    names = ["zeta", "beta", "alpha", "omega"]
    for name in names:
        folder = write_minecraft({name: shapeless(f"{name}_cake", "milk", name, "egg")})
    (folder / "data/minecraft/recipes/zeta.json").touch()
    script = (
        "import sys; from pathlib import Path\n"
        "from interlat.envs.textcraft.recipes import load_book\n"
        "from interlat.envs.textcraft.text import listed\n"
        "book = load_book(Path(sys.argv[1]))\n"
        "print(book.goals, listed(book, book.goals[0], 3, 's'))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script, str(folder)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert next(iter(said)).startswith("('alpha cake', 'beta cake', 'omega cake', 'zeta cake')")
