import time
from collections.abc import Iterator

import pytest

from interlat.questions.grading import Verdict
from interlat.questions.judge import Judge


@pytest.fixture
def judge() -> Iterator[Judge]:
    judge = Judge(limit_s=8.0)
    yield judge
    judge.close()


def test_numbers_and_words_are_told_apart_at_sight(judge: Judge) -> None:
    assert judge.grade("so 7", r"\boxed{7}") == Verdict("7", "7", True, "same text")
    assert judge.grade("so 0.5", r"\boxed{\frac{1}{2}}").reason == "equivalent"
    assert judge.grade("even", r"\boxed{\text{odd}}").reason == "no answer"
    assert judge.grade(r"\boxed{even}", r"\boxed{\text{odd}}").reason == "different"
    assert judge.grade("I cannot say.", r"\boxed{7}").reason == "no answer"


@pytest.mark.slow
def test_an_item_that_takes_too_long_is_wrong_and_the_next_one_is_graded(judge: Judge) -> None:
    gold = r"\boxed{(x+1)^2}"
    assert judge.grade(r"\boxed{x^2+2x+1}", gold).reason == "equivalent"
    start = time.monotonic()
    assert judge.grade(r"\boxed{9^{9^{9^{9}}}+x}", r"\boxed{8^{9^{9}}+x}").correct is False
    assert time.monotonic() - start < 60
    assert judge.grade(r"\boxed{x^2-2x+1}", gold).reason == "different"
