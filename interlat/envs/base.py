"""What every interactive environment offers, and the registry that makes one by its name.

An environment speaks text only: no torch, no model, no template. The policy above it renders turns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from interlat.config import UserError
from interlat.tasks import Task


class StepResult(NamedTuple):
    """What an action brought."""

    observation: str
    reward: float
    done: bool
    """The episode is over: won, or out of steps."""
    won: bool
    """The environment itself says that the task is solved; a time-out never is."""
    info: dict[str, Any]


class Environment(Protocol):
    """One episode at a time of one task."""

    def reset(self, task: Task) -> str:
        """Start the task's episode; returns the first observation."""
        ...

    def step(self, action: str) -> StepResult:
        """Do one action, as ``parse_action`` returns it."""
        ...

    def admissible(self) -> list[str]:
        """Every action that would be understood now, sorted."""
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


Maker = Callable[..., Environment]
_makers: dict[str, Callable[[], Maker]] = {}


def register(name: str, load: Callable[[], Maker]) -> None:
    """Offer an environment; ``load`` imports and returns its class when one is first made."""
    _makers[name] = load


def make(name: str, **config: Any) -> Environment:
    """An environment by its registered name. Raises UserError when there is none of that name."""
    if name not in _makers:
        names = ", ".join(sorted(_makers))
        raise UserError(f"task.name: no environment is called {name!r}; there is: {names}")
    return _makers[name]()(**config)


def parse_reply(reply: str) -> str:
    """The first line of everything after the first "Action:", or of the whole reply without one."""
    _, marker, tail = reply.partition("Action:")
    text = (tail if marker else reply).strip()
    return text.splitlines()[0].strip() if text else ""
