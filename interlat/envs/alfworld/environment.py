"""ALFWorld as an environment: generated and official games, won when the engine says so."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interlat.config import UserError
from interlat.envs.alfworld.engine import EngineGame, load_game, translate
from interlat.envs.alfworld.generate import Difficulty, draw_spec, game_data
from interlat.envs.alfworld.replica import NOTHING
from interlat.envs.alfworld.text import Style, clean, first_turn
from interlat.envs.base import StepResult, parse_reply
from interlat.envs.replay import Moment, replay
from interlat.tasks import Task


class AlfworldEnvironment:
    """Plays tasks whose ``env_args`` name a game.

    {"game": "<split>/<title>/<trial>"} is a folder under the games' root, generated or official;
    {"seed", "split", "index"} is a generated game that is made again on the spot.
    """

    def __init__(
        self,
        *,
        games: str | Path,
        receptacles: int,
        distractors: int,
        hiding_places: int,
        step_limit: int,
        prompt: Style = "plain",
        load_seconds: float = 30.0,
    ) -> None:
        """games: a json_2.1.1 directory. receptacles to hiding_places: see ``Difficulty``.

        load_seconds: longest that a game may take to load (kept in a process's main thread).
        """
        self._root = Path(games)
        self._difficulty = Difficulty(receptacles, distractors, hiding_places)
        self._step_limit = step_limit
        self._style: Style = prompt
        self._load_seconds = load_seconds
        self._game: EngineGame | None = None
        self._moment: Moment | None = None

    def reset(self, task: Task) -> str:
        """Start the task's episode. Raises UserError when its game does not exist.

        Raises TimeoutError when it takes too long to load, ValueError when the engine rejects it.
        """
        with _time_limit(self._load_seconds, task.task_id):
            self._game = self._load(task)
            observation = clean(self._game.reset())
        self._moment = Moment(task)
        return observation

    def step(self, action: str) -> StepResult:
        """Do one action; one that is not possible costs a step and changes nothing."""
        game = self._playing()
        observation = clean(game.step(action))
        self._moment = self.snapshot().after(action, observation)
        steps = len(self._moment.history)
        done = game.won or steps >= self._step_limit
        info = {"steps": steps, "valid": observation != NOTHING}
        return StepResult(observation, float(game.won), done, game.won, info)

    def snapshot(self) -> Moment:
        """The game and all that was done in it."""
        if self._moment is None:
            raise ValueError("reset comes first")
        return self._moment

    def restore(self, state: Moment) -> None:
        """Do the snapshot's actions again, those that are not done yet; see ``replay``."""
        replay(self, self._moment, state)

    def admissible(self) -> list[str]:
        """The engine's list of possible actions."""
        return self._playing().admissible()

    def first_turn(self, observation: str) -> str:
        """The observation, in ``react`` style after an explanation of the game."""
        return first_turn(observation, self._style, self._playing().put_form)

    def next_turn(self, observation: str) -> str:
        """The observation itself."""
        return observation

    def parse_action(self, reply: str) -> str:
        """The first line after "Action:", or of a bare reply."""
        return parse_reply(reply)

    def close(self) -> None:
        """Drop the game."""
        self._game = self._moment = None

    def _playing(self) -> EngineGame:
        if self._game is None:
            raise ValueError("reset comes first")
        return self._game

    def _load(self, task: Task) -> EngineGame:
        place: dict[str, Any] = dict(task.env_args)
        if "game" in place:
            folder = self._root / place["game"]
            try:
                return load_game(folder)
            except FileNotFoundError as error:
                raise UserError(
                    f"{error.filename}: no such game (task {task.task_id}); "
                    "stages/prepare.py writes the generated ones, task.games names others"
                ) from None
        try:
            seed, split, index = place["seed"], place["split"], place["index"]
        except KeyError:
            raise UserError(
                f"task {task.task_id}: env_args must have `game`, or `seed`, `split` and `index`"
            ) from None
        game = game_data(draw_spec(seed, split, index, self._difficulty), [])
        return EngineGame(game, translate(game))


@contextmanager
def _time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise TimeoutError in here after so many seconds; without effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"{what} took more than {seconds:g} s to load")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
