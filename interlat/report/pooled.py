"""Training seeds pooled: the published table.

Every seed's actor plays the same games. A rate's interval is Wilson's over all episodes, as if they
were independent; the range over seeds stands beside it. A difference is paired by seed and game;
its interval resamples games, each with all its seeds (a bootstrap clustered by game). p is the
largest of the seeds' exact McNemar p-values: it is small only when every seed shows the difference
by itself. Source: Berger, Technometrics 24 (1982) 295-300, intersection-union tests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from interlat.config import UserError
from interlat.files import atomic_directory
from interlat.report import figures
from interlat.report.findings import OWN, findings, summary
from interlat.report.outcomes import Contrast, Results, contrasts, judge, read_results
from interlat.report.page import Report, summary_markdown
from interlat.report.tables import (
    CONTROLS,
    REFERENCE,
    Ceilings,
    Grid,
    Row,
    grids,
    markdown,
    percent,
    to_csv,
)
from interlat.stats import Difference, mean_interval, paired_difference, wilson

Seeds = Mapping[str, Results]
"""Training seed -> its episodes."""

NOTES = (
    "Success: the mean over all episodes, which is the mean over seeds; in brackets Wilson's 95 % "
    "interval over episodes. The last column has the seed with the lowest and with the highest.",
    "Differences are paired by seed and game; their 95 % intervals resample games, each with all "
    "its seeds (BCa bootstrap).",
    "p is the largest over seeds of McNemar's exact test, two-sided: every single seed reaches it.",
    "`seeds.csv` has each seed's own table.",
)


@dataclass(frozen=True)
class PooledRow(Row):
    """A row over all seeds: ``n`` and ``successes`` count episodes, ``p`` is the largest."""

    games: int
    lowest: float
    """Success of the seed with the lowest."""
    highest: float


@dataclass(frozen=True)
class SeedRow(Row):
    """A row of one seed's table."""

    seed: str


def read_seeds(folders: Sequence[Path], conditions: Sequence[str]) -> Seeds:
    """Each folder's plots/ablate, as the evaluate stage wrote it; the seed is the name's last part.

    Raises UserError for what is missing or malformed, or when seeds did not play the same games.
    """
    seeds = {
        folder.resolve().name.rpartition("-")[2]: read_results(
            conditions, folder / "plots" / "ablate", None
        )
        for folder in folders
    }
    if len(seeds) < len(folders):
        raise UserError(f"{' '.join(map(str, folders))}: two folders of one seed")
    first, *others = seeds.values()
    for folder, other in zip(folders[1:], others, strict=True):
        if other.tasks != first.tasks:
            raise UserError(f"{folder}: its games are not those of {folders[0]}; run dvc repro")
    return seeds


def pool(seeds: Seeds, success_steps: Sequence[int]) -> list[PooledRow]:
    """The table: splits, then conditions, then numbers of steps."""
    tables = [judge(results, success_steps) for results in seeds.values()]
    return [_pooled(seeds, rows) for rows in zip(*tables, strict=True)]


def by_seed(seeds: Seeds, success_steps: Sequence[int]) -> list[SeedRow]:
    """Every seed's own table."""
    return [
        SeedRow(**asdict(row), seed=seed)
        for seed, results in seeds.items()
        for row in judge(results, success_steps)
    ]


def pooled_contrasts(seeds: Seeds, first: str, within_steps: int) -> list[Contrast]:
    """One condition against every other; p and p (Holm) are the largest over seeds."""
    tables = [contrasts(results, first, within_steps) for results in seeds.values()]
    return [
        replace(
            group[0],
            n=sum(c.n for c in group),
            **difference(seeds, group[0].split, first, group[0].second, within_steps)._asdict(),
            p=max(c.p for c in group),
            p_holm=max(c.p_holm for c in group),
        )
        for group in zip(*tables, strict=True)
    ]


