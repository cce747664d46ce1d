"""Words follow from the numbers, in both directions."""

from dataclasses import replace

import pytest

from interlat.report.findings import caveats, findings, headline, lengths, summary
from interlat.report.outcomes import Contrast
from report.test_tables import DATA, NONE

ABOVE = Contrast("seen", 12, "data", "none", 120, 0.383, 0.291, 0.465, 1e-12, 6e-12)
BELOW = replace(ABOVE, difference=-0.2, low=-0.3, high=-0.1)
OPEN = replace(ABOVE, difference=0.01, low=-0.03, high=0.045, p=0.7, p_holm=1.0)


def answer(*contrasts: Contrast) -> tuple[str, bool]:
    finding = findings([], contrasts, {})[0]
    return finding.answer, finding.clear


def test_a_clear_difference_is_a_yes_with_its_numbers() -> None:
    (finding,) = findings([], [ABOVE], {})
    assert finding.question == "Does the message help?"
    assert (finding.answer, finding.clear) == ("Yes: `data` is above `none`", True)
    assert finding.numbers == [
        "seen: `data` minus `none` +38.3 points [+29.1, +46.5], p = 1e-12, p (Holm) = 6e-12"
    ]


def test_a_message_that_harms_is_not_called_help() -> None:
    assert answer(BELOW) == ("The reverse: `data` is below `none`", True)
    assert answer(replace(BELOW, second="text")) == ("Yes: `data` is below `text`", True)


def test_no_difference_is_said_with_what_remains_possible() -> None:
    assert answer(OPEN) == (
        "Not shown: no difference was found; up to 4.5 points remain possible",
        False,
    )


def test_splits_that_disagree_are_told_one_by_one() -> None:
    assert answer(ABOVE, replace(OPEN, split="unseen")) == (
        "Not everywhere: above on seen and no difference shown on unseen",
        False,
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.2, -0.05, "No and it harms: the upper bound over none is −5.0 points"),
        (-0.1, 0.08, "No: the upper bound over none is +8.0 points"),
        (-0.1, 0.12, "Not excluded: up to +12.0 points"),
        (0.02, 0.2, "Yes, on seen"),
    ],
)
def test_a_wrong_message_is_judged_by_its_upper_bound(
    low: float, high: float, expected: str
) -> None:
    row = replace(DATA, condition="white_noise", difference_low=low, difference_high=high)
    (finding,) = findings([row], [], {})
    assert finding.answer == expected


def test_each_condition_stands_beside_the_expert_that_it_learned_from() -> None:
    ceilings = {"seen": {"informed_expert": {12: 1.0}, "searching_expert": {12: 0.6417}}}
    data, none = findings([DATA, NONE], [], ceilings)
    assert data.answer == "−2.5 points"
    assert data.numbers == ["seen: informed expert 100.0 %, `data` 97.5 % [92.9, 99.1]"]
    assert none.answer == "−5.0 points"


def test_a_figure_s_title_says_what_was_found() -> None:
    assert headline([ABOVE], "seen") == (
        "seen: the message raises success within 12 steps by 38.3 points, [+29.1, +46.5] over none"
    )
    assert "lowers success within 12 steps by 20.0 points" in headline([BELOW], "seen")
    assert headline([OPEN], "seen").startswith("seen: no effect of the message")


def test_the_page_opens_with_both_rates() -> None:
    assert summary([DATA, NONE]) == (
        "Of 120 games, within 12 steps, the actor that read its sender's hidden states (`data`) "
        "solved 97.5 % [92.9, 99.1] on seen; without any message (`none`) 59.2 % [50.2, 67.5] "
        "on seen."
    )


def test_where_the_gain_comes_from_is_said() -> None:
    assert "has seen the house" in caveats(1, "layout")[0]
    assert "the same messages" in caveats(1, "none")[0]


def test_the_length_of_messages_is_said_where_it_is_known() -> None:
    assert "21.7 on seen rows" in lengths({"seen": 21.6667})
    assert lengths({}) == ""
