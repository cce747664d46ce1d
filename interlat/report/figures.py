"""Figures as PNG, each with its data as CSV; the same numbers give the same bytes.

Titles state what the numbers say. Series differ in marker, fill and dash, so grey print tells them
apart; shades run from dark to light.
"""

import base64
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, MaxNLocator

from interlat.report.findings import headline
from interlat.report.outcomes import Contrast, Outcome, Outcomes, Results
from interlat.report.tables import CONTROLS, EXPERTS, REFERENCE, Ceilings, Row, percent, to_csv
from interlat.stats import mean_interval, wilson

INK, GRID = "#1a1a1a", "#dddddd"
SHADES = ("#12355b", "#d98324", "#5f9ea0")
MARKERS = ("o", "D", "s", "^", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1)))
CURVES = ("#12355b", "#d98324", "#444444", "#3f8f8a", "#a03a5a", "#8f8f8f", "#7a5fb0")
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.columnspacing": 1.2,
    "figure.facecolor": "white",
}
WIDTH, DPI, TITLE_WIDTH = 5.6, 190, 60
"""Inches, dots an inch, characters: narrow, so that a phone shows it legibly."""


@dataclass(frozen=True)
class Figure:
    """A figure: its file name without ending, what it says, what it shows, and its data."""

    name: str
    title: str
    caption: str
    png: bytes
    csv: str

    @property
    def image_uri(self) -> str:
        """The PNG as a data URI."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"

    @property
    def csv_uri(self) -> str:
        """The CSV as a data URI."""
        return f"data:text/csv;base64,{base64.b64encode(self.csv.encode()).decode()}"


@dataclass(frozen=True)
class Estimate:
    """A value with its interval, a row of a figure's data; a ceiling's bounds are the value."""

    split: str
    condition: str
    steps: int | None
    value: float
    low: float
    high: float


def success(
    rows: Sequence[Row], contrasts: Sequence[Contrast], ceilings: Ceilings, split: str
) -> Figure:
    """Success of every control on one split, with intervals, the experts' success as lines."""
    shown = [row for row in rows if row.split == split and row.run == CONTROLS]
    budgets = list(dict.fromkeys(row.within_steps for row in shown))
    conditions = list(dict.fromkeys(row.condition for row in shown))
    experts = ceilings.get(split, {})
    title = headline(contrasts, split)
    with _canvas(title, height=1.9 + 0.42 * len(conditions)) as (canvas, axes):
        for i, budget in enumerate(budgets):
            chosen = [row for row in shown if row.within_steps == budget]
            offset = 0.28 * (i - (len(budgets) - 1) / 2)
            axes.errorbar(
                [100 * row.success for row in chosen],
                [conditions.index(row.condition) + offset for row in chosen],
                xerr=_reach([(100 * r.success, 100 * r.low, 100 * r.high) for r in chosen]),
                label=f"within {budget} steps",
                **_marks(i),
            )
        _ceiling_lines(axes, experts, budgets)
        _name_rows(axes, conditions)
        axes.set_xlim(-2, 102)
        axes.set_xlabel(f"games solved, % of {shown[0].n}, with 95 % Wilson intervals")
        canvas.legend(loc="outside lower left", ncols=2)
        png = _png(canvas)
    data = [
        Estimate(split, row.condition, row.within_steps, row.success, row.low, row.high)
        for row in shown
    ]
    data += [
        Estimate(split, expert, budget, value, value, value)
        for expert, by_budget in experts.items()
        for budget, value in by_budget.items()
    ]
    caption = "Success by condition; the lines are the experts that wrote the demonstrations."
    return Figure(f"success-{split}", title, caption, png, to_csv(data))


