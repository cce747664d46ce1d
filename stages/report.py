"""Stage `report`: tables with intervals and paired tests, figures, one page."""

from pathlib import Path

import click

from interlat.cli import stage_command
from interlat.config import Params


@stage_command("task.step_limit", "task.success_steps")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=Path(),
    help="folder in which the stages ran  [default: here]",
)
@click.option("--prepare", type=click.Path(path_type=Path), help="JSON with the experts' success")
@click.option("--table", "only_table", is_flag=True, help="print the finished table and end")
def main(params: Params, root: Path, prepare: Path | None, only_table: bool) -> None:
    """Judge what the stages wrote and print the table.

    Reads plots/ and metrics/; writes plots/success.csv and report/: index.html, summary.md and
    figures/ (PNG and CSV).
    """
    from interlat.report.tables import grids, read_ceilings, read_rows, terminal

    table, output = root / "plots" / "success.csv", root / "report"
    prepare = prepare or root / "metrics" / "prepare.json"
    if not only_table:
        from interlat.report.build import build, write
        from interlat.tracking import stage_run

        read = [root / "plots" / name for name in ("ablate", "evaluate.csv")]
        with stage_run("report", params, inputs=read, outputs=[output, table]) as run:
            write(build(params, root, prepare), output, table)
            for path in (output, table):
                run.log_artifact(path)
    print(terminal(grids(read_rows(table), read_ceilings(prepare))))
    print(f"\n{output / 'index.html'}: the whole report")


if __name__ == "__main__":
    main()
