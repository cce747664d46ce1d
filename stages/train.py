"""Stage `train`: the actor learns to read the sender's messages."""

from pathlib import Path
from typing import Any

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params

ACTOR = Path("models/actor")
SEARCHING_SHARES = ("none_share", "uninformed_share", "mismatched_share")


def settle(given: dict[str, str], options: dict[str, Any]) -> dict[str, str]:
    """One's own data hold one expert's play: nothing of an expert that searches without help."""
    if options["data"] is None:
        return given
    return {f"train.{name}": "0" for name in SEARCHING_SHARES} | given


@stage_command(
    "train",
    "actor",
    "sender",
    "model.actor",
    "model.dtype",
    "model.revision",
    "model.trust_remote_code",
    "collect.tasks",
    "seed",
    "launch",
    parallel=True,
    settle=settle,
)
@click.option("--data", help="your own tasks: our JSONL, or records of {id, conversations}")
@click.option("--hidden_data", help="your own messages: a latent store or a hub id")
@click.option("--output_dir", type=click.Path(path_type=Path), default=ACTOR, help="checkpoint")
@click.option("--metrics", type=click.Path(path_type=Path), help="JSON of the final numbers")
@click.option("--table", type=click.Path(path_type=Path), help="CSV of the curves")
def main(
    params: Params,
    data: str | None,
    hidden_data: str | None,
    output_dir: Path,
    metrics: Path | None,
    table: Path | None,
) -> None:
    """Train the actor and its communication adapter.

    Reads data/tasks/KNOWLEDGE/train.jsonl with data/latents/KNOWLEDGE/train, and both again for the
    expert without knowledge; writes the actor, metrics/train.json and plots/train.csv. With data or
    an output folder of one's own, the numbers go to train.json and train.csv in that folder. A
    start checkpoint that has an adapter goes on with it. Started again after a kill, it goes on
    from its last checkpoint.
    """
    from interlat import distributed
    from interlat.files import atomic_write_json, atomic_write_text
    from interlat.latents.store import LatentStore
    from interlat.models.actor import start_adapter
    from interlat.models.load import load_causal_lm
    from interlat.tasks import read_tasks
    from interlat.tracking import stage_run
    from interlat.training.actor import train_actor
    from interlat.training.conversations import read_play
    from interlat.training.course import Material, with_steps
    from interlat.training.trainer import Point

    knowledge = params.sender.knowledge
    own = data is not None or hidden_data is not None or output_dir != ACTOR
    metrics = metrics or (output_dir / "train.json" if own else Path("metrics/train.json"))
    table = table or (output_dir / "train.csv" if own else Path("plots/train.csv"))
    tasks, searching = (Path("data/tasks", k, "train.jsonl") for k in (knowledge, "none"))
    messages = Path(hidden_data or Path("data/latents", knowledge, "train"))
    uninformed = Path("data/latents/none/train")
    material = Material(
        tasks=read_play(data) if data else read_tasks(tasks, params.collect.tasks),
        searching=[] if data else read_tasks(searching),
        messages=LatentStore(messages),
        uninformed=LatentStore(uninformed) if params.train.uninformed_share else None,
    )
    config = with_steps(params.train, len(material.tasks))
    adapter = start_adapter(
        Path(params.model.actor), material.messages, any_sender=params.actor.any_sender
    )
    model, tokenizer = load_causal_lm(
        params.model.actor,
        params.model.dtype,
        params.model.revision,
        trust_remote_code=params.model.trust_remote_code,
    )
    inputs = [Path(data), messages] if data else [tasks, searching, messages, uninformed]
    with (
        stage_run(
            "train",
            params,
            inputs=[*inputs, Path(params.model.actor)],
            outputs=[output_dir],
        ) as run,
        progress_bar("train", config.steps) as advance,
    ):
        done = 0

        def watch(step: int, point: Point | None) -> None:
            nonlocal done
            advance(step - done, f"loss {point['loss']:.3f}" if point and "loss" in point else "")
            done = step
            if point:
                run.log_metrics({k: v for k, v in point.items() if k != "step"}, step)

        training = train_actor(
            model,
            tokenizer,
            material,
            config,
            seed=params.seed,
            output=output_dir,
            watch=watch,
            kind=params.actor.kind,
            adapter=adapter,
        )
        if distributed.is_main():
            atomic_write_json(metrics, training.final)
            atomic_write_text(table, training.csv())
            for path in (metrics, table):
                run.log_artifact(path)
            name = messages.name if own else f"latents-{knowledge}-train"
            run.log_dataset(messages, name, material.messages.digest)


if __name__ == "__main__":
    main()
