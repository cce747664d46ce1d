"""Games for the ALFWorld engine, drawn from the package's rooms and priors.

A game is a ``GameSpec``: plain data, drawn from a private random stream named by seed, split and
index, so that any game can be made again alone, byte for byte. ``problem``, ``game_data`` and
``trajectory`` write it in the official json_2.1.1 form. Nothing here executes a game.
"""

import importlib.resources
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from alfworld.gen.goal_library import gdict

from interlat.envs.alfworld.rooms import (
    AFFORDS,
    CAN_HOLD,
    KNIVES,
    LAMP_PLACES,
    LAMPS,
    OPENABLE,
    ROOMS,
    Room,
    new_id,
    room,
)

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
TOOLS = {
    "pick_clean_then_place_in_recep": ("clean", "SinkBasin", "Cleanable"),
    "pick_heat_then_place_in_recep": ("heat", "Microwave", "Heatable"),
    "pick_cool_then_place_in_recep": ("cool", "Fridge", "Coolable"),
}
"""Task type -> verb, kind of receptacle that does it, property that the object needs."""
_ESCAPES = {"-": "_minus_", "|": "_bar_", "+": "_plus_", ".": "_dot_", ",": "_comma_"}


class Difficulty(NamedTuple):
    """How large and how cluttered a game is."""

    receptacles: int
    """At most so many in the room."""
    distractors: int
    """Objects that the task does not need."""
    hiding_places: int
    """At least so many receptacles could hold the target."""


class ImpossibleGame(ValueError):
    """No game can be drawn at this difficulty."""


class Receptacle(NamedTuple):
    """A place: the simulator's id, its kind, and the name in the engine's text ("cabinet 5")."""

    id: str
    kind: str
    name: str


class Item(NamedTuple):
    """An object and the name of the receptacle that it starts in or on."""

    id: str
    kind: str
    name: str
    place: str


@dataclass(frozen=True, slots=True)
class GameSpec:
    """One game, complete. Kinds that its task does not have are empty strings."""

    seed: int
    split: str
    index: int
    task_type: str
    room: int
    instruction: str
    target: str
    goal: str
    lamp: str
    receptacles: tuple[Receptacle, ...]
    """In the order in which the engine lists them."""
    items: tuple[Item, ...]
    """In the order in which the engine lists them."""

    @property
    def game_id(self) -> str:
        """Unique over seeds and splits."""
        return f"{self.split}-{self.seed}-{self.index:05d}"

    @property
    def folder(self) -> str:
        """Directory in the official layout, relative to json_2.1.1."""
        goal = self.goal or self.lamp
        title = f"{self.task_type}-{self.target}-None-{goal}-{self.room}"
        return f"{self.split}/{title}/trial_{self.seed}_{self.index:05d}"

    @property
    def content(self) -> tuple[object, ...]:
        """What makes two games the same game, whatever their split, index or wording."""
        places = tuple(receptacle.name for receptacle in self.receptacles)
        items = tuple((item.name, item.place) for item in self.items)
        return self.task_type, self.room, self.target, self.goal, self.lamp, places, items


def draw_spec(
    seed: int, split: str, index: int, difficulty: Difficulty, *, attempt: int = 0
) -> GameSpec:
    """The game of that seed, split and index; its task type is the index modulo six.

    attempt: another game for the same place, where the first one would be a duplicate.
    Raises ImpossibleGame when no room of the split seems to allow it.
    """
    rng = random.Random(f"{seed}/{split}/{index}/{attempt}")
    task_type = TASK_TYPES[index % len(TASK_TYPES)]
    for _ in range(2000):
        number = rng.choice(ROOMS[split])
        draft = _draft(task_type, room(number), difficulty, rng)
        if draft is not None:
            return GameSpec(seed, split, index, task_type, number, *draft)
    raise ImpossibleGame(f"no room of {split} seems to allow {task_type} with {difficulty}")


class _Draft(NamedTuple):
    """What a random stream decides about a game, in the order of ``GameSpec``."""

    instruction: str
    target: str
    goal: str
    lamp: str
    receptacles: tuple[Receptacle, ...]
    items: tuple[Item, ...]


