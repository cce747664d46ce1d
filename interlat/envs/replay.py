"""Going back by doing again: for worlds whose state cannot be kept, but which repeat themselves."""

from typing import NamedTuple

from interlat.envs.base import Environment
from interlat.tasks import Task


class Moment(NamedTuple):
    """A snapshot: what was done in which task, and what each action brought."""

    task: Task
    history: tuple[tuple[str, str], ...] = ()

    def after(self, action: str, observation: str) -> "Moment":
        """The next moment."""
        return Moment(self.task, (*self.history, (action, observation)))


def replay(environment: Environment, now: Moment | None, then: Moment) -> None:
    """Bring an environment from one moment to another, from the start only if need be.

    Raises RuntimeError when an action brings another observation than it did.
    """
    if now is None or now != Moment(then.task, then.history[: len(now.history)]):
        environment.reset(then.task)
        now = Moment(then.task)
    for action, observation in then.history[len(now.history) :]:
        if environment.step(action).observation != observation:
            raise RuntimeError(f"{then.task.task_id}: {action!r} brought something else again")
