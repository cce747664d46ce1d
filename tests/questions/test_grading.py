import time
from pathlib import Path

import pytest
from questions.pairs import TABLE

from interlat.questions.grading import grade

ITEMS = [
    (gold, prediction, expected)
    for gold, right, wrong in TABLE
    for expected, predictions in ((True, right), (False, wrong))
    for prediction in predictions
]
LIMIT_S = 3.0


def boxed(answer: str) -> str:
    return rf"Therefore \boxed{{{answer}}}."


@pytest.mark.slow
def test_the_grader_agrees_with_a_mathematician() -> None:
    verdicts = grade(
        [(boxed(prediction), boxed(gold)) for gold, prediction, _ in ITEMS],
        workers=2,
        limit_s=LIMIT_S,
    )
    wrong = [
        (item, verdict.reason)
        for item, verdict in zip(ITEMS, verdicts, strict=True)
        if verdict.correct != item[2]
    ]
    assert len(ITEMS) >= 150
    assert wrong == []


@pytest.mark.slow
def test_hostile_answers_are_wrong_and_cost_no_more_than_their_limit(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    hostile = [
        "9^{9^{9^{9}}}",
        "2^{10000000}!",
        "(" * 400,
        "x" * 10_000,
        f"__import__('pathlib').Path('{trap}').touch()",
        "\\frac{" * 200,
        "\x00\x1b[31m",
        "{{jinja}} %s {0}",
    ]
    start = time.monotonic()
    verdicts = grade([(boxed(text), boxed("8^{9^9}")) for text in hostile], limit_s=LIMIT_S)
    assert not any(verdict.correct for verdict in verdicts)
    assert not trap.exists()
    assert time.monotonic() - start < LIMIT_S * len(hostile) + 60


def test_what_reads_the_same_needs_no_mathematics() -> None:
    verdicts = grade([(boxed(r"\text{odd}"), boxed("odd")), ("#### 1,000", boxed("1000"))])
    assert [verdict.reason for verdict in verdicts] == ["same text", "same text"]


def test_a_missing_answer_is_said_and_counted() -> None:
    verdicts = grade([("I cannot say.", boxed("1")), (boxed("1"), ""), (boxed(""), boxed("1"))])
    assert [verdict.reason for verdict in verdicts] == [
        "no answer",
        "no gold answer",
        "no answer",
    ]
    assert not any(verdict.correct for verdict in verdicts)