def differences(contrasts: Sequence[Contrast]) -> Figure:
    """The paired difference of the first condition to every other, a marker a split."""
    splits = list(dict.fromkeys(c.split for c in contrasts))
    others = list(dict.fromkeys(c.second for c in contrasts))
    first, budget = contrasts[0].first, contrasts[0].within_steps
    above = [o for o in others if all(c.verdict > 0 for c in contrasts if c.second == o)]
    rest = [other for other in others if other not in above]
    parts = [f"clearly above {_names(above, 'and')}"] if above else []
    parts += [f"not clearly above {_names(rest, 'or')}"] if rest else []
    title = f"{first} is {'; '.join(parts)}"
    with _canvas(title, height=1.7 + 0.4 * len(others)) as (canvas, axes):
        for i, split in enumerate(splits):
            chosen = [c for c in contrasts if c.split == split]
            offset = 0.28 * (i - (len(splits) - 1) / 2)
            axes.errorbar(
                [100 * c.difference for c in chosen],
                [others.index(c.second) + offset for c in chosen],
                xerr=_reach([(100 * c.difference, 100 * c.low, 100 * c.high) for c in chosen]),
                label=split,
                **_marks(i),
            )
        axes.axvline(0, color=INK, linewidth=1)
        _name_rows(axes, [f"{first} − {other}" for other in others])
        axes.set_xlabel(f"difference in success within {budget} steps, points, 95 % intervals")
        canvas.legend(loc="outside lower left", ncols=2)
        png = _png(canvas)
    caption = "Paired differences on the same games; an interval that meets 0 shows no difference."
    return Figure("differences", title, caption, png, to_csv(contrasts))


def steps(results: Results, step_limit: int) -> Figure:
    """Mean length of an episode by condition, a failure counted with the steps that it took."""
    splits = list(results.controls)
    conditions = list(results.controls[splits[0]])
    data = []
    for split in splits:
        for condition in conditions:
            taken = [float(episode.steps) for episode in results.controls[split][condition]]
            low, high = mean_interval(taken)
            data.append(Estimate(split, condition, None, sum(taken) / len(taken), low, high))
    told = [
        f"{e.value:.1f} [{e.low:.1f}, {e.high:.1f}] steps with {e.condition}"
        for e in data
        if e.split == splits[-1] and e.condition in (conditions[0], REFERENCE)
    ]
    title = f"{splits[-1]}: an episode takes {', '.join(told)}"
    with _canvas(title, height=1.7 + 0.4 * len(conditions)) as (canvas, axes):
        for i, split in enumerate(splits):
            chosen = [e for e in data if e.split == split]
            offset = 0.28 * (i - (len(splits) - 1) / 2)
            axes.errorbar(
                [e.value for e in chosen],
                [conditions.index(e.condition) + offset for e in chosen],
                xerr=_reach([(e.value, e.low, e.high) for e in chosen]),
                label=split,
                **_marks(i),
            )
        _name_rows(axes, conditions)
        axes.set_xlim(0, step_limit * 1.03)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.set_xlabel(f"mean actions an episode (limit {step_limit}), 95 % bootstrap intervals")
        canvas.legend(loc="outside lower left", ncols=2)
        png = _png(canvas)
    caption = "Mean steps of all episodes, won or not; an unsolved one runs into the limit."
    return Figure("steps", title, caption, png, to_csv(data))


