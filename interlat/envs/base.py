"""What every interactive environment offers, and the registry that finds one by its name.

An environment speaks text only: no torch, no model, no template. The policy above it renders turns.
Reward scale, success rule, step limit and the first turn's instruction are its own.

A kind of environment is registered as an ``EnvironmentKind``: where its class is, how the user's
settings become the arguments of that class, and which module prepares its tasks. The class is
imported in the process that plays, the module in the prepare stage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from interlat.config import TaskConfig, UserError
from interlat.tasks import Task

ENTRY_POINTS = "interlat.environments"
"""Group under which an installed package offers environments of its own."""


class StepResult(NamedTuple):
    """What an action brought."""

    observation: str
    reward: float
    """Of this step; below 0 where it takes back what was earned. An episode sums to [0, 1]."""
    done: bool
    """The episode is over: won, or out of steps."""
    won: bool
    """The environment itself says that the task is solved; a time-out never is."""
    info: dict[str, Any]
    """``steps`` done so far, and ``valid`` (was the action possible?) where that is known."""


class Environment(Protocol):
    """One episode at a time of one task.

    An action in the wrong language, empty or 10 kB long is answered by an observation that says so;
    it costs a step. Only a broken world raises.
    """

    def reset(self, task: Task) -> str:
        """Start the task's episode; returns the first observation."""
        ...

    def step(self, action: str) -> StepResult:
        """Do one action, as ``parse_action`` returns it."""
        ...

    def admissible(self) -> list[str]:
        """Every action that would be understood now, sorted; empty where that is not known."""
        ...

    def first_turn(self, observation: str) -> str:
        """The first human turn, in the prompt style that the environment was made with."""
        ...

    def next_turn(self, observation: str) -> str:
        """The human turn that answers an action."""
        ...

    def parse_action(self, reply: str) -> str:
        """The action in an agent's reply."""
        ...

    def close(self) -> None:
        """Give back what the environment holds."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """What an environment offers beside, where search can go back to an earlier moment."""

    def snapshot(self) -> Any:
        """This moment of the episode, its task included: a value that nothing changes and pickles.

        Raises ValueError before the first reset.
        """
        ...

    def restore(self, state: Any) -> None:
        """Go on from a snapshot of any environment of this kind and configuration, reset or not.

        Raises RuntimeError when the world comes out different from what it was.
        """
        ...


Advance = Callable[[int], None]
"""Told how many more games are done."""
Metrics = dict[str, dict[str, Any]]
"""Split -> figures: ``games``, and for demonstrated tasks ``plan_words`` and both experts' success.

{"games": 120, "plan_words": {"layout": 20.67, "none": 21.17},
 "informed_expert": {"success_12": 1.0}, "searching_expert": {"success_12": 0.53}}
"""


class Preparation(Protocol):
    """What the prepare stage calls: the module that a kind names as its ``preparation``."""

    SPLITS: tuple[str, ...]
    """Splits that are made unless others are asked for."""

    def count_games(self, config: TaskConfig, splits: Sequence[str]) -> int:
        """How many games ``prepare`` will report to ``advance``."""
        ...

    def prepare(
        self,
        config: TaskConfig,
        tasks: Path,
        games: Path,
        splits: Sequence[str],
        *,
        workers: int,
        advance: Advance,
    ) -> Metrics:
        """Write tasks/<knowledge>/<split>.jsonl for each knowledge, layout and none.

        games: a folder for what the environment reads when it plays them. workers: processes; their
        number changes nothing but the time. Raises UserError for a split that there is not.
        """
        ...


Maker = Callable[..., Environment]
Settings = Callable[[TaskConfig, Path], dict[str, Any]]


def general_settings(task: TaskConfig, games: Path) -> dict[str, Any]:
    """What a kind that says nothing else is made with."""
    return {"data": task.data, "step_limit": task.step_limit, "prompt": task.prompt}


@dataclass(frozen=True)
class EnvironmentKind:
    """One kind of environment.

    environment: "package.module:Class", or the class. settings: from the user's settings and the
    folder of prepared games to the class's keyword arguments (which pickle). preparation:
    "package.module", see ``Preparation``; None where tasks come from elsewhere.
    """

    environment: str | Maker
    settings: Settings = general_settings
    preparation: str | None = None

    def make(self, **config: Any) -> Environment:
        """An environment of this kind."""
        place = self.environment
        return cast(Maker, imported(place) if isinstance(place, str) else place)(**config)


Load = Callable[[], EnvironmentKind | Maker]
_loads: dict[str, Load] = {}
_aliases: dict[str, str] = {}


def register(name: str, load: Load, *, aliases: Sequence[str] = ()) -> None:
    """Offer a kind by a name and its aliases; ``load`` imports it when it is first wanted.

    A class that ``load`` returns is a kind with ``general_settings``.
    """
    _loads[name] = load
    _aliases.update(dict.fromkeys(aliases, name))


def find(name: str) -> EnvironmentKind:
    """The kind of a registered name, an entry point's, or at a dotted path "package.module:Class".

    Raises UserError when there is none.
    """
    name = _aliases.get(name, name)
    if name in _loads:
        return _kind(_loads[name]())
    offered = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    if name in offered or ":" in name:
        return _kind(imported(offered.get(name, name)))
    names = ", ".join(sorted({*_loads, *offered}))
    raise UserError(
        f"task.name: no environment is called {name!r}; there is: {names}; "
        "another is named by its place, package.module:Class"
    )


def make(name: str, **config: Any) -> Environment:
    """An environment by the name of its kind. Raises UserError when there is none of that name."""
    return find(name).make(**config)


def preparation(name: str) -> Preparation:
    """What prepares the tasks of a kind. Raises UserError where nothing does."""
    place = find(name).preparation
    if place is None:
        raise UserError(f"task.name: {name} has tasks of its own making; nothing prepares them")
    return cast(Preparation, import_module(place))


def parse_reply(reply: str) -> str:
    """The first line of everything after the first "Action:", or of the whole reply without one."""
    _, marker, tail = reply.partition("Action:")
    text = (tail if marker else reply).strip()
    return text.splitlines()[0].strip() if text else ""


def imported(place: str) -> Any:
    """The thing at "package.module:name". Raises UserError when it is not there."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"task.name: the environment {place} cannot be imported: {error}") from None


def _kind(thing: EnvironmentKind | Maker) -> EnvironmentKind:
    return thing if isinstance(thing, EnvironmentKind) else EnvironmentKind(thing)
