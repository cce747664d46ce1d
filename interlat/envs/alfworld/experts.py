"""The two experts that write the demonstrations, and the words of plans and knowledge.

Both act on text alone: the engine's observations and, for the informed one, a scout's knowledge.
The searching expert knows only which kinds of receptacle can hold the object, as everybody does: it
looks at open places first (one step each), then into closed ones (two), in the order in which the
room was listed, never into places of the goal's or the tool's own kind, and remembers all it saw.
"""

import re
from collections.abc import Generator
from typing import NamedTuple

from alfworld.gen.goal_library import gdict

from interlat.envs.alfworld.generate import TASK_TYPES, TOOLS, GameSpec
from interlat.envs.alfworld.replica import NOTHING, Replica
from interlat.envs.alfworld.rooms import CAN_HOLD, LAMP_PLACES, LAMPS, OPENABLE

Expert = Generator[str, str, None]
"""Yields commands and is sent the observations that they bring."""

_HOLDERS = {kind.lower(): {thing.lower() for thing in held} for kind, held in CAN_HOLD.items()}
_LAMPS = {kind.lower() for kind in LAMPS}
_LAMP_PLACES = {kind.lower() for kind in LAMP_PLACES}
_OPENABLE = {kind.lower() for kind in OPENABLE}
_INSTRUCTIONS = [
    (
        task_type,
        re.compile(
            template.format(obj=r"(?P<obj>\w+)", recep=r"(?P<recep>\w+)", toggle=r"(?P<toggle>\w+)")
        ),
    )
    for task_type in TASK_TYPES
    for template in gdict[task_type]["templates"]
]


class Wish(NamedTuple):
    """An instruction understood; kinds in lower case, empty where the task has none."""

    task_type: str
    target: str
    goal: str
    lamp: str
    verb: str
    tool: str


def understand(instruction: str) -> Wish:
    """What a templated instruction asks for. Raises ValueError for any other text."""
    for task_type, pattern in _INSTRUCTIONS:
        found = pattern.fullmatch(instruction.strip().removesuffix("."))
        if found:
            words = found.groupdict()
            verb, tool, _ = TOOLS.get(task_type, ("", "", ""))
            return Wish(
                task_type=task_type,
                target=words["obj"],
                goal=words.get("recep") or "",
                lamp=words.get("toggle") or "",
                verb=verb,
                tool=tool.lower(),
            )
    raise ValueError(f"not an instruction of the six task types: {instruction!r}")


class _Memory:
    """What an expert knows of its house: receptacles, things seen, where it stands."""

    def __init__(self, first_observation: str, knowledge: str | None) -> None:
        room, _, instruction = first_observation.partition("Your task is to: ")
        self.wish = understand(instruction)
        self.places: list[str] = re.findall(r"an? (\w+ \d+)", room)
        self.looked: set[str] = set()
        self.seen: dict[str, str] = {}
        for sentence in (knowledge or "").split(" ; ") if knowledge else []:
            thing, place = sentence.split(" in ")
            self.seen[thing] = place
        self.at = ""
        self.done: set[str] = set()

    def first(self, kind: str) -> str:
        """The first listed receptacle of a kind."""
        return next(place for place in self.places if kind_of(place) == kind)

    def find(self, kind: str) -> str | None:
        """A thing of that kind whose place is known and that is not yet where it belongs."""
        known = (t for t in self.seen if kind_of(t) == kind and t not in self.done)
        return next(known, None)

    def next_place(self, kind: str) -> str | None:
        """Where to look next for a kind of thing: open places first, each in listing order."""
        rest = [
            place
            for place in self.places
            if place not in self.looked
            and kind_of(place) not in (self.wish.goal, self.wish.tool)
            and _can_be_in(kind, kind_of(place))
        ]
        return min(rest, key=lambda place: kind_of(place) in _OPENABLE, default=None)


def expert(first_observation: str, knowledge: str | None) -> Expert:
    """Solve a generated game; informed when there is knowledge, else by searching.

    Ends when it believes that the task is done, or when nothing is left to look into.
    """
    memory = _Memory(first_observation, knowledge)
    wish = memory.wish
    for _ in range(2 if wish.task_type == "pick_two_obj_and_place" else 1):
        thing = yield from _fetch(memory, wish.target)
        if thing is None:
            return
        if wish.tool:
            tool = memory.first(wish.tool)
            yield from _go(memory, tool, look_in=False)
            yield f"{wish.verb} {thing} with {tool}"
        if wish.lamp:
            lamp = yield from _approach(memory, wish.lamp)
            if lamp is not None:
                yield f"use {lamp}"
        else:
            goal = memory.first(wish.goal)
            yield from _go(memory, goal)
            yield f"move {thing} to {goal}"
            memory.done.add(thing)


