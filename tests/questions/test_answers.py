import pytest

from interlat.questions.answers import find_answer, last_boxed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{1} and at last \fbox{3}", "3"),
        (r"\fbox{3} and at last \boxed{1}", "1"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed 5", "5"),
        (r"\boxed{}", ""),
    ],
)
def test_the_last_balanced_box_counts(text: str, answer: str) -> None:
    assert last_boxed(text) == answer


def test_an_unbalanced_box_gives_way_to_the_one_before() -> None:
    assert last_boxed(r"\boxed{7} or rather \boxed{8") == "7"
    assert last_boxed(r"\boxed{8") is None


def test_a_command_that_only_begins_like_a_box_is_none() -> None:
    assert last_boxed(r"\boxedminus{3}") is None


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("so 6 * 7.\n#### 42", "42", "hashes"),
        ("The final answer is: 17. Done.", "17", "said"),
        ("The answer is $x = 3$.", "$x = 3$", "said"),
        (r"hence $a$ and then $\frac{1}{2}$", r"\frac{1}{2}", "formula"),
        ("we get 3, then 1,234.5", "1,234.5", "number"),
    ],
)
def test_without_a_box_other_signs_are_read(text: str, answer: str, found: str) -> None:
    assert find_answer(text) == (answer, found)


def test_text_without_an_answer_has_none() -> None:
    assert find_answer("I cannot say.") is None
