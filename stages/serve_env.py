"""Stage `serve_env`: an environment for AgentGym's clients."""

from dataclasses import replace
from pathlib import Path

import click

from interlat.cli import stage_command
from interlat.config import Params

NAMES = ("textcraft", "webshop", "sciworld", "scienceworld", "scienceworld-easy", "alfworld")


@stage_command("task.games", "task.data", "task.seed")
@click.argument("name", type=click.Choice(NAMES))
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--port", type=click.IntRange(0, 65535), default=36001, show_default=True)
@click.option(
    "--tasks",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="JSONL of tasks that the clients' numbers mean, one file after the other; repeatable. "
    "Default: the environment's own numbering",
)
@click.option("--step_limit", type=click.IntRange(1), default=100, show_default=True)
@click.option(
    "--max_instances", type=click.IntRange(1), help="default: 64, 8 for those in processes"
)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="processes")
@click.option("--idle_seconds", type=click.FloatRange(1), default=1800.0, show_default=True)
@click.option("--call_seconds", type=click.FloatRange(0.1), default=60.0, show_default=True)
def main(
    params: Params,
    name: str,
    host: str,
    port: int,
    files: tuple[Path, ...],
    step_limit: int,
    max_instances: int | None,
    workers: int,
    idle_seconds: float,
    call_seconds: float,
) -> None:
    """Serve NAME over AgentGym's protocol until interrupted. There is no password."""
    from interlat.envs.instances import Limits
    from interlat.envs.server import KINDS, serve
    from interlat.tasks import read_tasks

    in_processes = KINDS[name].processes
    limits = Limits(
        instances=max_instances or (8 if in_processes else 64),
        workers=workers,
        idle_seconds=idle_seconds,
        call_seconds=call_seconds,
    )
    serve(
        name,
        replace(params.task, name=name, step_limit=step_limit),
        host,
        port,
        tasks=[task for file in files for task in read_tasks(file)],
        limits=limits,
        announce=lambda address: click.echo(f"{name} at {address}; Ctrl-C ends it"),
    )


if __name__ == "__main__":
    main()
