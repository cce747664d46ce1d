"""ALFWorld games: our engine wrapper against the package's own, on the same games and commands.

python benchmarks/engine.py [--games 12]

Both load each evaluation game that `dvc repro` has written and play its solution, with the list of
admissible commands after every step. Prints seconds a load and a step, and their ratios.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
from textworld.envs import PddlEnv

from interlat.envs.alfworld.engine import GAME_FILE, EngineGame, load_game

Seconds = tuple[float, float]
"""A load with its reset, and all steps."""


def play_stock(folder: Path, commands: list[str]) -> tuple[Seconds, list[Any]]:
    """Play with the wrapper chain that AlfredTWEnv registers."""
    wanted = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    environment = AlfredInfos(AlfredDemangler(PddlEnv(wanted), shuffle=False))

    def load() -> Any:
        environment.load(str(folder / GAME_FILE))
        return environment.reset()

    load_seconds, _ = timed(load)
    step_seconds, states = timed(lambda: [environment.step(command)[0] for command in commands])
    return (load_seconds, step_seconds), [(s.feedback, s["admissible_commands"]) for s in states]


def play_ours(folder: Path, commands: list[str]) -> tuple[Seconds, list[Any]]:
    """Play with interlat's wrapper, from the translation that the prepare stage keeps."""

    def load() -> EngineGame:
        game = load_game(folder)
        game.reset()
        return game

    load_seconds, game = timed(load)
    step_seconds, seen = timed(lambda: [(game.step(c), game.admissible()) for c in commands])
    return (load_seconds, step_seconds), seen


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that some work took, and what it gave."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


@click.command()
@click.option("--games", default=12, show_default=True, help="games to play")
@click.option("--root", default=Path("data/games/json_2.1.1"), type=click.Path(path_type=Path))
def main(games: int, root: Path) -> None:
    """Print seconds a load and a step of both wrappers, and how often ours fits into the other."""
    folders = sorted(file.parent for file in root.rglob(GAME_FILE))[:games]
    if not folders:
        raise click.ClickException(f"{root} has no games; dvc repro prepare writes them")
    load_game(folders[0]).reset()  # both have the package's modules and library loaded
    totals, steps = {"stock": [0.0, 0.0], "ours": [0.0, 0.0]}, 0
    for folder in folders:
        commands = json.loads((folder / GAME_FILE).read_text())["walkthrough"]
        steps += len(commands)
        (stock, seen), (ours, same) = play_stock(folder, commands), play_ours(folder, commands)
        if seen != same:
            raise click.ClickException(f"{folder}: the two wrappers differ")
        for name, seconds in (("stock", stock), ("ours", ours)):
            totals[name] = [a + b for a, b in zip(totals[name], seconds, strict=True)]
    for part, count in (("load", len(folders)), ("step", steps)):
        index = ("load", "step").index(part)
        stock_mean, our_mean = (totals[name][index] / count for name in ("stock", "ours"))
        click.echo(
            f"{part}: stock {1e3 * stock_mean:.2f} ms, ours {1e3 * our_mean:.2f} ms, "
            f"ratio {stock_mean / our_mean:.1f} (n = {count})"
        )


if __name__ == "__main__":
    main()
