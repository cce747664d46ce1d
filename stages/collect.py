"""Stage `collect`: the sender speaks about tasks; its messages go to a latent store."""

from pathlib import Path
from typing import Literal

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params
from interlat.earlier import NEEDLESS, TASKS, collection


@stage_command(
    "collect",
    "sender",
    "model.sender",
    "model.dtype",
    "model.revision",
    "model.trust_remote_code",
    "model.compressor",
    "seed",
    "launch",
    parallel=True,
    settle=collection,
    retired=NEEDLESS,
)
@click.argument("word", type=click.Choice(list(TASKS)), required=False)
@click.option(
    "--task", type=click.Choice(list(TASKS)), help="the same word: its usual sampling and prompt"
)
@click.option(
    "--split",
    "--mode",
    "--dataset_split",
    "split",
    default="train",
    show_default=True,
    help="split of the tasks",
)
@click.option(
    "--dataset_path", help="your tasks: JSON, JSON lines, a saved dataset's folder, a hub id"
)
@click.option("--dataset_name", help="configuration of a dataset on the hub")
@click.option("--output_dir", type=click.Path(path_type=Path), help="folder of the latent store")
@click.option(
    "--prompt_file", type=click.Path(path_type=Path), help="file with the prompt's template"
)
@click.option("--distributed", is_flag=True, help="one process a GPU")
@click.option("--dry_run", is_flag=True, help="estimate tokens, bytes and time; write nothing")
def main(
    params: Params,
    task: Literal["alfworld", "math"] | None,
    split: str,
    dataset_path: str | None,
    dataset_name: str | None,
    output_dir: Path | None,
    dry_run: bool,
) -> None:
    """Collect the sender's messages: those of a split of the pipeline, or about your own tasks.

    Reads data/tasks/KNOWLEDGE/SPLIT.jsonl; writes data/latents/KNOWLEDGE/SPLIT/ and
    metrics/collect/KNOWLEDGE-SPLIT.json. With a word, a dataset or an output it writes the store
    alone, at --output_dir or data/latents/NAME/SPLIT/. `math` without a dataset is MATH on the hub.
    With --compressed the student at model.compressor thinks in the sender's place; its messages go
    to data/compressed/ instead, its figures to metrics/compressed/. Started again after a kill, it
    goes on where it was.
    """
    from interlat.inputs import Collection

    chosen = Collection.of(
        params,
        split=split,
        task=task,
        dataset_path=dataset_path,
        dataset_name=dataset_name,
        output_dir=output_dir,
    )

    from interlat import distributed
    from interlat.agents.collect import collect, estimate
    from interlat.files import atomic_write_json
    from interlat.latents.store import LatentStore
    from interlat.models.compressor import Compressor
    from interlat.models.load import load_causal_lm
    from interlat.tracking import stage_run

    student, sender = None, params.model.sender
    if params.collect.compressed:
        sender = params.model.compressor
        student = Compressor.load(Path(sender), params.model.dtype)
        model, tokenizer = student.model, student.tokenizer
    else:
        model, tokenizer = load_causal_lm(
            sender,
            params.model.dtype,
            params.model.revision,
            trust_remote_code=params.model.trust_remote_code,
        )
    if dry_run:
        expected = estimate(
            chosen.tasks, model, tokenizer, params.collect, seed=params.seed, student=student
        )
        if distributed.is_main():
            click.echo(str(expected))
        return
    with (
        stage_run("collect", params, inputs=chosen.files, outputs=[chosen.output]) as run,
        progress_bar(f"collect {chosen.name}", len(chosen.tasks)) as advance,
    ):
        summary = collect(
            chosen.tasks,
            model,
            tokenizer,
            chosen.output,
            params.collect,
            seed=params.seed,
            sender=sender,
            revision=None if student else params.model.revision,
            student=student,
            on_progress=advance,
        )
        if distributed.is_main():
            figures = summary.reproducible()
            run.log_metrics({**figures, "tokens_per_second": summary.tokens_per_second})
            if chosen.metrics:
                atomic_write_json(chosen.metrics, figures)
                run.log_artifact(chosen.metrics)
            name = f"latents-{chosen.name.replace(' ', '-')}"
            run.log_dataset(chosen.output, name, LatentStore(chosen.output).digest)


if __name__ == "__main__":
    main()
