"""Stage `prepare`: the tasks with both experts' play, and the evaluation games for the engine."""

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
    """Write the tasks of each split, and the games of those that are evaluated.

    Writes OUTPUT_DIR/tasks/KNOWLEDGE/SPLIT.jsonl and OUTPUT_DIR/games/json_2.1.1/SPLIT/...
    """
    import os
    import time

    from interlat.envs.alfworld.prepare import SPLITS, count_games, prepare
    from interlat.files import atomic_write_json
    from interlat.tracking import stage_run

    tasks, games = output_dir / "tasks", output_dir / "games" / "json_2.1.1"
    chosen = splits or SPLITS
    start = time.monotonic()
    with (
        stage_run("prepare", params, outputs=[tasks]) as run,
        progress_bar("prepare", count_games(params.task, chosen)) as advance,
    ):
        workers = len(os.sched_getaffinity(0))
        figures = prepare(params.task, tasks, games, chosen, workers=workers, advance=advance)
        atomic_write_json(metrics, figures)
        run.log_metrics({"seconds": time.monotonic() - start})
        run.log_artifact(metrics)


if __name__ == "__main__":
    main()
