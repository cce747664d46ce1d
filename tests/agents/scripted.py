"""An environment that does as its task says: win at a step, raise, refuse to start."""

from interlat.envs import base
from interlat.envs.base import Maker, StepResult, parse_reply
from interlat.tasks import Task


class ScriptedEnvironment:
    """env_args: {"win_at", "done_at", "raise_at": a step (0: at the start)}, {"silent": 1}."""

    def __init__(self, *, step_limit: int, **_: object) -> None:
        self._limit = step_limit

    def reset(self, task: Task) -> str:
        self._script, self._steps = dict(task.env_args), 0
        if self._script.get("raise_at") == 0:
            raise RuntimeError("no such room")
        return f"you see apple {1 + len(task.task_id) % 3}"

    def step(self, action: str) -> StepResult:
        self._steps += 1
        if self._script.get("raise_at") == self._steps:
            raise RuntimeError("the roof fell in")
        won = self._script.get("win_at") == self._steps
        done = won or self._script.get("done_at") == self._steps or self._steps >= self._limit
        valid = self._steps % 2 == 1
        text = f"plate {1 + self._steps % 3}" if valid else "nothing happens"
        info = {} if "silent" in self._script else {"valid": valid}
        return StepResult(text, float(won), done, won, info)

    def admissible(self) -> list[str]:
        return ["look"]

    def first_turn(self, observation: str) -> str:
        return f"{observation} go"

    def next_turn(self, observation: str) -> str:
        return observation

    def parse_action(self, reply: str) -> str:
        return parse_reply(reply)

    def close(self) -> None:
        """Nothing is held."""


def register() -> None:
    """Offer it as `scripted` in this process."""

    def load() -> Maker:
        return ScriptedEnvironment

    base.register("scripted", load)


def scripted_task(task_id: str, **script: int) -> Task:
    """A task of this environment."""
    return Task(task_id, "scripted", "valid_seen", "put apple 1 in plate 2", env_args=script)
