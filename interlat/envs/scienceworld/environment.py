"""ScienceWorld as an environment: won at score 100."""

from pathlib import Path

from interlat.envs.base import StepResult, parse_reply
from interlat.envs.replay import Moment, replay
from interlat.envs.scienceworld.ids import find_variation
from interlat.envs.scienceworld.jvm import World
from interlat.envs.scienceworld.text import Style, first_turn
from interlat.tasks import Task

MOVES = 100
"""Moves of the simulator's clock in an episode, unless more steps than that are allowed."""
UNKNOWN = "No known action matches that input."
"""The simulator's answer to what it does not understand."""


class ScienceWorldEnvironment:
    """Plays tasks whose ``env_args`` name a task and its variation.

    {"name": "boil", "variation": 0} or {"index": 0}, its published number. And, optional,
    "simplifications": "easy", or some of the simulator's simplifications, comma-separated.
    """

    def __init__(
        self, *, data: str | Path | None = None, step_limit: int = 100, prompt: Style = "plain"
    ) -> None:
        """data: not read here. A JVM starts at the first reset."""
        self._step_limit = step_limit
        self._style: Style = prompt
        self._world: World | None = None
        self._moment: Moment | None = None
        self._earned = 0.0

    def reset(self, task: Task) -> str:
        """Start the task's episode; returns what is to be done, and the first look around.

        Raises UserError for a task that there is not, and without Java.
        """
        name, variation = find_variation(task.env_args)
        if self._world is None or not self._world.alive:
            self.close()
            self._world = World()
        reading = self._world.load(name, variation, task.env_args.get("simplifications", ""))
        self._moment, self._earned = Moment(task), 0.0
        return reading.text

    def step(self, action: str) -> StepResult:
        """Do one action.

        The rewards of an episode sum to its score / 100, to 0 after a fatal mistake: then the
        simulator's score is negative, the episode is over, and what was earned is taken back.
        """
        world, moment = self._playing()
        reading = world.step("".join(c if c.isprintable() else " " for c in action))
        self._moment = moment.after(action, reading.text)
        steps = len(self._moment.history)
        before, self._earned = self._earned, max(0, reading.score) / 100
        won = reading.score == 100
        late = steps >= self._step_limit or reading.moves > max(MOVES, self._step_limit)
        info = {"steps": steps, "valid": reading.text != UNKNOWN, "score": reading.score}
        done = won or late or reading.completed or reading.score < 0
        return StepResult(reading.text, self._earned - before, done, won, info)

    def snapshot(self) -> Moment:
        """The task and all that was done in it."""
        return self._playing()[1]

    def restore(self, state: Moment) -> None:
        """Do again what the snapshot's history has beyond this episode's.

        Raises RuntimeError when an action brings another observation than it did.
        """
        replay(self, self._moment, state)

    def admissible(self) -> list[str]:
        """The simulator's list of valid actions, some hundreds."""
        return self._playing()[0].admissible()

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
        """Leave the JVM; the process's last environment to go ends it."""
        if self._world is not None:
            self._world.close()
        self._world = self._moment = None

    def _playing(self) -> tuple[World, Moment]:
        if self._world is None or self._moment is None:
            raise ValueError("reset comes first")
        return self._world, self._moment
