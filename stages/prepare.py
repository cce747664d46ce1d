"""Stage `prepare`: an environment's tasks with both experts' play, and what it plays them from."""

from pathlib import Path

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params


@stage_command("task")
@click.option("--splits", multiple=True, help="split to make; repeatable. Default: train, valid_*")
@click.option(
    "--output_dir",
    default="data",
    show_default=True,
    type=click.Path(path_type=Path),
    help="folder of tasks/ and games/",
)
@click.option(
    "--metrics",
    default="metrics/prepare.json",
    show_default=True,
    type=click.Path(path_type=Path),
    help="metrics file",
)
def main(params: Params, splits: tuple[str, ...], output_dir: Path, metrics: Path) -> None:
    """Write the tasks of each split, and what their environment reads to play them.

    Writes OUTPUT_DIR/tasks/KNOWLEDGE/SPLIT.jsonl, and the environment's files in OUTPUT_DIR/games.
    """
    import os
    import time

    from interlat.envs import preparation
    from interlat.files import atomic_write_json
    from interlat.tracking import stage_run

    tasks, games = output_dir / "tasks", output_dir / "games"
    environment = preparation(params.task.name)
    chosen = splits or environment.SPLITS
    start = time.monotonic()
    with (
        stage_run("prepare", params, outputs=[tasks]) as run,
        progress_bar("prepare", environment.count_games(params.task, chosen)) as advance,
    ):
        workers = len(os.sched_getaffinity(0))
        figures = environment.prepare(
            params.task, tasks, games, chosen, workers=workers, advance=advance
        )
        atomic_write_json(metrics, figures)
        run.log_metrics({"seconds": time.monotonic() - start})
        run.log_artifact(metrics)


if __name__ == "__main__":
    main()
