import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat.questions.accuracy import (
    Graded,
    accuracies,
    contrasts,
    graded,
    majority,
    pass_at_k,
    table,
    verdict,
)
from interlat.stats import mcnemar_exact, wilson
from interlat.tasks import Task

KINDS = [("Level 3", "Algebra"), ("Level 5", "Algebra"), ("Level 5", "Geometry"), ("", "")]


def answers(right: str) -> list[Graded]:
    """One answer a sign, x is right; kinds come round."""
    return [Graded(f"t{i}", *KINDS[i % 4], sign == "x") for i, sign in enumerate(right)]


def test_accuracy_is_counted_overall_by_level_and_by_subject() -> None:
    rows = {(row.by, row.part): (row.correct, row.n) for row in accuracies(answers("x.xxx..."))}
    assert rows == {
        ("all", "all"): (4, 8),
        ("level", "Level 3"): (2, 2),
        ("level", "Level 5"): (1, 4),
        ("subject", "Algebra"): (2, 4),
        ("subject", "Geometry"): (1, 2),
    }


def test_intervals_are_wilson_s() -> None:
    row = accuracies(answers("xx......"))[0]
    assert (row.accuracy, row.low, row.high) == (0.25, *wilson(2, 8))


def test_conditions_are_compared_question_by_question() -> None:
    first, second = answers("xxxxxxxx"), answers("x...x...")
    rows = {(row.by, row.part): row for row in contrasts(first, list(reversed(second)))}
    assert rows["all", "all"].difference == 0.75
    assert rows["all", "all"].p == mcnemar_exact([True] * 8, [True, False, False, False] * 2)
    assert rows["all", "all"].p_holm == rows["all", "all"].p
    five = rows["level", "Level 5"]
    assert five.n == 4
    assert five.p_holm == min(1.0, 2 * five.p)
    assert rows["level", "Level 3"].difference == 0.0


def test_other_questions_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same questions"):
        contrasts(answers("xx"), answers("xxx"))
    with pytest.raises(ValueError, match="at least one"):
        accuracies([])


def test_the_table_has_every_part_of_every_condition() -> None:
    text = table({"data": answers("xxx."), "none": answers("x...")}, "data")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 10
    none = next(row for row in rows if row["condition"] == "none" and row["part"] == "all")
    assert float(none["difference"]) == -0.5
    assert {row["difference"] for row in rows if row["condition"] == "data"} == {""}


def test_tasks_say_level_and_subject() -> None:
    task = Task("a", "math", "s", "?", env_args={"level": "Level 2", "type": "Algebra"})
    plain = Task("b", "math", "s", "?")
    found = graded([task, plain], {"b": False, "a": True})
    assert found == [Graded("a", "Level 2", "Algebra", True), Graded("b", "", "", False)]
    with pytest.raises(ValueError, match="1 questions are without a task or an episode"):
        graded([task, plain], {"a": True})


def test_only_a_verdict_is_read_as_one() -> None:
    told = '{"prediction": "5", "gold": "7", "correct": false, "reason": "different", "type": "A"}'
    assert verdict([{"from": "human", "value": told}]) == ("5", "7", False, "different")
    for value in ("not JSON", "[]", '{"correct": true}'):
        assert verdict([{"from": "human", "value": value}]) is None
    assert verdict([]) is None


def test_pass_at_k_is_known_in_simple_cases() -> None:
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6)
    assert pass_at_k(5, 3, 3) == 1.0
    with pytest.raises(ValueError, match="pass@3 of 2"):
        pass_at_k(2, 1, 3)


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_more_tries_never_hurt(counts: tuple[int, int]) -> None:
    samples, correct = counts
    chances = [pass_at_k(samples, correct, k) for k in range(1, samples + 1)]
    assert chances == sorted(chances)
    assert chances[0] == pytest.approx(correct / samples)


def test_the_majority_reads_answers_as_the_grader_does() -> None:
    assert majority(["3", r"\frac12", "3 ", r"\dfrac{1}{2}", "$3$"]) == "3"
    assert majority(["1", "2", "2", "1"]) == "1"
    assert majority([None, "", "4"]) == "4"
    assert majority([None, ""]) is None
