from collections.abc import Collection

from envs.textcraft.conftest import books
from hypothesis import given
from hypothesis import strategies as st

from interlat.envs.textcraft.crafting import Inventory, act
from interlat.envs.textcraft.recipes import Book, load_book
from interlat.envs.textcraft.solve import find_ways, solve


def wins(book: Book, goal: str, steps: list[str], missing: Collection[str] = ()) -> bool:
    """Whether every step succeeds and the last one, and no other, crafts the goal."""
    inventory: Inventory = {}
    made = []
    for step in steps:
        answer = act(book, missing, inventory, step)
        assert answer.valid, f"{step}: {answer.text}"
        inventory = answer.inventory
        made.append(answer.made == goal)
    return made == [*[False] * (len(steps) - 1), True]


def test_every_shipped_goal_is_won() -> None:
    book = load_book(None)
    assert all(wins(book, goal, solve(book, goal) or []) for goal in book.goals)


def test_what_is_left_over_is_used(workshop: Book) -> None:
    assert solve(workshop, "painted stool", missing=["ash log", "hemp"]) == [
        "get 1 elm log",
        "craft 4 elm plank using 1 elm log",
        "get 3 flax",
        "craft 2 cord using 3 flax",
        "craft 1 stool using 3 elm plank, 1 cord",
        "get 2 paint",
        "craft 1 painted stool using 1 stool, 1 elm plank, 2 paint",
    ]


def test_what_is_carried_is_not_made_again(workshop: Book) -> None:
    steps = solve(workshop, "stool", inventory={"ash plank": 3, "flax": 1})
    assert steps == [
        "get 2 flax",
        "craft 2 cord using 3 flax",
        "craft 1 stool using 3 ash plank, 1 cord",
    ]


def test_the_order_of_preference_decides_among_equals(workshop: Book) -> None:
    order = {recipe: -place for place, recipe in enumerate(workshop.recipes)}
    assert "get 1 elm log" in (solve(workshop, "stool", order=order) or [])
    assert "get 1 ash log" in (solve(workshop, "stool") or [])


def test_what_cannot_be_made_is_known(workshop: Book) -> None:
    assert solve(workshop, "stool", missing=["ash log", "elm log"]) is None
    assert solve(workshop, "ash log") is None
    assert solve(workshop, "dragon") is None


@given(books(), st.data())
def test_the_oracle_wins_whenever_anybody_could(book: Book, data: st.DataObject) -> None:
    missing = data.draw(st.sets(st.sampled_from(sorted(book.raw))))
    for goal in book.goals:
        steps = solve(book, goal, missing=missing)
        if steps is None:
            assert goal not in find_ways(book, goal, missing)
            assert missing
        else:
            assert wins(book, goal, steps, missing)
