"""TextCraft as an environment: won when the goal is crafted."""

from pathlib import Path
from typing import Any, NamedTuple

from interlat.config import UserError
from interlat.envs.base import StepResult, parse_reply
from interlat.envs.textcraft.crafting import Inventory, act, possible_crafts
from interlat.envs.textcraft.recipes import Recipe, shared_book
from interlat.envs.textcraft.text import Style, first_observation, first_turn, listed
from interlat.tasks import Task

DISTRACTORS = 10
"""Recipes of no use that a game shows unless its task says otherwise."""


class Game(NamedTuple):
    """What a task asks for."""

    goal: str
    recipes: tuple[Recipe, ...]
    missing: frozenset[str]


class Moment(NamedTuple):
    """A snapshot; taking and restoring one costs the same however far the episode has come."""

    task: Task
    inventory: Inventory
    steps: int
    won: bool


class TextCraftEnvironment:
    """Plays tasks whose ``env_args`` say what is to be crafted.

    {"goal": "painted stool"} or {"index": 17}, a place among all goals, shallow ones first and
    counted round and round. And, each optional: "seed", of the choice and order of the commands;
    "distractors", commands of no use; "missing", raw items that are not to be had here.
    """

    def __init__(
        self, *, book: str | Path | None = None, step_limit: int = 20, prompt: Style = "plain"
    ) -> None:
        """book: see ``load_book``. Raises UserError for one that is missing or malformed."""
        self._book = shared_book(None if book is None else Path(book))
        self._step_limit = step_limit
        self._style: Style = prompt
        self._game: Game | None = None
        self._moment: Moment | None = None

    def reset(self, task: Task) -> str:
        """Start the task's episode. Raises UserError when it is about nothing in the book."""
        self._game = self._find(task)
        self._moment = Moment(task, {}, 0, False)
        return first_observation(self._game.goal, self._game.recipes)

    def step(self, action: str) -> StepResult:
        """Do one action; one that is not possible costs a step and changes nothing."""
        game, (task, inventory, steps, already) = self._playing()
        answer = act(self._book, game.missing, inventory, action)
        won = already or answer.made == game.goal
        self._moment = Moment(task, answer.inventory, steps + 1, won)
        done = won or steps + 1 >= self._step_limit
        info = {"steps": steps + 1, "valid": answer.valid}
        return StepResult(answer.text, float(won and not already), done, won, info)

    def admissible(self) -> list[str]:
        """What can be crafted now, and what the listed commands need and is to be had here."""
        game, moment = self._playing()
        gets = {
            f"get {part.amount} {part.name}"
            for recipe in game.recipes
            for part in recipe.using
            if part.name in self._book.raw and part.name not in game.missing
        }
        crafts = {
            command
            for recipe in game.recipes
            for command in possible_crafts(self._book, recipe, moment.inventory)
        }
        return sorted(gets | crafts | {"inventory"})

    def snapshot(self) -> Moment:
        """This moment; an immutable value."""
        return self._playing()[1]

    def restore(self, state: Moment) -> None:
        """Go on from there."""
        if self._moment is None or self._moment.task != state.task:
            self._game = self._find(state.task)
        self._moment = state

    def first_turn(self, observation: str) -> str:
        """The observation, in ``react`` style after an explanation of the game."""
        return first_turn(observation, self._style)

    def next_turn(self, observation: str) -> str:
        """The observation itself."""
        return observation

    def parse_action(self, reply: str) -> str:
        """The first line after "Action:", or of a bare reply."""
        return parse_reply(reply)

    def close(self) -> None:
        """Drop the game."""
        self._game = self._moment = None

    def _playing(self) -> tuple[Game, Moment]:
        if self._game is None or self._moment is None:
            raise ValueError("reset comes first")
        return self._game, self._moment

    def _find(self, task: Task) -> Game:
        args: dict[str, Any] = dict(task.env_args)
        goals = self._book.goals
        index = args.get("index")
        goal = goals[index % len(goals)] if isinstance(index, int) else str(args.get("goal"))
        if goal not in self._book.by_item:
            raise UserError(
                f"task {task.task_id}: env_args must have `goal`, an item that the recipe book can "
                f"make, or `index`, a number; found {args}"
            )
        seed = str(args.get("seed", index))
        shown = listed(self._book, goal, args.get("distractors", DISTRACTORS), seed)
        return Game(goal, tuple(shown), frozenset(args.get("missing", ())))
