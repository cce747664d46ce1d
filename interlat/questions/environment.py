"""Questions as an environment of one turn: the problem comes, the reply is graded, that is all.

So everything that plays episodes plays questions: collection, training, every condition, the table.
What answers a reply is its verdict as JSON, which the episode's file keeps:

{"prediction": "5", "gold": "7", "correct": false, "reason": "different",
 "type": "Algebra", "level": "Level 3"}
"""

import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from interlat.config import TaskConfig, UserError
from interlat.envs.base import EnvironmentKind, StepResult
from interlat.questions.judge import Judge, shared_judge
from interlat.tasks import Task

Style = Literal["plain", "react"]
_REACT = (
    "Solve the problem. Reason step by step, and put the final answer, and nothing else, within "
    "\\boxed{{}}.\n\n{problem}"
)
_SPACED_BOX = re.compile(r"\\\s+(?=f?box)")


class Moment(NamedTuple):
    """A snapshot."""

    task: Task
    answered: bool


class QuestionEnvironment:
    """Asks what a task's instruction asks; ``env_args["solution"]`` holds the right answer.

    "type" and "level" of the ``env_args`` are handed on with the verdict.
    """

    def __init__(self, *, prompt: Style = "plain", judge: Judge | None = None) -> None:
        """judge: None for the one that all environments of a process share."""
        self._style: Style = prompt
        self._judge = judge or shared_judge()
        self._moment: Moment | None = None

    def reset(self, task: Task) -> str:
        """Ask the question. Raises UserError when there is no answer to it."""
        if not isinstance(task.env_args.get("solution"), str):
            raise UserError(
                f"task {task.task_id}: env_args has no text `solution`, so that no answer can be "
                "graded; stages/prepare.py writes questions with theirs"
            )
        self._moment = Moment(task, answered=False)
        return task.instruction

    def step(self, action: str) -> StepResult:
        """Grade a reply, which ends the episode; only the first one counts."""
        task, answered = self._now()
        verdict = self._judge.grade(action, task.env_args["solution"])
        won = verdict.correct and not answered
        self._moment = Moment(task, answered=True)
        kind = {name: task.env_args.get(name) for name in ("type", "level")}
        told = {**verdict._asdict(), **kind}
        info = {"steps": 1, "valid": verdict.prediction is not None, **told}
        return StepResult(json.dumps(told, ensure_ascii=False), float(won), True, won, info)

    def admissible(self) -> list[str]:
        """Empty: a reply is any text."""
        return []

    def snapshot(self) -> Moment:
        """This moment; an immutable value."""
        return self._now()

    def restore(self, state: Moment) -> None:
        """Go on from there."""
        self._moment = state

    def first_turn(self, observation: str) -> str:
        """The problem; in ``react`` style after a word on the form of the answer."""
        return first_turn(observation, self._style)

    def next_turn(self, observation: str) -> str:
        """The verdict."""
        return observation

    def parse_action(self, reply: str) -> str:
        """The whole reply; word-level tokenizers set a space after the box's backslash."""
        return _SPACED_BOX.sub(r"\\", reply)

    def close(self) -> None:
        """Drop the question."""
        self._moment = None

    def _now(self) -> Moment:
        if self._moment is None:
            raise ValueError("reset comes first")
        return self._moment


def first_turn(problem: str, style: Style) -> str:
    """The first human turn."""
    return _REACT.format(problem=problem) if style == "react" else problem


def settings(task: TaskConfig, games: Path) -> dict[str, Any]:
    """The keyword arguments of ``QuestionEnvironment``."""
    return {"prompt": task.prompt}


KIND = EnvironmentKind(
    environment="interlat.questions.environment:QuestionEnvironment",
    settings=settings,
    preparation="interlat.questions.prepare",
)
