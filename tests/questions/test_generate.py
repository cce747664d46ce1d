import random
from itertools import permutations, product

import pytest

from interlat.questions.answers import find_answer
from interlat.questions.generate import (
    BASE,
    FLAVOURS,
    LEVELS,
    OPERATIONS,
    RULES,
    Problem,
    Step,
    deal_patterns,
    draw_problem,
)

SPLITS = ("train", "valid_seen", "valid_unseen", "final_unseen")
PROBLEMS = [
    draw_problem(subject, level, split, random.Random(f"{subject} {level} {split} {i}"))
    for subject, level, split, i in product(FLAVOURS, LEVELS, SPLITS, range(3))
]
KNOWN = Problem(
    subject="algebra",
    level=2,
    scene="Let the unknowns be",
    name="fesk",
    values={"x": 3, "y": 7, "z": 2},
    route=(Step("plus", "z"), Step("times", "y"), Step("doubled", "")),
    listed=(Step("times", "y"), Step("doubled", ""), Step("plus", "z")),
    others=("dorn : plus y .",),
)


def test_a_problem_lists_its_steps_and_hides_their_order() -> None:
    assert KNOWN.text == (
        "Let the unknowns be x = 3 ; y = 7 ; z = 2. From x the fesk is made by these steps in some "
        "order : times y ; doubled ; plus z. Find the fesk , last digits only."
    )
    assert KNOWN.plan == "fesk : plus z ; times y ; doubled ."
    assert set(KNOWN.sheet(random.Random(0)).split(" . ")) <= {
        "fesk : plus z ; times y ; doubled",
        "fesk : plus z ; times y ; doubled .",
        "dorn : plus y",
        "dorn : plus y .",
    }


def test_a_solution_works_out_every_step_and_boxes_the_answer() -> None:
    assert KNOWN.solution(KNOWN.route) == (
        "x = 3 ; plus z : 3 + 2 ≡ 5 ; times y : 5 * 7 ≡ 5 ; doubled : 5 + 5 ≡ 0 ; answer \\boxed{0}"
    )
    assert KNOWN.answer(KNOWN.route) == 0
    assert KNOWN.answer(KNOWN.listed) == 4


@pytest.mark.parametrize(
    ("operation", "results"),
    [("minus", [8, 9, 0, 1]), ("gcd", [2, 1, 2, 1]), ("cubed", [0, 1, 8, 7])],
)
def test_operations_are_what_they_are_called(operation: str, results: list[int]) -> None:
    assert [OPERATIONS[operation].compute(v, 2) % BASE for v in range(4)] == results


def test_pairs_are_counted() -> None:
    assert [OPERATIONS["paired"].compute(v, 0) for v in range(5)] == [0, 0, 1, 3, 6]


def test_in_every_problem_the_order_of_the_steps_makes_a_difference() -> None:
    for problem in PROBLEMS:
        assert sorted(problem.listed) == sorted(problem.route)
        assert len(problem.route) == problem.level + 1
        answers = {problem.answer(steps) for steps in permutations(problem.route)}
        assert len(answers) > 1


def test_the_plan_is_on_the_sheet_and_says_no_number() -> None:
    for problem in PROBLEMS:
        sheet = problem.sheet(random.Random(1))
        assert problem.plan in sheet
        assert sheet.count(" : ") == RULES
        assert not any(sign.isdigit() for sign in problem.plan + problem.uninformed_plan + sheet)


def test_a_solution_s_written_steps_are_true() -> None:
    for problem in PROBLEMS:
        found = find_answer(problem.solution(problem.route))
        assert found == (str(problem.answer(problem.route)), "box")
        for line in problem.solution(problem.route).split(" ; "):
            _, _, equation = line.partition(" : ")
            left, congruent, right = equation.partition(" ≡ ")
            if congruent and "gcd" not in left and "/" not in left:
                assert _worked_out(left) % BASE == int(right)


def _worked_out(term: str) -> int:
    """The value of `3 + 2`, `3 - 2`, `3 * 2` or `3 * 3 * 3`."""
    first, *rest = term.split(" ")
    value = int(first)
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        w = int(number)
        value = {"+": value + w, "-": value - w, "*": value * w}[sign]
    return value


def test_unseen_patterns_train_nothing_but_their_words_do() -> None:
    for subject, level in product(FLAVOURS, LEVELS):
        patterns = deal_patterns(subject, level)
        assert all(patterns)
        assert len({*patterns.seen, *patterns.valid_unseen, *patterns.final_unseen}) == sum(
            map(len, patterns)
        )
        assert {word for p in patterns.seen for word in p} == set(FLAVOURS[subject].operations)
