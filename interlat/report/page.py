"""The report as one HTML page that needs nothing else, and as Markdown for a pull request."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import interlat
from interlat.report.figures import Figure
from interlat.report.findings import Finding
from interlat.report.tables import Grid, markdown

_CODE = re.compile(r"`([^`]+)`")


class Facts(NamedTuple):
    """A table of names and values under a heading; ``header`` names the columns."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """Everything that is told."""

    summary: str
    findings: Sequence[Finding]
    caveats: Sequence[str]
    tables: Sequence[Grid]
    meanings: Mapping[str, str]
    notes: Sequence[str]
    """Sentences below the tables."""
    figures: Sequence[Figure]
    facts: Sequence[Facts]


def html(report: Report) -> str:
    """One file: figures and their data inside, no network, no script."""
    environment = Environment(
        loader=PackageLoader("interlat.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = _code
    return environment.get_template("page.html.j2").render(
        report=report, version=interlat.__version__
    )


def summary_markdown(report: Report) -> str:
    """The answer, the tables and the figures, as CML posts them; images lie beside the file."""
    answers = [
        f"- {f.question} **{f.answer}.**\n" + "".join(f"  - {line}\n" for line in f.numbers)
        for f in report.findings
    ]
    images = [f"![{figure.title}](figures/{figure.name}.png)" for figure in report.figures]
    notes = [f"- {note}" for note in (*report.notes, *report.caveats)]
    parts = ["## Result", report.summary, "".join(answers).rstrip(), markdown(report.tables)]
    return "\n\n".join([*parts, "\n".join(notes), *images]) + "\n"


def facts_of(title: str, values: Mapping[str, Any]) -> Facts:
    """Names and values of a mapping; numbers with six digits, nothing for None."""
    return Facts(title, ("name", "value"), [(name, _text(v)) for name, v in values.items()])


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _code(text: str) -> Markup:
    """Escaped text whose backticks are code, and whose per cent signs stay with their number."""
    kept = str(escape(text)).replace(" %", "\N{NO-BREAK SPACE}%")
    return Markup(_CODE.sub(r"<code>\1</code>", kept))