def difference(seeds: Seeds, split: str, first: str, second: str, within_steps: int) -> Difference:
    """Success of the first condition minus that of the second, its interval clustered by game.

    Where every game has the same difference, resampling shows no spread at all; Newcombe's interval
    of a single seed stands for it then, the widest.
    """

    def won(results: Results, condition: str) -> list[bool]:
        return [episode.within(within_steps) for episode in results.controls[split][condition]]

    pairs = [(won(results, first), won(results, second)) for results in seeds.values()]
    by_game = np.mean([np.subtract(a, b, dtype=float) for a, b in pairs], axis=0).tolist()
    if min(by_game) == max(by_game):
        single = [paired_difference(a, b) for a, b in pairs]
        return Difference(by_game[0], min(s.low for s in single), max(s.high for s in single))
    return Difference(fmean(by_game), *mean_interval(by_game))


def pooled_grids(rows: Sequence[PooledRow], ceilings: Ceilings, seeds: Iterable[str]) -> list[Grid]:
    """The tables of ``grids`` with the range over seeds as a last column."""
    splits = dict.fromkeys(row.split for row in rows)
    named = ", ".join(seeds)
    return [
        _with_range(table, [row for row in rows if row.split == split], named)
        for split, table in zip(splits, grids(rows, ceilings), strict=True)
    ]


def write_pooled(
    seeds: Seeds, ceilings: Ceilings, success_steps: Sequence[int], output: Path
) -> None:
    """Write output/: table.csv, seeds.csv, table.md, summary.md and figures/*.png."""
    rows = pool(seeds, success_steps)
    compared = pooled_contrasts(seeds, OWN, success_steps[0])
    tables = pooled_grids(rows, ceilings, seeds)
    drawn = [
        figures.success(rows, compared, ceilings, split)
        for split in dict.fromkeys(row.split for row in rows)
    ]
    report = Report(
        summary=f"Each game is played by the actors of {len(seeds)} training seeds and counts as "
        f"often. {summary(rows)}",
        findings=findings(rows, compared, ceilings),
        caveats=(),
        tables=tables,
        meanings={},
        notes=NOTES,
        figures=[*drawn, figures.differences(compared)],
        facts=(),
    )
    with atomic_directory(output) as folder:
        (folder / "table.csv").write_text(to_csv(rows), encoding="utf-8")
        (folder / "seeds.csv").write_text(to_csv(by_seed(seeds, success_steps)), encoding="utf-8")
        (folder / "table.md").write_text(f"{markdown(tables)}\n", encoding="utf-8")
        (folder / "summary.md").write_text(summary_markdown(report), encoding="utf-8")
        (folder / "figures").mkdir()
        for figure in report.figures:
            (folder / "figures" / f"{figure.name}.png").write_bytes(figure.png)


def _pooled(seeds: Seeds, rows: Sequence[Row]) -> PooledRow:
    """The same row of every seed's table as one."""
    row, n, successes = rows[0], sum(r.n for r in rows), sum(r.successes for r in rows)
    compared = row.condition != REFERENCE
    gap = (
        difference(seeds, row.split, row.condition, REFERENCE, row.within_steps)
        if compared
        else None
    )
    return PooledRow(
        name=row.name,
        run=CONTROLS,
        split=row.split,
        condition=row.condition,
        within_steps=row.within_steps,
        n=n,
        successes=successes,
        success=successes / n,
        **wilson(successes, n)._asdict(),
        difference=gap and gap.difference,
        difference_low=gap and gap.low,
        difference_high=gap and gap.high,
        p=max(r.p for r in rows if r.p is not None) if compared else None,
        mean_steps=fmean(r.mean_steps for r in rows),
        games=row.n,
        lowest=min(r.success for r in rows),
        highest=max(r.success for r in rows),
    )


def _with_range(table: Grid, rows: Sequence[PooledRow], seeds: str) -> Grid:
    ranges: dict[str, list[str]] = {}
    for row in rows:
        ranges.setdefault(row.condition, []).append(
            f"{percent(row.lowest)}\N{EN DASH}{percent(row.highest)}"
        )
    header = ["largest p" if name == "p" else name for name in table.header]
    budgets = ", ".join(str(steps) for steps in dict.fromkeys(row.within_steps for row in rows))
    return Grid(
        f"{rows[0].split}, {rows[0].games} games, training seeds {seeds}",
        [*header, f"lowest\N{EN DASH}highest seed ({budgets} steps), %"],
        [[*line, ", ".join(ranges.get(line[0], ()))] for line in table.lines],
    )