def _draft(
    task_type: str, where: Room, difficulty: Difficulty, rng: random.Random
) -> _Draft | None:
    """One try at a game in a room, or None when the room, or this draw, does not allow it."""
    kinds = dict(where.receptacles)
    present = sorted(set(kinds.values()))
    _, tool, needed = TOOLS.get(task_type, ("", "", ""))
    look = task_type == "look_at_obj_in_light"
    targets = [kind for kind in where.portable if not needed or kind in AFFORDS[needed]]
    if not targets or (tool and tool not in present) or (look and not where.lamps):
        return None
    target = rng.choice(targets)
    goals = [kind for kind in present if kind != tool and target in CAN_HOLD.get(kind, ())]
    goal = "" if look else rng.choice(goals) if goals else None
    if goal is None:
        return None
    kept = _receptacles(where, tool, goal, difficulty, rng)
    hiding = [
        place
        for place in kept
        if kinds[place] not in (tool, goal) and target in CAN_HOLD.get(kinds[place], ())
    ]
    lamp = rng.choice(where.lamps) if look else ""
    stands = [place for place in kept if kinds[place] in LAMP_PLACES] if look else kept
    if len(hiding) < difficulty.hiding_places or not stands:
        return None
    contents: dict[str, str] = {}
    for _ in range(2 if task_type == "pick_two_obj_and_place" else 1):
        _put(contents, target, rng.choice(hiding), rng)
    if look:
        _put(contents, lamp, rng.choice(stands), rng)
    others = [kind for kind in where.portable if kind != target]
    for kind in rng.choices(others, k=difficulty.distractors) if others else []:
        spots = [place for place in kept if kind in CAN_HOLD.get(kinds[place], ())]
        if spots:
            _put(contents, kind, rng.choice(spots), rng)
    template = rng.choice(gdict[task_type]["templates"])
    instruction = template.format(obj=target.lower(), recep=goal.lower(), toggle=lamp.lower())
    names, titles = _names(kept), _names(contents)
    return _Draft(
        instruction=instruction,
        target=target,
        goal=goal,
        lamp=lamp,
        receptacles=tuple(Receptacle(place, kinds[place], name) for place, name in names.items()),
        items=tuple(
            Item(thing, thing.split("|")[0], title, names[contents[thing]])
            for thing, title in titles.items()
        ),
    )


def _receptacles(
    where: Room, tool: str, goal: str, difficulty: Difficulty, rng: random.Random
) -> list[str]:
    """The ids of the game's receptacles: one tool, one to three goals, others as there is room."""
    shuffled = list(where.receptacles)
    rng.shuffle(shuffled)
    tools = [place for place, kind in shuffled if kind == tool][:1]
    goals = [place for place, kind in shuffled if kind == goal][: rng.choice((1, 1, 2, 3))]
    rest = [place for place, kind in shuffled if kind not in (tool, goal)]
    return [*tools, *goals, *rest][: difficulty.receptacles]


def _put(contents: dict[str, str], kind: str, place: str, rng: random.Random) -> None:
    """Add one more object of a kind, under an id of its own."""
    thing = new_id(kind, rng)
    while thing in contents:
        thing = new_id(kind, rng)
    contents[thing] = place


def _names(ids: Iterable[str]) -> dict[str, str]:
    """The engine's name of each id, in its listing order: numbers fall as the escaped ids rise."""
    ordered = sorted(ids, key=lambda thing: escape(thing).lower())
    stems = {
        thing: thing.split("|")[0].lower() + ("basin" if "basin" in thing.lower() else "")
        for thing in ordered
    }
    left = Counter(stems.values())
    names = {}
    for thing in ordered:
        stem = stems[thing]
        names[thing] = f"{stem} {left[stem]}"
        left[stem] -= 1
    return names


def escape(text: str) -> str:
    """An id as a PDDL symbol, spelt as the official games spell it."""
    return re.sub(r"[-|+.,]", lambda found: _ESCAPES[found.group()], text)


