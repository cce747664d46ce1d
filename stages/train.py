"""Stage `train`: the actor learns to read the sender's messages."""

from pathlib import Path

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params


@stage_command(
    "train",
    "sender",
    "model.actor",
    "model.dtype",
    "model.revision",
    "collect.tasks",
    "seed",
    "launch",
    parallel=True,
)
@click.option(
    "--output_dir", type=click.Path(path_type=Path), default=Path("models/actor"), help="checkpoint"
)
def main(params: Params, output_dir: Path) -> None:
    """Train the actor and its communication adapter.

    Reads data/tasks/KNOWLEDGE/train.jsonl with data/latents/KNOWLEDGE/train, and both again for the
    expert without knowledge; writes the actor, metrics/train.json and plots/train.csv. Started
    again after a kill, it goes on from its last checkpoint.
    """
    from interlat import distributed
    from interlat.files import atomic_write_json, atomic_write_text
    from interlat.latents.store import LatentStore
    from interlat.models.load import load_causal_lm
    from interlat.tasks import read_tasks
    from interlat.tracking import stage_run
    from interlat.training.actor import train_actor
    from interlat.training.course import Material
    from interlat.training.trainer import Point

    knowledge = params.sender.knowledge
    tasks, searching = (Path("data/tasks", k, "train.jsonl") for k in (knowledge, "none"))
    messages, uninformed = (Path("data/latents", k, "train") for k in (knowledge, "none"))
    metrics, table = Path("metrics/train.json"), Path("plots/train.csv")
    material = Material(
        tasks=read_tasks(tasks, params.collect.tasks),
        searching=read_tasks(searching),
        messages=LatentStore(messages),
        uninformed=LatentStore(uninformed) if params.train.uninformed_share else None,
    )
    model, tokenizer = load_causal_lm(params.model.actor, params.model.dtype, params.model.revision)
    inputs = [tasks, searching, messages, uninformed, Path(params.model.actor)]
    with (
        stage_run("train", params, inputs=inputs, outputs=[output_dir]) as run,
        progress_bar("train", params.train.steps) as advance,
    ):
        done = 0

        def watch(step: int, point: Point | None) -> None:
            nonlocal done
            advance(step - done, f"loss {point['loss']:.3f}" if point else "")
            done = step
            if point:
                run.log_metrics({k: v for k, v in point.items() if k != "step"}, step)

        training = train_actor(
            model,
            tokenizer,
            material,
            params.train,
            seed=params.seed,
            output=output_dir,
            watch=watch,
        )
        if distributed.is_main():
            atomic_write_json(metrics, training.final)
            atomic_write_text(table, training.csv())
            for path in (metrics, table):
                run.log_artifact(path)
            run.log_dataset(messages, f"latents-{knowledge}-train", material.messages.digest)


if __name__ == "__main__":
    main()
