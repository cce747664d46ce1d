import dataclasses

import pytest

from interlat.envs.alfworld.experts import (
    expert,
    knowledge_text,
    plan_text,
    play,
    understand,
)
from interlat.envs.alfworld.generate import Difficulty, GameSpec, Item, Receptacle, draw_spec
from interlat.envs.alfworld.rooms import CAN_HOLD


def test_the_informed_expert_wins_every_game(difficulty: Difficulty) -> None:
    plays = [
        play(draw_spec(5, "valid_unseen", index, difficulty), informed=True, step_limit=20)
        for index in range(60)
    ]
    assert all(each.won for each in plays)
    assert max(len(each.actions) for each in plays) <= 12


def test_the_searching_expert_wins_in_the_end_and_is_the_same_twice(
    difficulty: Difficulty,
) -> None:
    for index in range(60):
        spec = draw_spec(5, "valid_unseen", index, difficulty)
        first = play(spec, informed=False, step_limit=100)
        assert first.won
        assert first == play(spec, informed=False, step_limit=100)


def test_the_searching_expert_looks_only_where_the_thing_can_be(difficulty: Difficulty) -> None:
    for index in range(0, 60, 6):
        spec = draw_spec(5, "train", index, difficulty)
        kinds = {place.name: place.kind for place in spec.receptacles}
        for action in play(spec, informed=False, step_limit=100).actions:
            if action.startswith("go to "):
                kind = kinds[action.removeprefix("go to ")]
                assert kind == spec.goal or spec.target in CAN_HOLD[kind]


def test_the_searching_expert_looks_at_open_places_before_closed_ones(kitchen: GameSpec) -> None:
    assert play(kitchen, informed=False, step_limit=100).actions[:4] == (
        "go to countertop 1",
        "go to cabinet 2",
        "open cabinet 2",
        "go to cabinet 1",
    )


def test_the_searching_expert_returns_to_what_it_saw_on_the_way(kitchen: GameSpec) -> None:
    lamp = Item("DeskLamp|+00.00|+00.00|+00.00", "DeskLamp", "desklamp 1", "shelf 1")
    shelf = Receptacle("Shelf|+00.00|+00.00|+00.00", "Shelf", "shelf 1")
    spec = dataclasses.replace(
        kitchen,
        task_type="look_at_obj_in_light",
        instruction="look at plate under the desklamp",
        goal="",
        lamp="DeskLamp",
        receptacles=(*kitchen.receptacles, shelf),
        items=(lamp, *kitchen.items),
    )
    actions = play(spec, informed=False, step_limit=100).actions
    assert "go to shelf 1" in actions[: actions.index("take plate 1 from cabinet 1")]
    assert actions[-2:] == ("go to shelf 1", "use desklamp 1")


def test_the_step_limit_ends_a_play(kitchen: GameSpec) -> None:
    cut = play(kitchen, informed=False, step_limit=3)
    assert len(cut.actions) == 3
    assert len(cut.observations) == 4
    assert not cut.won


def test_an_expert_acts_on_text_alone() -> None:
    player = expert(
        "You are in the middle of a room. Looking quickly around you, you see a shelf 1, "
        "and a sofa 1.\n\nYour task is to: put a book in shelf.",
        "book 1 in sofa 1",
    )
    actions = [next(player)]
    actions.append(player.send("You arrive at sofa 1. On the sofa 1, you see a book 1."))
    actions.append(player.send("You pick up the book 1 from the sofa 1."))
    assert actions == ["go to sofa 1", "take book 1 from sofa 1", "go to shelf 1"]


def test_knowledge_names_every_object_with_its_place(kitchen: GameSpec) -> None:
    assert knowledge_text(kitchen) == (
        "apple 1 in countertop 1 ; knife 1 in countertop 1 ; plate 1 in cabinet 1"
    )


def test_plans_say_the_places_only_to_those_who_know_them(kitchen: GameSpec) -> None:
    assert plan_text(kitchen, informed=True) == (
        "first find plate 1 in cabinet 1 and take it . then clean it at sinkbasin 1 . "
        "finally put it in fridge 1 ."
    )
    assert plan_text(kitchen, informed=False) == (
        "first search for a plate and take it . then clean it at sinkbasin 1 . "
        "finally put it in fridge 1 ."
    )


def test_a_plan_for_two_takes_one_after_the_other(kitchen: GameSpec) -> None:
    spec = dataclasses.replace(
        kitchen,
        task_type="pick_two_obj_and_place",
        target="Pen",
        items=(
            Item("Pen|1", "Pen", "pen 2", "cabinet 2"),
            Item("Pen|2", "Pen", "pen 1", "countertop 1"),
        ),
    )
    assert plan_text(spec, informed=True) == (
        "first find pen 2 in cabinet 2 and take it . then put it in fridge 1 . "
        "next find pen 1 in countertop 1 and take it . finally put it in fridge 1 ."
    )


def test_a_plan_for_looking_turns_on_the_lamp(kitchen: GameSpec) -> None:
    lamp = Item("DeskLamp|1", "DeskLamp", "desklamp 1", "countertop 1")
    spec = dataclasses.replace(
        kitchen, task_type="look_at_obj_in_light", goal="", lamp="DeskLamp", items=(
            lamp, *kitchen.items,
        )
    )  # fmt: skip
    assert plan_text(spec, informed=True) == (
        "first find plate 1 in cabinet 1 and take it . then turn on desklamp 1 at countertop 1 ."
    )


def test_instructions_are_understood() -> None:
    assert understand("clean some plate and put it in fridge.").tool == "sinkbasin"
    assert understand("examine the book with the desklamp").lamp == "desklamp"
    with pytest.raises(ValueError, match="not an instruction"):
        understand("make me happy")
