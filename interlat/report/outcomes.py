"""Episodes read back, paired by task, and judged: rows of the table and contrasts of conditions."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interlat.config import UserError
from interlat.report.tables import CONTROLS, MAIN, REFERENCE, Row
from interlat.stats import holm, mcnemar_exact, paired_difference, wilson

ALPHA = 0.05


class Outcome(NamedTuple):
    """How an episode ended."""

    won: bool
    steps: int

    def within(self, steps: int) -> bool:
        """Solved in at most so many steps."""
        return self.won and self.steps <= steps


Outcomes = Mapping[str, Sequence[Outcome]]
"""Condition -> its episodes on one split; the same tasks in the same order everywhere."""


@dataclass(frozen=True)
class Results:
    """All episodes of a pipeline, by split."""

    controls: Mapping[str, Outcomes]
    main: Mapping[str, Outcomes]
    """The run that ``hidden.*`` describes: at most one condition a split."""
    tasks: Mapping[str, Sequence[str]]
    """The tasks of each split, in the order of its episodes."""


@dataclass(frozen=True)
class Contrast:
    """Success of one condition minus that of another, on the same tasks.

    p: exact McNemar; p_holm: adjusted for the contrasts of its split.
    """

    split: str
    within_steps: int
    first: str
    second: str
    n: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float

    @property
    def verdict(self) -> int:
        """1: the first is above, -1: it is below, 0: no difference is shown."""
        shown = self.p_holm < ALPHA and (self.low > 0 or self.high < 0)
        return (1 if self.difference > 0 else -1) if shown else 0


def read_results(conditions: Sequence[str], folder: Path, main: Path | None) -> Results:
    """Episodes from folder/<condition>.csv and, where there is one, from the main run's table.

    Raises UserError for a missing or malformed table, or when two do not hold the same tasks.
    """
    if REFERENCE not in conditions:
        raise UserError(
            f"ablate.conditions: {REFERENCE} is needed; all others are compared with it"
        )
    files = [(folder / f"{condition}.csv", CONTROLS) for condition in conditions]
    files += [(main, MAIN)] if main else []
    tasks: dict[str, tuple[Path, set[str]]] = {}
    found: dict[str, dict[str, dict[str, list[Outcome]]]] = {CONTROLS: {}, MAIN: {}}
    splits: set[str] = set()
    for path, run in files:
        table = read_episodes(path)
        splits = splits or {split for split, _ in table}
        if splits != {split for split, _ in table}:
            raise UserError(f"{path}: its splits are not those of {files[0][0]}; run dvc repro")
        for (split, condition), episodes in table.items():
            other, ids = tasks.setdefault(split, (path, set(episodes)))
            if ids != set(episodes):
                raise UserError(
                    f"{path}: {len(ids ^ set(episodes))} tasks of {split} are not in both it and "
                    f"{other}; conditions are paired by task, so run dvc repro"
                )
            in_order = [episodes[task_id] for task_id in sorted(episodes)]
            found[run].setdefault(split, {})[condition] = in_order
    order = {split: sorted(ids) for split, (_, ids) in tasks.items()}
    return Results(found[CONTROLS], found[MAIN], order)


def judge(results: Results, success_steps: Sequence[int]) -> list[Row]:
    """The table: splits, then conditions, then numbers of steps; the main run comes last."""
    return [
        _judged(run, split, condition, budget, episodes, results.controls[split][REFERENCE])
        for split in results.controls
        for run, outcomes in ((CONTROLS, results.controls), (MAIN, results.main))
        for condition, episodes in outcomes.get(split, {}).items()
        for budget in success_steps
    ]


def contrasts(results: Results, first: str, within_steps: int) -> list[Contrast]:
    """One condition against every other of each split; Holm's correction within a split."""
    found = []
    for split, outcomes in results.controls.items():
        others = [condition for condition in outcomes if condition != first]
        won = {c: [e.within(within_steps) for e in outcomes[c]] for c in outcomes}
        if first not in won:
            continue
        p_values = [mcnemar_exact(won[first], won[other]) for other in others]
        for other, p, p_holm in zip(others, p_values, holm(p_values), strict=True):
            gap = paired_difference(won[first], won[other])
            found.append(
                Contrast(split, within_steps, first, other, len(won[first]), *gap, p, p_holm)
            )
    return found


def _judged(
    run: str,
    split: str,
    condition: str,
    budget: int,
    episodes: Sequence[Outcome],
    reference: Sequence[Outcome],
) -> Row:
    won = [episode.within(budget) for episode in episodes]
    base = [episode.within(budget) for episode in reference]
    low, high = wilson(sum(won), len(won))
    compared = run == MAIN or condition != REFERENCE
    difference = paired_difference(won, base) if compared else None
    return Row(
        f"{split}, {budget} steps: {condition}{' (this run)' if run == MAIN else ''}",
        run,
        split,
        condition,
        budget,
        len(won),
        sum(won),
        sum(won) / len(won),
        low,
        high,
        difference and difference.difference,
        difference and difference.low,
        difference and difference.high,
        mcnemar_exact(won, base) if compared else None,
        sum(episode.steps for episode in episodes) / len(episodes),
    )


def read_episodes(path: Path) -> dict[tuple[str, str], dict[str, Outcome]]:
    """(split, condition) -> task_id -> outcome."""
    table: dict[tuple[str, str], dict[str, Outcome]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for number, record in enumerate(csv.DictReader(file), start=2):
                episodes = table.setdefault((record["split"], record["condition"]), {})
                if record["task_id"] in episodes:
                    raise UserError(f"{path}, line {number}: {record['task_id']!r} comes twice")
                outcome = Outcome(bool(int(record["won"])), int(record["steps"]))
                episodes[record["task_id"]] = outcome
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; `dvc repro` plays its episodes") from None
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a table of episodes: {error!r}") from None
    if not table:
        raise UserError(f"{path}: there is no episode in it")
    return table
