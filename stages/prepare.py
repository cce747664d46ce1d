"""Write the tasks, the experts' play and the evaluation games."""

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params


@stage_command("task")
@click.option(
    "--splits", multiple=True, help="Splits to make; repeatable. Default: train, valid_*."
)
def main(params: Params, splits: tuple[str, ...]) -> None:
    """Write the tasks of each split, and games for the engine."""
    import os
    import time
    from pathlib import Path

    from interlat.envs import GAMES
    from interlat.envs.alfworld.prepare import SPLITS, count_games, prepare
    from interlat.files import atomic_write_json
    from interlat.tracking import stage_run

    tasks, metrics = Path("data/tasks"), Path("metrics/prepare.json")
    chosen = splits or SPLITS
    start = time.monotonic()
    with (
        stage_run("prepare", params, outputs=[tasks]) as run,
        progress_bar("prepare", count_games(params.task, chosen)) as advance,
    ):
        workers = len(os.sched_getaffinity(0))
        figures = prepare(params.task, tasks, GAMES, chosen, workers=workers, advance=advance)
        atomic_write_json(metrics, figures)
        run.log_metrics({"seconds": time.monotonic() - start})
        run.log_artifact(metrics)


if __name__ == "__main__":
    main()
