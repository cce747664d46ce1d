"""Stage `collect`: the sender plans the tasks of a split; its messages go to a latent store."""

from pathlib import Path

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params


@stage_command(
    "collect",
    "sender",
    "model.sender",
    "model.dtype",
    "model.revision",
    "seed",
    "launch",
    parallel=True,
)
@click.option("--split", default="train", show_default=True, help="split of the tasks")
@click.option("--dataset_path", type=click.Path(path_type=Path), help="task file, JSONL")
@click.option("--output_dir", type=click.Path(path_type=Path), help="folder of the latent store")
def main(params: Params, split: str, dataset_path: Path | None, output_dir: Path | None) -> None:
    """Collect the sender's messages for a split.

    Reads data/tasks/KNOWLEDGE/SPLIT.jsonl, writes data/latents/KNOWLEDGE/SPLIT/ and
    metrics/collect/KNOWLEDGE-SPLIT.json. Started again after a kill, it goes on where it was.
    """
    from interlat.tasks import read_tasks

    knowledge = params.sender.knowledge
    source = dataset_path or Path("data/tasks", knowledge, f"{split}.jsonl")
    output = output_dir or Path("data/latents", knowledge, split)
    metrics = Path("metrics/collect", f"{knowledge}-{split}.json")
    tasks = read_tasks(source, params.collect.tasks if split == "train" else None)

    from interlat import distributed
    from interlat.agents.collect import collect
    from interlat.files import atomic_write_json
    from interlat.latents.store import LatentStore
    from interlat.models.load import load_causal_lm
    from interlat.tracking import stage_run

    model, tokenizer = load_causal_lm(
        params.model.sender, params.model.dtype, params.model.revision
    )
    with (
        stage_run("collect", params, inputs=[source], outputs=[output]) as run,
        progress_bar(f"collect {knowledge} {split}", len(tasks)) as advance,
    ):
        summary = collect(
            tasks,
            model,
            tokenizer,
            output,
            params.collect,
            seed=params.seed,
            sender=params.model.sender,
            revision=params.model.revision,
            on_progress=advance,
        )
        if distributed.is_main():
            figures = summary.reproducible()
            atomic_write_json(metrics, figures)
            run.log_metrics({**figures, "tokens_per_second": summary.tokens_per_second})
            run.log_artifact(metrics)
            run.log_dataset(output, f"latents-{knowledge}-{split}", LatentStore(output).digest)


if __name__ == "__main__":
    main()
