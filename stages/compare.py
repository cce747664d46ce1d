"""Stage `compare`: actors trained in several ways, on the same games."""

from pathlib import Path

import click

from interlat.cli import stage_command
from interlat.config import Params


@stage_command("task.success_steps")
@click.argument("variants", nargs=-1, required=True, metavar="NAME=EPISODES.csv[,EPISODES.csv]...")
@click.option("--title", default="Comparison", show_default=True, help="of the page")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report/comparison"),
    show_default=True,
    help="path of the page and of the table, without .md and .csv",
)
def main(params: Params, variants: tuple[str, ...], title: str, output: Path) -> None:
    """Judge each of VARIANTS against the first and print the table.

    A variant is a name and its table of episodes with its own message, and after a comma that
    without one. Writes OUTPUT.md and OUTPUT.csv.
    """
    from interlat.files import atomic_write_text
    from interlat.report.tables import terminal, to_csv
    from interlat.report.variants import compare, page, read_variant, tables
    from interlat.tracking import stage_run

    read = [read_variant(variant) for variant in variants]
    rows = compare(read, params.task.success_steps)
    files = [Path(file) for text in variants for file in text.partition("=")[2].split(",")]
    written = [output.with_suffix(f"{output.suffix}{end}") for end in (".md", ".csv")]
    with stage_run("compare", params, inputs=files, outputs=written) as run:
        for path, text in zip(written, (page(title, rows), to_csv(rows)), strict=True):
            atomic_write_text(path, text)
            run.log_artifact(path)
    print(terminal(tables(rows)))


if __name__ == "__main__":
    main()
