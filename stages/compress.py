"""Stage `compress`: a student learns to say in K steps what the sender's messages say."""

from pathlib import Path

import click

from interlat.cli import progress_bar, stage_command
from interlat.config import Params, UserError

STUDENT = Path("models/compressor")


@stage_command(
    "compress",
    "sender",
    "model.student",
    "model.dtype",
    "model.revision",
    "model.trust_remote_code",
    "collect.tasks",
    "collect.prompt_template",
    "collect.chat_template",
    "actor.any_sender",
    "seed",
    "launch",
    parallel=True,
    retired=("beta=", "conv_template_model_path=", "lambda_pref=", "model_max_length="),
)
@click.option(
    "--teacher_model_path",
    "--teacher_model",
    "teacher_path",
    type=click.Path(path_type=Path),
    default=Path("models/actor"),
    show_default=True,
    help="checkpoint of the actor that the messages are for",
)
@click.option(
    "--data", "--data_path", "data", help="your own tasks: our JSONL, or {id, conversations}"
)
@click.option(
    "--hidden_data",
    "--hidden_repo",
    "--hf_hidden_repo",
    "hidden_data",
    help="your own full messages: a latent store or a hub id",
)
@click.option("--output_dir", type=click.Path(path_type=Path), default=STUDENT, help="checkpoint")
@click.option("--metrics", type=click.Path(path_type=Path), help="JSON of the final numbers")
@click.option("--table", type=click.Path(path_type=Path), help="CSV of the curves")
def main(
    params: Params,
    teacher_path: Path,
    data: str | None,
    hidden_data: str | None,
    output_dir: Path,
    metrics: Path | None,
    table: Path | None,
) -> None:
    """Train a student that thinks in K steps, through a frozen actor.

    Reads data/tasks/KNOWLEDGE/train.jsonl, data/latents/KNOWLEDGE/train and the actor; writes the
    student, metrics/compress.json and plots/compress.csv. With data or an output folder of one's
    own, the numbers go to compress.json and compress.csv in that folder. Started again after a
    kill, it goes on from its last checkpoint.
    """
    if not teacher_path.is_dir():
        raise UserError(
            f"the teacher {teacher_path} does not exist; stages/train.py trains an actor"
        )

    from interlat import distributed
    from interlat.files import atomic_write_json, atomic_write_text
    from interlat.latents.store import LatentStore
    from interlat.models.actor import Actor
    from interlat.models.load import load_causal_lm
    from interlat.tasks import read_tasks
    from interlat.tracking import stage_run
    from interlat.training.compression import train_compressor
    from interlat.training.compression_course import with_steps
    from interlat.training.conversations import read_play
    from interlat.training.trainer import Point

    knowledge = params.sender.knowledge
    own = data is not None or hidden_data is not None or output_dir != STUDENT
    metrics = metrics or (output_dir / "compress.json" if own else Path("metrics/compress.json"))
    table = table or (output_dir / "compress.csv" if own else Path("plots/compress.csv"))
    file = Path(data or Path("data/tasks", knowledge, "train.jsonl"))
    store = Path(hidden_data or Path("data/latents", knowledge, "train"))
    tasks = read_play(data) if data else read_tasks(file, params.collect.tasks)
    messages = LatentStore(store)
    config = with_steps(params.compress, len(tasks))
    teacher = Actor.load(teacher_path, params.model.dtype)
    teacher.record.check_sender(messages, any_sender=params.actor.any_sender)
    model, tokenizer = load_causal_lm(
        params.model.student,
        params.model.dtype,
        params.model.revision,
        trust_remote_code=params.model.trust_remote_code,
    )
    with (
        stage_run(
            "compress",
            params,
            inputs=[file, store, teacher_path, Path(params.model.student)],
            outputs=[output_dir],
        ) as run,
        progress_bar("compress", config.steps) as advance,
    ):
        done = 0

        def watch(step: int, point: Point | None) -> None:
            nonlocal done
            advance(step - done, f"loss {point['loss']:.3f}" if point and "loss" in point else "")
            done = step
            if point:
                run.log_metrics({k: v for k, v in point.items() if k != "step"}, step)

        training = train_compressor(
            model,
            tokenizer,
            teacher,
            tasks,
            messages,
            config,
            params.collect,
            seed=params.seed,
            output=output_dir,
            watch=watch,
        )
        if distributed.is_main():
            atomic_write_json(metrics, training.final)
            atomic_write_text(table, training.csv())
            for path in (metrics, table):
                run.log_artifact(path)
            name = store.name if own else f"latents-{knowledge}-train"
            run.log_dataset(store, name, messages.digest)


if __name__ == "__main__":
    main()
