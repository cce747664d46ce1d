"""The page is one whole file: no network, no script, an alternative for every image."""

from html.parser import HTMLParser

import pytest

from interlat.report.figures import Figure
from interlat.report.findings import Finding
from interlat.report.page import Facts, Report, facts_of, html, summary_markdown
from interlat.report.tables import Grid


@pytest.fixture
def report() -> Report:
    return Report(
        summary="Of 5 games `data` solved 80.0 %.",
        findings=[Finding("Does it help?", "Yes: `data` <is> above", True, ["+1.0 points"])],
        caveats=["One seed."],
        tables=[Grid("seen, 5 games", ["condition", "success"], [["data", "80.0"]])],
        meanings={"data": "The own message."},
        notes=["“This run” is data."],
        figures=[Figure("steps", "Shorter with data", "Mean steps.", b"png", "a,b\n1,2\n")],
        facts=[Facts("Seeds", ("name", "value"), [("seed", "1")])],
    )


class Page(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_nothing_is_fetched_and_nothing_runs(report: Report) -> None:
    elements = Page(html(report)).elements
    links = [a[k] or "" for _, a in elements for k in ("src", "href") if k in a]
    assert links
    assert all(link.startswith(("data:", "#")) for link in links)
    assert not {"script", "iframe"} & {tag for tag, _ in elements}


def test_it_can_be_read_without_eyes_or_mouse(report: Report) -> None:
    elements = Page(html(report)).elements
    assert [a["alt"] for tag, a in elements if tag == "img"] == ["Shorter with data"]
    assert ("meta", "width=device-width, initial-scale=1") in [
        (tag, a.get("content")) for tag, a in elements
    ]
    ids = {a["id"] for _, a in elements if "id" in a}
    inner = {
        (a["href"] or "")[1:] for tag, a in elements if tag == "a" and "#" in (a["href"] or "")
    }
    assert inner <= ids
    scrolled = [a for _, a in elements if "wide" in (a.get("class") or "")]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolled)


def test_text_is_escaped_and_code_is_code(report: Report) -> None:
    assert "Yes: <code>data</code> &lt;is&gt; above." in html(report)
    assert "80.0\N{NO-BREAK SPACE}%" in html(report)


def test_markdown_has_answer_table_and_images(report: Report) -> None:
    text = summary_markdown(report)
    assert text.startswith("## Result\n\nOf 5 games `data` solved 80.0 %.\n\n- Does it help?")
    assert "| data | 80.0 |" in text
    assert text.endswith("![Shorter with data](figures/steps.png)\n")


def test_facts_are_short_and_honest() -> None:
    facts = facts_of("x", {"a": 0.123456789, "b": None, "c": True})
    assert facts.lines == [("a", "0.123457"), ("b", "null"), ("c", "True")]
