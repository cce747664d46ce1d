"""WebShop as an environment: won when what was bought is worth the full reward."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from interlat.config import UserError
from interlat.envs.base import StepResult, parse_reply
from interlat.envs.webshop.goals import Authors, Goal
from interlat.envs.webshop.shop import INSTRUCTION, SEARCH, SEPARATOR, Available, Place, open_shop
from interlat.tasks import Task

Style = Literal["plain", "react"]
ANY_SEARCH = "search[keywords]"
"""Stands for every search among the admissible actions."""

_REACT = """\
You are shopping in a web shop. An instruction says what to buy. Each turn you get the page that \
you are on and choose what to do next. Answer with "Thought: <your thoughts>" and a line "Action: \
<your next action>", or with the action line alone. The actions are:
search[<keywords>]
click[<a button, product id or option value of the page>]
An action that is not possible leaves you on the same page. Buy Now ends the visit: before it, \
find a product that fits and choose the options asked for.

"""


class Snapshot(NamedTuple):
    """A moment of an episode."""

    task: Task
    place: Place
    steps: int


class WebShopEnvironment:
    """Plays tasks whose ``env_args`` are {"goal": its number in the shop's order of goals}.

    Environments of one process with the same arguments share their catalogue and its index.
    """

    def __init__(
        self,
        *,
        data: str | Path | None,
        seed: int,
        step_limit: int,
        prompt: Style = "plain",
        authors: Authors = "auto",
        attributes_page: bool = False,
    ) -> None:
        """data: a folder in the WebShop format, or a product file in one; None for our own.

        seed: of prices and price limits. authors: whose instructions. attributes_page: offer it.
        Raises UserError for files that are missing or unreadable.
        """
        place = None if data is None else Path(data)
        self.shop = open_shop(place, seed, authors, attributes_page=attributes_page)
        self._step_limit = step_limit
        self._style: Style = prompt
        self._task: Task | None = None
        self._place = Place()
        self._steps = 0

    def reset(self, task: Task) -> str:
        """Start the task's visit at the search page. Raises UserError for a goal there is not."""
        self._goal_of(task)
        self._task, self._place, self._steps = task, Place(), 0
        return self._text()

    def step(self, action: str) -> StepResult:
        """Do one action; one that is not possible costs a step and shows the same page again."""
        goal = self._goal_of(self._playing())
        reached = self.shop.act(self._place, action, goal)
        bought = reached is not None and reached.score is not None
        self._place = reached or self._place
        self._steps += 1
        result = self._place.score
        reward = result.reward if bought and result else 0.0
        done = result is not None or self._steps >= self._step_limit
        info: dict[str, Any] = {"steps": self._steps, "valid": reached is not None}
        if result is not None:
            info["score"] = result._asdict()
        won = result is not None and result.reward == 1.0
        return StepResult(self._text(), reward, done, won, info)

    def available(self) -> Available:
        """Whether there is a search bar, and what can be clicked, as WebShop says it."""
        return self.shop.available(self._place)

    def admissible(self) -> list[str]:
        """The clicks that are possible and, where there is a search bar, ``ANY_SEARCH``."""
        bar, clickables = self.available()
        clicks = [f"click[{label}]" for label in clickables if label != SEARCH.lower()]
        return sorted([*clicks, *([ANY_SEARCH] if bar else [])])

    def first_turn(self, observation: str) -> str:
        """The search page, in ``react`` style after an explanation of the shop."""
        return first_turn(observation, self._style)

    def next_turn(self, observation: str) -> str:
        """The page as it is or, in ``plain`` style, a line for each thing on it."""
        return next_turn(observation, self._style)

    def parse_action(self, reply: str) -> str:
        """The first line after "Action:", or of a bare reply."""
        return parse_reply(reply)

    def snapshot(self) -> Snapshot:
        """This moment: a small value. Raises ValueError before the first reset."""
        return Snapshot(self._playing(), self._place, self._steps)

    def restore(self, state: Snapshot) -> None:
        """Go on from a snapshot, at no cost: nothing is played again."""
        self._goal_of(state.task)
        self._task, self._place, self._steps = state

    def close(self) -> None:
        """Leave the shop."""
        self._task = None

    def _playing(self) -> Task:
        if self._task is None:
            raise ValueError("reset comes first")
        return self._task

    def _text(self) -> str:
        return self.shop.text(self._place, self._goal_of(self._playing()))

    def _goal_of(self, task: Task) -> Goal:
        number = task.env_args.get("goal")
        if not isinstance(number, int) or not 0 <= number < len(self.shop.goals):
            raise UserError(
                f"task {task.task_id}: env_args must have a `goal` from 0 to "
                f"{len(self.shop.goals) - 1}, found {number!r}; stages/prepare.py writes such tasks"
            )
        return self.shop.goals[number]


def first_turn(observation: str, style: Style) -> str:
    """The first human turn in a style."""
    return (_REACT if style == "react" else "") + next_turn(observation, style)


def next_turn(observation: str, style: Style) -> str:
    """A page as a human turn.

    In ``react`` style the page as it is. In ``plain`` style a line for each thing on the page, and
    the instruction only on the search page: less than half of the tokens, for small models.
    """
    if style == "react":
        return observation
    parts = observation.split(SEPARATOR)
    return "\n".join(parts[2:] if parts[0] == INSTRUCTION else parts)
