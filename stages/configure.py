"""Lay presets over params.yaml: python stages/configure.py model=qwen2.5-0.5b task=alfworld."""

from pathlib import Path

import click

from interlat.cli import StageCommand
from interlat.config import UserError
from interlat.files import atomic_write_text
from interlat.presets import choose, difference, lay_over


@click.command(cls=StageCommand)
@click.argument("choices", nargs=-1, required=True, metavar="GROUP=NAME...")
@click.option("--params", "path", type=click.Path(path_type=Path), default=Path("params.yaml"))
@click.option("--conf", type=click.Path(path_type=Path), default=Path("conf"), help="presets")
def main(choices: tuple[str, ...], path: Path, conf: Path) -> None:
    """Lay the presets conf/GROUP/NAME.yaml over params.yaml and print what changed."""
    for place in (path, conf):
        if not place.exists():
            raise UserError(f"{place}: no such file or folder; run from the repository")
    before = path.read_text(encoding="utf-8")
    after = lay_over(before, choose(choices, conf))
    atomic_write_text(path, after)
    click.echo(difference(before, after) or "params.yaml already says so")


if __name__ == "__main__":
    main()
