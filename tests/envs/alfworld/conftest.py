"""Small real games for the ALFWorld tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from interlat.envs.alfworld.generate import Difficulty, GameSpec, Item, Receptacle

UNPACK = Path(__file__).resolve().parents[3].parent / "shared/tools/unpack_alfworld.py"


@pytest.fixture
def difficulty() -> Difficulty:
    return Difficulty(receptacles=20, distractors=8, hiding_places=6)


@pytest.fixture
def kitchen() -> GameSpec:
    """A kitchen of five places: clean the plate in the cabinet and put it in the fridge."""
    return GameSpec(
        seed=0,
        split="train",
        index=2,
        task_type="pick_clean_then_place_in_recep",
        room=7,
        instruction="put a clean plate in fridge",
        target="Plate",
        goal="Fridge",
        lamp="",
        receptacles=(
            Receptacle("Cabinet|+00.10|+00.00|+00.00", "Cabinet", "cabinet 2"),
            Receptacle("Cabinet|+00.20|+00.00|+00.00", "Cabinet", "cabinet 1"),
            Receptacle("CounterTop|+00.00|+00.00|+00.00", "CounterTop", "countertop 1"),
            Receptacle("Fridge|+00.00|+00.00|+00.00", "Fridge", "fridge 1"),
            Receptacle("Sink|+00.00|+00.00|+00.00|SinkBasin", "SinkBasin", "sinkbasin 1"),
        ),
        items=(
            Item("Apple|+00.00|+00.00|+00.00", "Apple", "apple 1", "countertop 1"),
            Item("Knife|+00.00|+00.00|+00.00", "Knife", "knife 1", "countertop 1"),
            Item("Plate|+00.00|+00.00|+00.00", "Plate", "plate 1", "cabinet 1"),
        ),
    )


@pytest.fixture(scope="session")
def official_games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A json_2.1.1 directory of official valid_seen games; the test is skipped without the data."""
    if not UNPACK.exists():
        pytest.skip("the official games are not on this machine")
    folder = tmp_path_factory.mktemp("official")
    subprocess.run([sys.executable, UNPACK, folder, "valid_seen", "24"], check=True)
    return folder / "json_2.1.1"
