import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest

from interlat.envs.alfworld.generate import (
    TASK_TYPES,
    Difficulty,
    GameSpec,
    ImpossibleGame,
    draw_spec,
    game_data,
    problem,
    trajectory,
)
from interlat.envs.alfworld.rooms import CAN_HOLD, ROOMS

OTHER_PROCESS = """
import hashlib
from interlat.envs.alfworld.generate import Difficulty, draw_spec, problem
spec = draw_spec(7, "train", 41, Difficulty(20, 8, 6))
print(hashlib.sha256(problem(spec).encode()).hexdigest())
"""


def test_a_game_is_the_same_bytes_in_a_process_with_another_hash_seed(
    difficulty: Difficulty,
) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "3"}
    other = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    spec = draw_spec(7, "train", 41, difficulty)
    assert hashlib.sha256(problem(spec).encode()).hexdigest() == other


def test_a_game_does_not_depend_on_those_drawn_before(difficulty: Difficulty) -> None:
    alone = draw_spec(7, "train", 5, difficulty)
    assert [draw_spec(7, "train", index, difficulty) for index in range(6)][5] == alone


def test_seed_split_index_and_attempt_each_give_another_game(difficulty: Difficulty) -> None:
    specs = [
        draw_spec(7, "train", 6, difficulty),
        draw_spec(8, "train", 6, difficulty),
        draw_spec(7, "valid_seen", 6, difficulty),
        draw_spec(7, "train", 12, difficulty),
        draw_spec(7, "train", 6, difficulty, attempt=1),
    ]
    assert len({spec.content for spec in specs}) == len(specs)


def test_task_types_have_equal_shares(difficulty: Difficulty) -> None:
    types = Counter(draw_spec(7, "train", index, difficulty).task_type for index in range(60))
    assert types == dict.fromkeys(TASK_TYPES, 10)


@pytest.mark.parametrize("split", ROOMS)
def test_games_keep_the_difficulty_and_their_splits_rooms(
    split: str, difficulty: Difficulty
) -> None:
    for index in range(48):
        spec = draw_spec(3, split, index, difficulty)
        tool = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}.get(
            spec.task_type.split("_")[1], ""
        )
        hiding = [
            place
            for place in spec.receptacles
            if place.kind not in (spec.goal, tool) and spec.target in CAN_HOLD.get(place.kind, ())
        ]
        assert spec.room in ROOMS[split]
        assert len(spec.receptacles) <= 20
        assert len(hiding) >= 6
        targets = [item for item in spec.items if item.kind == spec.target]
        assert len(targets) == (2 if spec.task_type == "pick_two_obj_and_place" else 1)
        assert {item.place for item in targets} <= {place.name for place in hiding}


def test_an_impossible_difficulty_is_said(difficulty: Difficulty) -> None:
    with pytest.raises(ImpossibleGame, match="no room of train"):
        draw_spec(7, "train", 0, difficulty._replace(hiding_places=50))


def test_a_game_is_in_the_official_form(kitchen: GameSpec) -> None:
    game = game_data(kitchen, ["look"])
    assert list(game) == ["pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"]
    assert "Your task is to: put a clean plate in fridge." in game["grammar"]
    assert (
        "(inReceptacle Plate_bar__plus_00_dot_00_bar__plus_00_dot_00_bar__plus_00_dot_00 "
        in (game["pddl_problem"])
    )
    assert trajectory(kitchen)["pddl_params"]["object_target"] == "Plate"
    assert kitchen.folder == (
        "train/pick_clean_then_place_in_recep-Plate-None-Fridge-7/trial_0_00002"
    )


def test_a_spec_is_frozen(kitchen: GameSpec) -> None:
    with pytest.raises(FrozenInstanceError):
        kitchen.room = 8  # type: ignore[misc]
