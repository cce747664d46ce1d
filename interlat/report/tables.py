"""The result table: a row for each split, condition and number of steps, as CSV and as text.

Light on purpose (no statistics, no plotting), so that a finished table is shown at once.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from interlat.config import UserError
from interlat.files import read_json

MAIN, CONTROLS = "evaluate", "ablate"
"""Runs: the one that ``hidden.*`` describes, and the fixed list of controls."""
EXPERTS = {"informed_expert": "informed expert", "searching_expert": "searching expert"}
REFERENCE = "none"
"""The condition that every other is compared with in the table."""

Ceilings = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Split -> expert (a key of EXPERTS) -> steps -> success."""


@dataclass(frozen=True)
class Row:
    """One condition on one split; a success is a task solved within ``within_steps`` actions.

    The difference is to REFERENCE, on the same tasks, in success rate; None for REFERENCE itself.
    """

    name: str
    run: str
    split: str
    condition: str
    within_steps: int
    n: int
    successes: int
    success: float
    low: float
    high: float
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p: float | None
    mean_steps: float


class Grid(NamedTuple):
    """A table to show: its title, its header and its lines, all as text."""

    title: str
    header: list[str]
    lines: list[list[str]]


def to_csv(rows: Iterable[Any]) -> str:
    """Dataclass rows as CSV with a header; numbers with six digits, None as nothing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for i, row in enumerate(rows):
        values = asdict(row)
        if i == 0:
            writer.writerow(values)
        writer.writerow(f"{v:.6g}" if isinstance(v, float) else v for v in values.values())
    return text.getvalue()


def read_rows(path: Path) -> list[Row]:
    """The table that ``to_csv`` wrote. Raises UserError when it is not there."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [_row(record) for record in csv.DictReader(file)]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; `dvc repro` writes it") from None
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a table of this version ({error}); run dvc repro") from None


def read_ceilings(path: Path) -> Ceilings:
    """The experts' success from metrics/prepare.json; splits without experts have none."""
    return {
        split: {
            expert: {
                int(name.removeprefix("success_")): float(value)
                for name, value in metrics[expert].items()
            }
            for expert in EXPERTS
            if expert in metrics
        }
        for split, metrics in read_json(path).items()
    }


def grids(rows: Sequence[Row], ceilings: Ceilings) -> list[Grid]:
    """A table for each split: a line a condition, then the experts."""
    splits = dict.fromkeys(row.split for row in rows)
    return [_grid([row for row in rows if row.split == s], ceilings.get(s, {})) for s in splits]


def terminal(tables: Sequence[Grid]) -> str:
    """Tables in columns."""
    return "\n\n".join(f"{table.title}\n{_columns(table)}" for table in tables)


def markdown(tables: Sequence[Grid]) -> str:
    """Tables in GitHub's Markdown."""
    return "\n\n".join(
        "\n".join(
            [
                f"**{table.title}**",
                "",
                _piped(table.header),
                _piped(["---", *["---:"] * (len(table.header) - 1)]),
                *map(_piped, table.lines),
            ]
        )
        for table in tables
    )


def percent(share: float) -> str:
    """0.975 as 97.5."""
    return f"{100 * share:.1f}"


def interval(low: float, high: float) -> str:
    """[92.9, 99.1], in percent."""
    return f"[{percent(low)}, {percent(high)}]"


def points(difference: float) -> str:
    """A difference of shares in points, with its sign: +38.3."""
    text = f"{100 * difference:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def points_interval(low: float, high: float) -> str:
    """[+29.1, +46.5], in points."""
    return f"[{points(low)}, {points(high)}]"


def p_value(p: float) -> str:
    """0.034, and 2e-12 for small ones."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}".replace("e-0", "e-")


def _grid(rows: Sequence[Row], ceilings: Mapping[str, Mapping[int, float]]) -> Grid:
    budgets = list(dict.fromkeys(row.within_steps for row in rows))
    by_condition: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        by_condition.setdefault((row.run, row.condition), {})[row.within_steps] = row
    lines = []
    for (run, condition), found in by_condition.items():
        first = found[budgets[0]]
        shown = [f"{percent(r.success)} {interval(r.low, r.high)}" for r in found.values()]
        name = f"this run: {condition}" if run == MAIN else condition
        lines.append([name, *shown, *_compared(first), f"{first.mean_steps:.1f}"])
    for expert, success in ceilings.items():
        shown = [percent(success[b]) if b in success else "" for b in budgets]
        lines.append([EXPERTS[expert], *shown, "", "", ""])
    header = ["condition", *(f"within {budget} steps, %" for budget in budgets)]
    header += [f"minus {REFERENCE} ({budgets[0]} steps), points", "p", "steps"]
    return Grid(f"{rows[0].split}, {rows[0].n} games", header, lines)


def _compared(row: Row) -> tuple[str, str]:
    if row.difference is None or row.difference_low is None or row.difference_high is None:
        return "", ""
    assert row.p is not None
    bounds = points_interval(row.difference_low, row.difference_high)
    return f"{points(row.difference)} {bounds}", p_value(row.p)


def _columns(table: Grid) -> str:
    lines = [table.header, *table.lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(record: Mapping[str, str]) -> Row:
    def optional(name: str) -> float | None:
        return float(record[name]) if record[name] else None

    return Row(
        name=record["name"],
        run=record["run"],
        split=record["split"],
        condition=record["condition"],
        within_steps=int(record["within_steps"]),
        n=int(record["n"]),
        successes=int(record["successes"]),
        success=float(record["success"]),
        low=float(record["low"]),
        high=float(record["high"]),
        difference=optional("difference"),
        difference_low=optional("difference_low"),
        difference_high=optional("difference_high"),
        p=optional("p"),
        mean_steps=float(record["mean_steps"]),
    )
