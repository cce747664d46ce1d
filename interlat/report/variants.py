"""Actors trained in several ways, judged on the same games against the first of them.

A rate's interval is Wilson's, a difference's is Newcombe's paired one, p is McNemar's exact test
with Holm's correction over the variants of a split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interlat.config import UserError
from interlat.report.outcomes import Outcome, read_episodes
from interlat.report.tables import (
    Grid,
    interval,
    markdown,
    p_value,
    percent,
    points,
    points_interval,
)
from interlat.stats import holm, mcnemar_exact, paired_difference, wilson

NOTES = (
    "One training seed. Success with its own message within each number of steps, Wilson's 95 % "
    "interval; *without* is the same actor told nothing. *Gain* is with minus without, the last "
    "difference is to the first row: both paired by game, Newcombe's 95 % intervals, in points. "
    "p: McNemar's exact test against the first row, two-sided, Holm's correction within the table."
)

Played = Mapping[str, Mapping[str, Outcome]]
"""Split -> task -> how its episode ended."""


class Variant(NamedTuple):
    """An actor's episodes with its own message, and without one where they were played."""

    name: str
    told: Played
    alone: Played | None


@dataclass(frozen=True)
class VariantRow:
    """One actor on one split; gain: told minus alone; difference: to the first actor, told."""

    split: str
    name: str
    within_steps: int
    n: int
    successes: int
    success: float
    low: float
    high: float
    alone: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p: float | None
    p_holm: float | None
    mean_steps: float


def read_variant(text: str) -> Variant:
    """A variant from ``NAME=TOLD.csv`` or ``NAME=TOLD.csv,ALONE.csv``, tables of episodes.

    Raises UserError for another form, a missing or malformed table, and one of two conditions.
    """
    name, equals, files = text.partition("=")
    told, _, alone = files.partition(",")
    if not (name and equals and told):
        raise UserError(f"{text}: expected NAME=EPISODES.csv or NAME=EPISODES.csv,EPISODES.csv")
    return Variant(name, _read(Path(told)), _read(Path(alone)) if alone else None)


def compare(variants: Sequence[Variant], success_steps: Sequence[int]) -> list[VariantRow]:
    """The table: splits, then numbers of steps, then variants.

    Raises UserError when two variants did not play the same games.
    """
    games = {split: sorted(tasks) for split, tasks in variants[0].told.items()}
    for variant in variants:
        for played in (variant.told, variant.alone):
            if played is not None and {s: sorted(t) for s, t in played.items()} != games:
                raise UserError(f"{variant.name}: its games are not those of {variants[0].name}")
    return [
        row
        for split, order in games.items()
        for steps in success_steps
        for row in _rows(variants, split, order, steps)
    ]


def tables(rows: Sequence[VariantRow]) -> list[Grid]:
    """A table for each split: a line a variant; differences within the fewest steps."""
    return [
        _grid([row for row in rows if row.split == split])
        for split in dict.fromkeys(row.split for row in rows)
    ]


def page(title: str, rows: Sequence[VariantRow]) -> str:
    """The tables as a page of Markdown."""
    return f"# {title}\n\n{NOTES}\n\n{markdown(tables(rows))}\n"


def _rows(
    variants: Sequence[Variant], split: str, order: Sequence[str], steps: int
) -> list[VariantRow]:
    def won(played: Played) -> list[bool]:
        return [played[split][task].within(steps) for task in order]

    first = won(variants[0].told)
    p_values = [mcnemar_exact(won(variant.told), first) for variant in variants[1:]]
    adjusted = [None, *holm(p_values)]
    rows = []
    for variant, p, p_holm in zip(variants, [None, *p_values], adjusted, strict=True):
        told = won(variant.told)
        alone = won(variant.alone) if variant.alone is not None else None
        gain = paired_difference(told, alone) if alone is not None else None
        gap = paired_difference(told, first) if p is not None else None
        low, high = wilson(sum(told), len(told))
        rows.append(
            VariantRow(
                split=split,
                name=variant.name,
                within_steps=steps,
                n=len(told),
                successes=sum(told),
                success=sum(told) / len(told),
                low=low,
                high=high,
                alone=sum(alone) / len(alone) if alone is not None else None,
                gain=gain and gain.difference,
                gain_low=gain and gain.low,
                gain_high=gain and gain.high,
                difference=gap and gap.difference,
                difference_low=gap and gap.low,
                difference_high=gap and gap.high,
                p=p,
                p_holm=p_holm,
                mean_steps=sum(variant.told[split][task].steps for task in order) / len(order),
            )
        )
    return rows


def _grid(rows: Sequence[VariantRow]) -> Grid:
    budgets = list(dict.fromkeys(row.within_steps for row in rows))
    lines = []
    for row in (row for row in rows if row.within_steps == budgets[0]):
        same = [other for other in rows if other.name == row.name]
        shown = [f"{percent(r.success)} {interval(r.low, r.high)}" for r in same]
        alone = percent(row.alone) if row.alone is not None else ""
        lines.append(
            [
                row.name,
                *shown,
                alone,
                _points(row.gain, row.gain_low, row.gain_high),
                _points(row.difference, row.difference_low, row.difference_high),
                p_value(row.p_holm) if row.p_holm is not None else "",
                f"{row.mean_steps:.1f}",
            ]
        )
    few = f"({budgets[0]} steps)"
    header = ["actor", *(f"within {budget} steps, %" for budget in budgets)]
    header += [f"without {few}, %", f"gain {few}", f"minus {rows[0].name} {few}", "p", "steps"]
    return Grid(f"{rows[0].split}, {rows[0].n} games", header, lines)


def _points(difference: float | None, low: float | None, high: float | None) -> str:
    if difference is None or low is None or high is None:
        return ""
    return f"{points(difference)} {points_interval(low, high)}"


def _read(path: Path) -> Played:
    table = read_episodes(path)
    if len({split for split, _ in table}) < len(table):
        raise UserError(f"{path}: it holds several conditions; a table of one is expected")
    return {split: episodes for (split, _), episodes in table.items()}