@lru_cache(maxsize=1)
def domain() -> str:
    """The package's PDDL domain."""
    return (importlib.resources.files("alfworld.data") / "alfred.pddl").read_text()


@lru_cache(maxsize=1)
def grammar() -> str:
    """The package's text grammar, with UNKNOWN GOAL where the instruction goes."""
    return (importlib.resources.files("alfworld.data") / "alfred.twl2").read_text()


def problem(spec: GameSpec) -> str:
    """The game as a PDDL problem. Each receptacle has a location of its own."""
    places = {place.name: place for place in spec.receptacles}
    spots = {
        place.name: f"loc_bar_{n}_bar_0_bar_0_bar_30" for n, place in enumerate(places.values(), 1)
    }
    start = "loc_bar_0_bar_0_bar_0_bar_30_bar_init"
    objects = sorted({item.kind for item in spec.items} | KNIVES)
    receptacles = sorted(
        {place.kind for place in spec.receptacles} | {"SinkBasin", "Microwave", "Fridge"}
    )
    declared = [
        "agent1 - agent",
        *(f"{escape(item.id)} - object" for item in spec.items),
        *(f"{kind}Type - otype" for kind in objects),
        *(f"{kind}Type - rtype" for kind in receptacles),
        *(f"{escape(place.id)} - receptacle" for place in spec.receptacles),
        *(f"{spot} - location" for spot in [*spots.values(), start]),
    ]
    facts = ["(= (total-cost) 0)", f"(atLocation agent1 {start})"]
    for place in spec.receptacles:
        symbol = escape(place.id)
        facts.append(f"(receptacleType {symbol} {place.kind}Type)")
        facts.append(f"(receptacleAtLocation {symbol} {spots[place.name]})")
        if place.kind in OPENABLE:
            facts.append(f"(openable {symbol})")
    for kind in receptacles:
        held = sorted(CAN_HOLD.get(kind, frozenset()).intersection(objects))
        facts.extend(f"(canContain {kind}Type {thing}Type)" for thing in held)
    for item in spec.items:
        symbol = escape(item.id)
        facts.append(f"(objectType {symbol} {item.kind}Type)")
        facts.append(f"(inReceptacle {symbol} {escape(places[item.place].id)})")
        facts.append(f"(objectAtLocation {symbol} {spots[item.place]})")
        if item.kind not in LAMPS:
            facts.append(f"(pickupable {symbol})")
        facts.extend(
            f"({name.lower()} {symbol})" for name in sorted(AFFORDS) if item.kind in AFFORDS[name]
        )
    goal = gdict[spec.task_type]["pddl"].format(obj=spec.target, recep=spec.goal, toggle=spec.lamp)
    goal = re.sub(r"\s+", " ", goal.replace("#", "-")).strip().removesuffix(")").strip()
    return "\n".join(
        [
            f"(define (problem {spec.game_id.replace('-', '_')})",
            "(:domain alfred)",
            "(:objects",
            *declared,
            ")",
            "(:init",
            *facts,
            ")",
            goal,
            "(:metric minimize (total-cost))",
            ")",
        ]
    )


def game_data(spec: GameSpec, walkthrough: list[str]) -> dict[str, Any]:
    """The contents of game.tw-pddl; ``walkthrough`` is a solution that was executed."""
    return {
        "pddl_domain": domain(),
        "grammar": grammar().replace("UNKNOWN GOAL", spec.instruction),
        "pddl_problem": problem(spec),
        "solvable": True,
        "walkthrough": walkthrough,
    }


def trajectory(spec: GameSpec) -> dict[str, Any]:
    """The contents of traj_data.json, as far as the package's own loader reads it."""
    return {
        "task_id": spec.game_id,
        "task_type": spec.task_type,
        "pddl_params": {
            "object_target": spec.target,
            "parent_target": spec.goal,
            "toggle_target": spec.lamp,
            "mrecep_target": "",
            "object_sliced": False,
        },
        "scene": {"floor_plan": f"FloorPlan{spec.room}", "scene_num": spec.room},
        "turk_annotations": {"anns": [{"task_desc": spec.instruction, "high_descs": []}]},
    }
