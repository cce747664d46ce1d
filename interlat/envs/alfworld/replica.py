"""The engine's behaviour for generated games in plain Python, thousands of times faster.

For drawing and recording many games. It judges nothing: evaluation runs in the engine. Tests, and
every run of the prepare stage on a sample, prove the same text, admissible commands and win flag as
the engine for any admissible command. Generated games only: one location a receptacle, no
receptacle objects.
"""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from interlat.envs.alfworld.generate import TOOLS, GameSpec, grammar
from interlat.envs.alfworld.rooms import AFFORDS, CAN_HOLD, KNIVES, LAMPS, OPENABLE

BANNER = "-= Welcome to TextWorld, ALFRED! =-"
NOTHING = "Nothing happens."
_MIDDLE = "You are in the middle of a room. Looking quickly around you, you see "
_STATES = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}
_LOOKS = (
    ({"ishot", "isclean", "issliced"}, "This is a hot and clean sliced {}."),
    ({"iscool", "isclean", "issliced"}, "This is a cool and clean sliced {}."),
    ({"isclean", "issliced"}, "This is a clean sliced {}."),
    ({"ishot", "issliced"}, "This is a hot sliced {}."),
    ({"iscool", "issliced"}, "This is a cool sliced {}."),
    ({"ishot", "isclean"}, "This is a hot and clean {}."),
    ({"iscool", "isclean"}, "This is a cool and clean {}."),
    ({"ishot"}, "This is a hot {}."),
    ({"isclean"}, "This is a clean {}."),
    ({"iscool"}, "This is a cold {}."),
    ({"istoggled"}, "This {} is on."),
    ({"issliced"}, "This is a sliced {}."),
    (set[str](), "There's nothing special about {}."),
)
"""What examining an object says, by what was done to it: the first that applies."""


class Deed(NamedTuple):
    """A command taken apart; ``thing`` is an object where there is one, else the receptacle."""

    verb: str
    thing: str = ""
    other: str = ""


