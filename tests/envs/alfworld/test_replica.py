import dataclasses

import pytest

from interlat.envs.alfworld.generate import GameSpec, Item
from interlat.envs.alfworld.replica import NOTHING, Replica, listing


@pytest.fixture
def game(kitchen: GameSpec) -> Replica:
    replica = Replica(kitchen)
    replica.reset()
    return replica


def test_the_first_text_lists_places_and_task(kitchen: GameSpec) -> None:
    assert Replica(kitchen).reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 2, "
        "a cabinet 1, a countertop 1, a fridge 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a clean plate in fridge."
    )


def test_the_task_is_won_by_doing_it(game: Replica) -> None:
    answers = [
        (command, game.step(command))
        for command in (
            "go to cabinet 1",
            "open cabinet 1",
            "take plate 1 from cabinet 1",
            "go to sinkbasin 1",
            "clean plate 1 with sinkbasin 1",
            "go to fridge 1",
            "open fridge 1",
        )
    ]
    assert not game.won
    assert game.step("move plate 1 to fridge 1") == "You move the plate 1 to the fridge 1."
    assert game.won
    assert dict(answers)["open cabinet 1"] == (
        "You open the cabinet 1. The cabinet 1 is open. In it, you see a plate 1."
    )


def test_a_plate_that_is_not_clean_wins_nothing(game: Replica) -> None:
    for command in ("go to cabinet 1", "open cabinet 1", "take plate 1 from cabinet 1"):
        game.step(command)
    for command in ("go to fridge 1", "open fridge 1", "move plate 1 to fridge 1"):
        game.step(command)
    assert not game.won


def test_what_is_not_possible_changes_nothing(game: Replica) -> None:
    before = game.admissible()
    assert game.step("take plate 1 from cabinet 1") == NOTHING
    assert game.step("") == NOTHING
    assert game.admissible() == before


def test_a_closed_cabinet_hides_its_contents(game: Replica) -> None:
    assert game.step("go to cabinet 1") == "You arrive at cabinet 1. The cabinet 1 is closed."
    assert "take plate 1 from cabinet 1" not in game.admissible()


def test_a_held_knife_slices(game: Replica) -> None:
    game.step("go to countertop 1")
    game.step("take knife 1 from countertop 1")
    assert game.step("slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."


def test_two_things_must_be_in_the_same_place(kitchen: GameSpec) -> None:
    spec = dataclasses.replace(
        kitchen,
        task_type="pick_two_obj_and_place",
        instruction="put two plate in cabinet",
        goal="Cabinet",
        items=(
            Item("Plate|+00.00|+00.00|+00.00", "Plate", "plate 2", "countertop 1"),
            Item("Plate|+00.10|+00.00|+00.00", "Plate", "plate 1", "cabinet 1"),
        ),
    )
    game = Replica(spec)
    game.reset()
    for command in ("go to countertop 1", "take plate 2 from countertop 1", "go to cabinet 2"):
        game.step(command)
    for command in ("open cabinet 2", "move plate 2 to cabinet 2"):
        game.step(command)
    assert not game.won
    for command in ("take plate 2 from cabinet 2", "go to cabinet 1", "open cabinet 1"):
        game.step(command)
    game.step("move plate 2 to cabinet 1")
    assert game.won


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "nothing"),
        (["cup 1"], "a cup 1"),
        (["cup 2", "cup 1"], "a cup 2, and a cup 1"),
        (["cup 1", "egg 1", "pan 1"], "a cup 1, a egg 1, and a pan 1"),
    ],
)
def test_lists_read_as_the_engine_writes_them(names: list[str], text: str) -> None:
    assert listing(names) == text
