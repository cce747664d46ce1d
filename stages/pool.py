"""Stage `pool`: the tables of several training seeds as one, the published table."""

from pathlib import Path

import click

from interlat.cli import stage_command
from interlat.config import Params


@stage_command("task.success_steps")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--prepare",
    type=click.Path(path_type=Path),
    help="JSON with the experts' success  [default: games/metrics/prepare.json beside FOLDERS]",
)
@click.option(
    "--output_dir",
    type=click.Path(path_type=Path),
    default=Path("report"),
    show_default=True,
    help="folder of the tables and figures",
)
def main(params: Params, folders: tuple[Path, ...], prepare: Path | None, output_dir: Path) -> None:
    """Judge the seeds in FOLDERS (seed-1 seed-2 ...) together and print the table.

    Reads FOLDER/plots/ablate/; writes table.csv, seeds.csv, table.md, summary.md and figures/.
    """
    from interlat.report.pooled import pool, pooled_grids, read_seeds, write_pooled
    from interlat.report.tables import read_ceilings, terminal
    from interlat.tracking import stage_run

    prepare = prepare or folders[0].parent / "games" / "metrics" / "prepare.json"
    steps, ceilings = params.task.success_steps, read_ceilings(prepare)
    seeds = read_seeds(folders, params.ablate.conditions)
    inputs = [folder / "plots" / "ablate" for folder in folders]
    with stage_run("pool", params, inputs=inputs, outputs=[output_dir]) as run:
        write_pooled(seeds, ceilings, steps, output_dir)
        run.log_artifact(output_dir)
    print(terminal(pooled_grids(pool(seeds, steps), ceilings, seeds)))


if __name__ == "__main__":
    main()