def _fetch(memory: _Memory, kind: str) -> Generator[str, str, str | None]:
    """Find a thing of a kind and take it."""
    thing = yield from _approach(memory, kind)
    if thing is not None:
        yield f"take {thing} from {memory.at}"
    return thing


def _approach(memory: _Memory, kind: str) -> Generator[str, str, str | None]:
    """Stand before a thing of a kind, its receptacle opened; None when none is to be found."""
    while (thing := memory.find(kind)) is None:
        place = memory.next_place(kind)
        if place is None:
            return None
        yield from _go(memory, place)
    yield from _go(memory, memory.seen[thing])
    return thing


def _go(memory: _Memory, place: str, *, look_in: bool = True) -> Generator[str, str, None]:
    """Be at a receptacle and, unless told not to, have it open; note what is there."""
    if memory.at != place:
        observation = yield f"go to {place}"
        memory.at = place
        if look_in and observation.endswith("is closed."):
            observation = yield f"open {place}"
        if ", you see " in observation:
            memory.looked.add(place)
            things = re.findall(r"an? (\w+ \d+)", observation.partition(", you see ")[2])
            memory.seen.update((thing, place) for thing in things)


def kind_of(name: str) -> str:
    """ "cabinet 5" -> "cabinet"."""
    return name.rpartition(" ")[0]


def _can_be_in(thing: str, receptacle: str) -> bool:
    if thing in _LAMPS:
        return receptacle in _LAMP_PLACES
    return thing in _HOLDERS.get(receptacle, ())


class Play(NamedTuple):
    """An expert's episode: one more observation than actions."""

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    won: bool


def play(spec: GameSpec, *, informed: bool, step_limit: int) -> Play:
    """An expert's game in the replica, ended by a win, by giving up or by the step limit."""
    game = Replica(spec)
    observations, actions = [game.reset()], list[str]()
    player = expert(observations[0], knowledge_text(spec) if informed else None)
    try:
        command = next(player)
        while len(actions) < step_limit and not game.won:
            actions.append(command)
            observations.append(game.step(command))
            assert observations[-1] != NOTHING, f"{spec.game_id}: {command}"
            command = player.send(observations[-1])
    except StopIteration:
        pass
    return Play(tuple(observations), tuple(actions), game.won)


def knowledge_text(spec: GameSpec) -> str:
    """What a scout who has seen the house says: every object with its place."""
    return " ; ".join(f"{item.name} in {item.place}" for item in spec.items)


def plan_text(spec: GameSpec, *, informed: bool) -> str:
    """The sender's plan; without knowledge, no place and no number that could not be known."""
    things = [item for item in spec.items if item.kind == spec.target]
    lamp = next((item for item in spec.items if item.kind == spec.lamp), None)
    goal = next((place.name for place in spec.receptacles if place.kind == spec.goal), "")
    verb, kind, _ = TOOLS.get(spec.task_type, ("", "", ""))
    tool = next((place.name for place in spec.receptacles if place.kind == kind), "")
    steps = []
    for number, thing in enumerate(things):
        known = f"find {thing.name} in {thing.place}"
        unknown = f"search for {'another' if number else 'a'} {spec.target.lower()}"
        steps.append(f"{known if informed else unknown} and take it")
        if tool:
            steps.append(f"{verb} it at {tool}")
        if lamp:
            steps.append(
                f"turn on {lamp.name} at {lamp.place}"
                if informed
                else f"search for a {spec.lamp.lower()} and turn it on"
            )
        else:
            steps.append(f"put it in {goal}")
    words = _order(len(steps), bool(lamp))
    return " ".join(f"{word} {step} ." for word, step in zip(words, steps, strict=True))


def _order(steps: int, lamp: bool) -> list[str]:
    """The words that begin a plan's sentences."""
    if steps == 2:
        return ["first", "then" if lamp else "finally"]
    return ["first", "then", *["next"] * (steps - 3), "finally"]
