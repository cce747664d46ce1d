"""Stage `evaluate` (and `ablate`): the actor plays every task, told what the condition says."""

from pathlib import Path
from typing import get_args

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Condition, Params, UserError


@stage_command(
    "evaluate",
    "hidden",
    "sender",
    "task.games",
    "task.step_limit",
    "task.success_steps",
    "model.dtype",
)
@click.option(
    "--condition",
    type=click.Choice(get_args(Condition)),
    help="one of the fixed list of controls, whatever --hidden_source says",
)
@click.option(
    "--model_path",
    type=click.Path(path_type=Path),
    default=Path("models/actor"),
    show_default=True,
    help="checkpoint of the actor",
)
@click.option(
    "--latents",
    type=click.Path(path_type=Path),
    default=Path("data/latents"),
    show_default=True,
    help="folder of the messages, KNOWLEDGE/SPLIT in it; data/compressed for a student's",
)
@click.option("--output_dir", type=click.Path(path_type=Path), help="folder of the episodes")
@click.option("--metrics", type=click.Path(path_type=Path), help="JSON of the metrics")
@click.option("--table", type=click.Path(path_type=Path), help="CSV with a row an episode")
def main(
    params: Params,
    condition: Condition | None,
    model_path: Path,
    latents: Path,
    output_dir: Path | None,
    metrics: Path | None,
    table: Path | None,
) -> None:
    """Play the tasks of each split once under one condition.

    Reads data/tasks/KNOWLEDGE/SPLIT.jsonl, LATENTS/KNOWLEDGE/SPLIT and the actor; writes
    data/episodes/NAME/SPLIT/, metrics/NAME.json and plots/NAME.csv, where NAME is `evaluate`, or
    `ablate/CONDITION` with --condition. Started again after a kill, it skips finished episodes.
    """
    from interlat.agents.trial import Trial, find_splits

    name = f"ablate/{condition}" if condition else "evaluate"
    output = output_dir or Path("data/episodes", name)
    metrics = metrics or Path("metrics", f"{name}.json")
    table = table or Path("plots", f"{name}.csv")
    trial = Trial.of(params, condition)
    splits = find_splits(trial, params.evaluate.splits, Path("data/tasks"), latents)
    if not model_path.is_dir():
        raise UserError(f"model path {model_path} does not exist; stages/train.py trains an actor")

    from interlat.agents.evaluate import evaluate
    from interlat.files import atomic_write_json, atomic_write_text
    from interlat.models.actor import Actor
    from interlat.tracking import stage_run

    actor = Actor.load(model_path, params.model.dtype)
    inputs = [model_path, *(file for split in splits.values() for file in split.files)]
    with (
        stage_run(name, params, inputs=inputs, outputs=[output]) as run,
        progress_bar(name, sum(len(split.tasks) for split in splits.values())) as advance,
    ):
        evaluation = evaluate(actor, trial, splits, params, output, advance=advance)
        atomic_write_json(metrics, evaluation.metrics())
        atomic_write_text(table, evaluation.csv())
        run.log_metrics(evaluation.flat_metrics())
        for path in (metrics, table):
            run.log_artifact(path)
        for split, store in evaluation.stores.items():
            run.log_dataset(store.path, f"latents-{trial.knowledge}-{split}", store.digest)


if __name__ == "__main__":
    main()