def solved(outcomes: Outcomes, split: str, step_limit: int) -> Figure:
    """The share solved within every number of steps, by condition, on one split."""
    budgets = range(step_limit + 1)
    data = [_within(split, c, k, outcomes[c]) for c in outcomes for k in budgets]
    told = list(dict.fromkeys((next(iter(outcomes)), REFERENCE)))
    half = {c: _steps_to(0.5, [e for e in data if e.condition == c]) for c in told}
    parts = [f"by step {k} with {c}" if k else f"never with {c}" for c, k in half.items()]
    title = f"{split}: half of the games are solved {', '.join(parts)}"
    with _canvas(title, height=4.4) as (canvas, axes):
        for i, condition in enumerate(outcomes):
            chosen = [e for e in data if e.condition == condition]
            color = CURVES[i % len(CURVES)]
            if condition in told:
                lows, highs = zip(*((100 * e.low, 100 * e.high) for e in chosen), strict=True)
                axes.fill_between(budgets, lows, highs, color=color, alpha=0.15, linewidth=0)
            axes.plot(
                budgets,
                [100 * e.value for e in chosen],
                color=color,
                label=condition,
                linestyle=DASHES[i % len(DASHES)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=4.5,
                markevery=(i % 3, 3),
            )
        axes.set(xlim=(0, step_limit), ylim=(-2, 102))
        axes.set_xlabel("steps allowed")
        axes.set_ylabel("games solved, %")
        axes.grid(color=GRID)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        canvas.legend(loc="outside lower left", ncols=3)
        png = _png(canvas)
    caption = (
        "Share of games solved within a number of steps; 95 % Wilson bands of "
        f"{' and '.join(told)} (of all in the data)."
    )
    return Figure(f"solved-{split}", title, caption, png, to_csv(data))


def losses(name: str, subject: str, text: str, terms: Mapping[str, str]) -> Figure:
    """Training losses by step.

    text: the training's table as CSV, which is the figure's data. terms: column -> what it is
    called; columns that the table lacks, and those that are zero throughout, are left out.
    """
    header, *lines = [line.split(",") for line in text.strip().splitlines()]
    table = {
        column: [float(line[i]) for line in lines]
        for i, column in enumerate(header)
        if column == "step" or column in terms
    }
    at = table.pop("step")
    shown = {column: values for column, values in table.items() if any(values)}
    ends = [f"{terms[c]} {v[0]:.2g} → {v[-1]:.2g}" for c, v in shown.items()]
    title = f"{subject}, nats, over {at[-1]:.0f} steps: {', '.join(ends[:3])}"
    with _canvas(title, height=4.0) as (canvas, axes):
        for i, (column, values) in enumerate(shown.items()):
            axes.plot(
                at,
                values,
                color=CURVES[i % len(CURVES)],
                label=terms[column],
                linestyle=DASHES[i % len(DASHES)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=4,
                markevery=max(1, len(at) // 8),
            )
        if all(value > 0 for values in shown.values() for value in values):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel("loss, nats")
        axes.grid(color=GRID)
        canvas.legend(loc="outside lower left", ncols=2)
        png = _png(canvas)
    caption = "Each point is the mean since the point before."
    return Figure(name, title, caption, png, text)


@contextmanager
def _canvas(title: str, *, height: float) -> Iterator[tuple[Canvas, Axes]]:
    """A drawing with a title that is as wide as the figure; no global state, no display."""
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        lines = textwrap.fill(title, TITLE_WIDTH)
        canvas.suptitle(lines, x=0.012, ha="left", fontsize=10.5, fontweight="bold", color=INK)
        yield canvas, canvas.subplots()


def _png(canvas: Canvas) -> bytes:
    file = BytesIO()
    canvas.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _marks(i: int) -> dict[str, Any]:
    """Points with whiskers: the first series filled and dark, the next open and lighter."""
    color = SHADES[i % len(SHADES)]
    return {
        "linestyle": "none",
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 6,
        "markerfacecolor": color if i == 0 else "white",
        "markeredgewidth": 1.4,
        "color": color,
        "elinewidth": 1.6,
        "capsize": 3,
    }


def _reach(values: Sequence[tuple[float, float, float]]) -> list[list[float]]:
    """(value, low, high) as lengths of whiskers."""
    return [[max(0.0, v - low) for v, low, _ in values], [max(0.0, h - v) for v, _, h in values]]


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), labels=list(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID)


def _ceiling_lines(
    axes: Axes, experts: Mapping[str, Mapping[int, float]], budgets: Sequence[int]
) -> None:
    """A line an expert and value; budgets with the same value share one."""
    for style, (expert, by_budget) in zip(DASHES, experts.items(), strict=False):
        values: dict[float, list[int]] = {}
        for budget in budgets:
            if budget in by_budget:
                values.setdefault(by_budget[budget], []).append(budget)
        for value, shared in values.items():
            named = " and ".join(map(str, shared))
            axes.axvline(
                100 * value,
                color=SHADES[budgets.index(shared[0]) % len(SHADES)],
                linestyle=style,
                linewidth=1.3,
                zorder=0.9,
                label=f"{EXPERTS[expert]}, {named} steps: {percent(value)} %",
            )


def _within(split: str, condition: str, budget: int, episodes: Sequence[Outcome]) -> Estimate:
    count = sum(episode.within(budget) for episode in episodes)
    return Estimate(split, condition, budget, count / len(episodes), *wilson(count, len(episodes)))


def _steps_to(share: float, curve: Sequence[Estimate]) -> int | None:
    return next((e.steps for e in curve if e.value >= share), None)


def _names(conditions: Sequence[str], word: str) -> str:
    if len(conditions) < 2:
        return "".join(conditions)
    return f"{', '.join(conditions[:-1])} {word} {conditions[-1]}"
