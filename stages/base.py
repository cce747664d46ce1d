"""Stage `base`: the embedded default's tiny model, from random weights to sender and actor."""

from pathlib import Path

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params


@stage_command("base", "collect.prompt_template", "seed", "launch", parallel=True)
@click.option(
    "--output_dir", type=click.Path(path_type=Path), default=Path("models/base"), help="checkpoint"
)
@click.option(
    "--metrics", type=click.Path(path_type=Path), default=Path("metrics/base.json"), help="numbers"
)
@click.option(
    "--table", type=click.Path(path_type=Path), default=Path("plots/base.csv"), help="curves"
)
def main(params: Params, output_dir: Path, metrics: Path, table: Path) -> None:
    """Train the embedded default's base model on the experts' plans and play.

    Reads data/tasks/layout/train.jsonl and data/tasks/none/train.jsonl. Started again after a kill,
    it goes on from its last checkpoint.
    """
    from interlat import distributed
    from interlat.files import atomic_write_json, atomic_write_text
    from interlat.tasks import read_tasks
    from interlat.tracking import stage_run
    from interlat.training.sft import train_base
    from interlat.training.trainer import Point

    informed, searching = (Path("data/tasks", k, "train.jsonl") for k in ("layout", "none"))
    tasks = read_tasks(informed), read_tasks(searching)
    with (
        stage_run("base", params, inputs=[informed, searching], outputs=[output_dir]) as run,
        progress_bar("base", params.base.steps) as advance,
    ):

        def watch(step: int, point: Point | None) -> None:
            if point is None:
                advance(1)
            else:
                advance(0, f"loss {point['loss']:.3f}")
                run.log_metrics({k: v for k, v in point.items() if k != "step"}, step)

        training = train_base(
            *tasks,
            params.base,
            params.collect.prompt_template,
            seed=params.seed,
            output=output_dir,
            watch=watch,
        )
        if distributed.is_main():
            atomic_write_json(metrics, training.final)
            atomic_write_text(table, training.csv())
            for path in (metrics, table):
                run.log_artifact(path)


if __name__ == "__main__":
    main()