class Replica:
    """One generated game. ``won`` tells whether the goal holds now."""

    def __init__(self, spec: GameSpec) -> None:
        self.spec = spec
        self._kind = {place.name: place.kind for place in spec.receptacles}
        self._kind |= {item.name: item.kind for item in spec.items}
        self._commands: dict[str, Deed] = {}
        self.won = False

    def reset(self) -> str:
        """Start again; returns the engine's first text."""
        self._at = ""
        self._held = ""
        self._opened: set[str] = set()
        self._place = {item.name: item.place for item in self.spec.items}
        self._state: dict[str, set[str]] = {item.name: set() for item in self.spec.items}
        self.won = False
        self._commands = self._possible()
        places = listing(place.name for place in self.spec.receptacles)
        return f"{BANNER}\n\n{_MIDDLE}{places}.\n\nYour task is to: {self.spec.instruction}."

    def admissible(self) -> list[str]:
        """Every command that the engine would list now, sorted."""
        return sorted(self._commands)

    def step(self, command: str) -> str:
        """The engine's answer to a command."""
        deed = self._commands.get(command.strip())
        if deed is None:
            return NOTHING
        answer = self._do(deed)
        self.won = self._goal_holds()
        self._commands = self._possible()
        return answer

    def _possible(self) -> dict[str, Deed]:
        """Command -> what it does, for all that is possible now."""
        at, held = self._at, self._held
        deeds = {verb: Deed(verb) for verb in ("look", "inventory", "help")}
        for place in self.spec.receptacles:
            if place.name != at:
                deeds[f"go to {place.name}"] = Deed("go", place.name)
        if held:
            deeds[f"examine {held}"] = Deed("examine", held)
        if at:
            deeds[f"examine {at}"] = Deed("view", at)
            if self._kind[at] in OPENABLE:
                verb = "close" if at in self._opened else "open"
                deeds[f"{verb} {at}"] = Deed(verb, at)
            self._add_contents(deeds)
        if at and held:
            self._add_uses(deeds)
        return deeds

    def _add_contents(self, deeds: dict[str, Deed]) -> None:
        """What can be done with the objects of the receptacle that the agent is at."""
        at, accessible = self._at, self._accessible(self._at)
        for thing in self._inside(at):
            kind = self._kind[thing]
            if accessible and not self._held and kind not in LAMPS:
                deeds[f"take {thing} from {at}"] = Deed("take", thing, at)
            if kind in AFFORDS["Toggleable"]:
                deeds[f"use {thing}"] = Deed("use", thing)
            if self._held and self._kind[self._held] in KNIVES and kind in AFFORDS["Sliceable"]:
                deeds[f"slice {thing} with {self._held}"] = Deed("slice", thing, self._held)

    def _add_uses(self, deeds: dict[str, Deed]) -> None:
        """What can be done with the held object at the receptacle that the agent is at."""
        at, held = self._at, self._held
        kind = self._kind[held]
        if self._accessible(at) and kind in CAN_HOLD.get(self._kind[at], ()):
            deeds[f"move {held} to {at}"] = Deed("move", held, at)
        for verb, tool, needed in TOOLS.values():
            if self._kind[at] == tool and kind in AFFORDS[needed]:
                deeds[f"{verb} {held} with {at}"] = Deed(verb, held, at)

    def _do(self, deed: Deed) -> str:
        """Change the state and say so in the engine's words."""
        thing, other = deed.thing, deed.other
        match deed.verb:
            case "look":
                return self._look()
            case "inventory":
                carried = f"You are carrying: a {self._held}."
                return carried if self._held else "You are not carrying anything."
            case "help":
                return _help()
            case "view":
                return self._view(thing)
            case "examine":
                state = self._state[thing]
                return next(text for needs, text in _LOOKS if needs <= state).format(thing)
            case "go":
                self._at = thing
                return f"You arrive at {thing}. {self._view(thing)}"
            case "open":
                self._opened.add(thing)
                return f"You open the {thing}. {self._view(thing)}"
            case "close":
                self._opened.remove(thing)
                return f"You close the {thing}."
            case "take":
                self._held, self._place[thing] = thing, ""
                return f"You pick up the {thing} from the {other}."
            case "move":
                self._held, self._place[thing] = "", other
                return f"You move the {thing} to the {other}."
            case "use":
                self._state[thing].add("istoggled")
                return f"You turn on the {thing}."
            case "slice":
                self._state[thing].add("issliced")
                return f"You sliced the {thing} with the {other}."
            case verb:
                self._state[thing] -= {"ishot", "iscool"} if verb in ("heat", "cool") else set()
                self._state[thing].add(_STATES[verb])
                return f"You {verb} the {thing} using the {other}."

    def _accessible(self, place: str) -> bool:
        return self._kind[place] not in OPENABLE or place in self._opened

    def _inside(self, place: str) -> list[str]:
        return [thing for thing, where in self._place.items() if where == place]

    def _look(self) -> str:
        """The command; where no receptacle is, the engine lists what is at that bare spot."""
        if self._at:
            return f"You are facing the {self._at}. Next to it, you see nothing."
        return f"{_MIDDLE}nothing."

    def _view(self, place: str) -> str:
        contents = listing(self._inside(place))
        if self._kind[place] not in OPENABLE:
            return f"On the {place}, you see {contents}."
        if place in self._opened:
            return f"The {place} is open. In it, you see {contents}."
        return f"The {place} is closed."

    def _goal_holds(self) -> bool:
        """The PDDL goal of the task type, on the present state."""
        spec = self.spec
        targets = [thing for thing in self._place if self._kind[thing] == spec.target]
        if spec.lamp:
            lit = any(
                self._kind[thing] == spec.lamp and "istoggled" in self._state[thing]
                for thing in self._inside(self._at)
            )
            return lit and self._held in targets
        there = [
            self._place[thing]
            for thing in targets
            if self._kind.get(self._place[thing]) == spec.goal and self._prepared(thing)
        ]
        if spec.task_type == "pick_two_obj_and_place":
            return len(there) > len(set(there))
        return bool(there)

    def _prepared(self, thing: str) -> bool:
        verb = TOOLS.get(self.spec.task_type, ("", "", ""))[0]
        return not verb or _STATES[verb] in self._state[thing]


def listing(names: Iterable[str]) -> str:
    """Names as the engine lists them: "a cup 1, a mug 2, and a pan 1"."""
    each = [f"a {name}" for name in names]
    if not each:
        return "nothing"
    return each[0] if len(each) == 1 else ", ".join(each[:-1]) + ", and " + each[-1]


@lru_cache(maxsize=1)
def _help() -> str:
    """The package grammar's help text."""
    found = re.search(r'"help\.feedback".*?"rhs": ("(?:[^"\\]|\\.)*")', grammar(), re.DOTALL)
    assert found is not None
    return str(json.loads(found[1])).lstrip()
