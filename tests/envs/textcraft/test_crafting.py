from collections.abc import Sequence

import pytest
from envs.textcraft.conftest import books
from hypothesis import given
from hypothesis import strategies as st

from interlat.envs.textcraft.crafting import ECHO, Answer, Inventory, act, possible_crafts
from interlat.envs.textcraft.recipes import Book


def play(book: Book, *actions: str, missing: Sequence[str] = ()) -> Answer:
    inventory: Inventory = {}
    for action in actions:
        answer = act(book, missing, inventory, action)
        inventory = answer.inventory
    return answer


def test_getting_and_crafting_change_the_inventory(workshop: Book) -> None:
    answer = play(workshop, "get 2 ash log", "craft 4 ash plank using 1 ash log")
    assert answer == Answer("Crafted 4 ash plank", {"ash log": 1, "ash plank": 4}, "ash plank")
    assert play(workshop, "get 3 flax").text == "Got 3 flax"


def test_any_item_serves_for_its_class(workshop: Book) -> None:
    parts = ["get 1 elm log", "craft 4 elm plank using 1 elm log", "get 3 flax"]
    answer = play(
        workshop, *parts, "craft 2 cord using 3 flax", "craft 1 stool using 1 cord, 3 elm plank"
    )
    assert answer.inventory == {"elm plank": 1, "cord": 1, "stool": 1}


def test_the_recipe_says_how_many_are_made(workshop: Book) -> None:
    answer = play(workshop, "get 1 ash log", "craft 99 ash plank using 1 ash log")
    assert answer.inventory == {"ash plank": 4}


def test_the_inventory_is_listed_as_the_original_does(workshop: Book) -> None:
    assert play(workshop, "inventory").text == "Inventory: You are not carrying anything."
    assert play(workshop, "get 2 wax", "inventory").text == "Inventory: [wax] (2) "


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("get 1 stool", "Could not find stool"),
        ("get 1 plank", "Could not find plank"),
        ("get 1 gold", "Could not find gold"),
        ("get 1 hemp", "Could not find hemp"),
        ("craft 1 stool using plank", "Wrong item format: plank"),
        ("craft 1 stool using 3 plank, 1 cord", "Could not find enough items to craft stool"),
        ("craft 1 stool using 1 ash log", "Could not find a valid recipe for 1 stool"),
        ("craft 4 ash plank using 2 ash log", "Could not find a valid recipe for 4 ash plank"),
        ("craft 1 cord using 1 ash log, 1 ash log", "Could not find a valid recipe for 1 cord"),
        ("dance", "Could not execute dance"),
        ("", "Could not execute "),
        ("Baue einen Stuhl", "Could not execute Baue einen Stuhl"),
        ("get 1234567 wax", "Could not execute get 1234567 wax"),
        ("dance\x00\x1b[2J", "Could not execute dance  [2J"),
    ],
)
def test_what_cannot_be_done_changes_nothing(workshop: Book, action: str, text: str) -> None:
    before = {"ash log": 2}
    answer = act(workshop, ["hemp"], before, action)
    assert answer == Answer(text, before, valid=False)


@given(
    st.text(max_size=40) | st.from_regex(r"(craft|get) [0-9]* ?\w* (using)? ?.*", fullmatch=True)
)
def test_no_text_is_too_strange(action: str) -> None:
    book = Book([], {})
    assert act(book, (), {}, action * 300).text.startswith(("Could not", "Wrong", "Inventory"))
    assert len(act(book, (), {}, "x" * 10_000).text) == ECHO + len("Could not execute ")


@given(books(), st.data())
def test_every_possible_craft_can_be_done(book: Book, data: st.DataObject) -> None:
    things = st.sampled_from([*book.raw, *book.by_item])
    inventory = data.draw(st.dictionaries(things, st.integers(1, 9)))
    for recipe in book.recipes:
        for command in possible_crafts(book, recipe, inventory):
            answer = act(book, (), inventory, command)
            assert answer.made == recipe.makes
            assert min(answer.inventory.values()) > 0
