"""The 120 rooms and the object priors that come with the pip package ``alfworld``.

Which receptacles a room has, which kinds of object occur in it, which kind of receptacle can hold
which kind of object, and which rooms each split draws from. Kinds are written as in the package
("SinkBasin"); the engine's text writes them in lower case.
"""

import importlib.resources
import json
import random
from functools import cache
from typing import NamedTuple

from alfworld.gen import constants

CAN_HOLD = {kind: frozenset(held) for kind, held in constants.VAL_RECEPTACLE_OBJECTS.items()}
"""Receptacle kind -> the object kinds it can hold."""
OPENABLE = frozenset(constants.OPENABLE_CLASS_SET)
AFFORDS = {name: frozenset(kinds) for name, kinds in constants.VAL_ACTION_OBJECTS.items()}
"""Cleanable, Heatable, Coolable, Toggleable, Sliceable -> object kinds."""
LAMPS = frozenset({"DeskLamp", "FloorLamp"})
KNIVES = frozenset({"Knife", "ButterKnife"})
LAMP_PLACES = frozenset({"SideTable", "Desk", "Dresser", "CoffeeTable", "DiningTable", "Shelf"})
"""Where the generator stands a lamp (the package has no prior for them)."""

_BASINS = {"Sink": "SinkBasin", "Bathtub": "BathtubBasin"}
_FIXTURES = {
    "SinkBasin": 1,
    "BathtubBasin": 1,
    "StoveBurner": 4,
    "CoffeeMachine": 1,
    "Toaster": 1,
    "GarbageCan": 1,
    "LaundryHamper": 1,
    "ToiletPaperHanger": 1,
    "TowelHolder": 1,
    "HandTowelHolder": 2,
}
"""Receptacles that a room's class list names but its layout file does not place: how many."""

_TEST_ROOMS = sorted(constants.TEST_SCENE_NUMBERS)
ROOMS = {
    "train": tuple(sorted(constants.TRAIN_SCENE_NUMBERS)),
    "valid_seen": tuple(sorted(constants.TRAIN_SCENE_NUMBERS)),
    "valid_unseen": tuple(_TEST_ROOMS[0::2]),
    "final_seen": tuple(sorted(constants.TRAIN_SCENE_NUMBERS)),
    "final_unseen": tuple(_TEST_ROOMS[1::2]),
}
"""Split -> room numbers. Unseen rooms are never trained on; those of final_unseen are kept apart
from those of valid_unseen as well, so that no room of the published table was looked at before."""


class Room(NamedTuple):
    """One room: its receptacles and what may lie about in it."""

    number: int
    receptacles: tuple[tuple[str, str], ...]
    """(id, kind), sorted."""
    portable: tuple[str, ...]
    """Object kinds that occur here, can be picked up and fit somewhere; sorted."""
    lamps: tuple[str, ...]


@cache
def room(number: int) -> Room:
    """The room of that number, the same whenever it is asked for. Raises FileNotFoundError."""
    folder = importlib.resources.files("alfworld.gen") / "layouts"
    places = json.loads((folder / f"FloorPlan{number}-openable.json").read_text())
    classes = set(json.loads((folder / f"FloorPlan{number}-objects.json").read_text()))
    receptacles = dict(map(_receptacle, places))
    present = set(receptacles.values())
    rng = random.Random(f"fixtures of room {number}")
    for kind, count in _FIXTURES.items():
        if kind in classes and kind not in present:
            for _ in range(count):
                receptacles[new_id(kind, rng)] = kind
    holdable = set().union(*(CAN_HOLD.get(kind, frozenset()) for kind in receptacles.values()))
    objects = (classes & set(constants.OBJECTS) & holdable) - set(receptacles.values()) - LAMPS
    return Room(
        number=number,
        receptacles=tuple(sorted(receptacles.items())),
        portable=tuple(sorted(objects)),
        lamps=tuple(sorted(classes & LAMPS)),
    )


def new_id(kind: str, rng: random.Random) -> str:
    """An id as the simulator writes them: kind and a point in the room, in metres."""
    stem = next((stem for stem, basin in _BASINS.items() if basin == kind), kind)
    x, y, z = rng.uniform(-3, 3), rng.uniform(0, 2), rng.uniform(-3, 3)
    point = f"{stem}|{x:+06.2f}|{y:+06.2f}|{z:+06.2f}"
    return point if stem == kind else f"{point}|{kind}"


def _receptacle(place: str) -> tuple[str, str]:
    """Id and kind of a layout file's entry; a sink or bathtub is used through its basin."""
    stem = place.split("|")[0]
    basin = _BASINS.get(stem)
    if basin is None:
        return place, stem
    return (place if place.endswith(basin) else f"{place}|{basin}"), basin
