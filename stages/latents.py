"""Tools for latent stores: verify, info, export, merge, diff. They need no params.yaml."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from interlat.cli import StageGroup, progress_bar

store_path = click.Path(path_type=Path)
paths = click.argument("paths", nargs=-1, required=True, type=store_path, metavar="PATH...")
output_dir = click.option("--output_dir", type=store_path, required=True, help="folder to write")
parquet = click.option("--parquet/--no_parquet", default=True, help="write data.parquet as well")
as_json = click.option("--json", "as_json", is_flag=True, help="for programs")


def reading(command: Callable[..., None]) -> Callable[..., None]:
    """Options for what is no store of ours: which column is the key, which split is meant."""
    key = click.option("--key_field", help="column to look up by [first of task_id, id, task]")
    split = click.option("--split", help="one split of a DatasetDict [all of them]")
    return key(split(command))


@click.group(
    cls=StageGroup,
    context_settings={
        "token_normalize_func": lambda name: name.replace("-", "_"),
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
def main() -> None:
    """Check, describe, convert, join and compare latent stores.

    PATH is a store, or what users have: a folder of save_to_disk, data.parquet, a hub id.
    """


@main.command()
@paths
@reading
def verify(paths: tuple[Path, ...], **which: str | None) -> None:
    """Read every byte and say what is wrong; status 1 where something is."""
    from interlat.latents.store import verify

    sound = True
    for path in paths:
        found = verify(path, **which)
        for problem in found:
            click.echo(problem)
        if not found:
            click.echo(f"{path}: sound")
        sound &= not found
    sys.exit(0 if sound else 1)


@main.command()
@paths
@reading
@as_json
def info(paths: tuple[Path, ...], as_json: bool, **which: str | None) -> None:
    """Say what a store holds and what made it."""
    from dataclasses import asdict

    from interlat.latents.describe import describe
    from interlat.latents.store import LatentStore

    summaries = {str(path): asdict(describe(LatentStore(path, **which))) for path in paths}
    if as_json:
        click.echo(json.dumps(summaries, indent=2, ensure_ascii=False))
        return
    for path, summary in summaries.items():
        click.echo("\n".join([path, *table(summary)]))


@main.command()
@click.argument("path", type=store_path)
@output_dir
@parquet
@reading
def export(path: Path, output_dir: Path, parquet: bool, **which: str | None) -> None:
    """Write a store as nested lists of float32, for tools that expect those."""
    from interlat.latents.export import export
    from interlat.latents.store import LatentStore

    store = LatentStore(path, **which)
    with progress_bar("export", len(store)) as advance:
        export(store, output_dir, parquet=parquet, on_progress=advance)


@main.command()
@paths
@output_dir
@parquet
def merge(paths: tuple[Path, ...], output_dir: Path, parquet: bool) -> None:
    """Join stores that the same model made under the same settings, for other tasks."""
    from interlat.latents.merge import merge
    from interlat.latents.store import LatentStore

    stores = [LatentStore(path) for path in paths]
    with progress_bar("merge", sum(map(len, stores))) as advance:
        merge(stores, output_dir, parquet=parquet, on_progress=advance)


@main.command()
@click.argument("first", type=store_path)
@click.argument("second", type=store_path)
@reading
@as_json
def diff(first: Path, second: Path, as_json: bool, **which: str | None) -> None:
    """Say how two stores differ; status 1 where they do."""
    from interlat.latents.compare import compare
    from interlat.latents.store import LatentStore

    difference = compare(LatentStore(first, **which), LatentStore(second, **which))
    if as_json:
        click.echo(json.dumps(difference._asdict(), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(table(difference._asdict())))
    sys.exit(0 if difference.is_none else 1)


def table(facts: dict[str, Any]) -> list[str]:
    """Names and values, a line each."""
    entries = list(shown(facts))
    width = max(len(name) for name, _ in entries)
    return [f"  {name:<{width}}  {value}" for name, value in entries]


def shown(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values as a person wants them; what is empty is left out."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from shown(value, f"{prefix}{name} ")
        elif isinstance(value, list):
            if value:
                more = ", ..." if len(value) > 10 else ""
                yield prefix + name, f"{len(value)}: {', '.join(map(str, value[:10]))}{more}"
        elif isinstance(value, tuple):
            yield prefix + name, " -> ".join(map(json.dumps, value))
        elif isinstance(value, float):
            yield prefix + name, f"{value:.6g}"
        else:
            yield prefix + name, " ".join(str(value).split())


if __name__ == "__main__":
    main()
