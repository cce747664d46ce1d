"""The published rules, case by case, with values computed by hand.

Two attributes (tea tree, essential oils), two options (grey, xl) and a limit of 40 dollars make
five points: a purchase of the right type is worth a fifth for each.
"""

import pytest
from envs.webshop.goods import item, wish
from hypothesis import given
from hypothesis import strategies as st

from interlat.envs.webshop.reward import (
    content_words,
    options_met,
    plain_color,
    score,
    title_score,
    type_score,
)

BOTH = ["grey", "xl"]
ELSEWHERE = {"query": "tables", "path": ("Home", "Tables")}


@pytest.mark.parametrize(
    ("case", "changes", "price", "chosen", "reward"),
    [
        ("everything right", {}, 30.0, BOTH, 1.0),
        ("at the limit", {}, 40.0, BOTH, 1.0),
        ("too dear", {}, 40.01, BOTH, 4 / 5),
        ("one attribute missing", {"attributes": ("tea tree",)}, 30.0, BOTH, 4 / 5),
        ("no attribute", {"attributes": ()}, 30.0, BOTH, 3 / 5),
        ("nearly the same", {"attributes": ("tea tree", "essential oil")}, 30.0, BOTH, 1.0),
        (
            "said in a feature",
            {"attributes": ("tea tree",), "features": ("With Essential Oils.",)},
            30.0,
            BOTH,
            1.0,
        ),
        (
            "said in the description",
            {"attributes": ("tea tree",), "description": "Full of essential oils"},
            30.0,
            BOTH,
            1.0,
        ),
        ("one option", {}, 30.0, ["grey"], 4 / 5),
        ("no option", {}, 30.0, [], 3 / 5),
        ("one wrong option", {}, 30.0, ["blue", "xl"], 4 / 5),
        ("nothing but the type", {"attributes": ()}, 99.0, [], 0.0),
        ("half the type", {**ELSEWHERE, "title": "Acme One Two Three"}, 30.0, BOTH, 1.0),
        ("no word in common", {"title": "Steel Tweezers"}, 30.0, BOTH, 0.0),
    ],
)
def test_a_purchase_is_worth_its_points(
    case: str, changes: dict[str, object], price: float, chosen: list[str], reward: float
) -> None:
    assert score(item(**changes), price, chosen, wish()).reward == pytest.approx(reward), case


def test_the_parts_of_a_score_are_told() -> None:
    assert score(item(attributes=("tea tree",)), 50.0, ["xl"], wish()) == (
        pytest.approx(2 / 5),
        1.0,
        1,
        1,
        False,
    )


def test_a_goal_without_options_counts_attributes_and_price_only() -> None:
    goal = wish(options=())
    assert score(item(attributes=("tea tree",)), 30.0, [], goal).reward == pytest.approx(2 / 3)


TEN = "Alpha Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliett"


@pytest.mark.parametrize(
    ("case", "wanted", "bought", "changes", "expected"),
    [
        ("same query", "Acme Shoes", "Acme Boots", {"path": ("Other",)}, 1.0),
        ("two levels of the path", TEN, "Alpha Boots", {"query": "x"}, 1.0),
        (
            "levels in another order",
            TEN,
            "Alpha Boots",
            {"query": "x", "path": ("Shoes", "Men")},
            1.0,
        ),
        ("one level twice", TEN, "Alpha Boots", {"query": "x", "path": ("Men", "Men")}, 0.5),
        ("title above 0.2", "Acme Red Shoes", "Acme Blue Boots", ELSEWHERE, 1.0),
        ("title at 0.2", "Acme Red Tall Soft Shoes", "Acme Boots", ELSEWHERE, 0.5),
        ("title at 0.1", TEN, "Alpha Boots", ELSEWHERE, 0.5),
        ("title below 0.1", TEN + " Kilo", "Alpha Boots", ELSEWHERE, 0.1),
        ("below 0.1 whatever the query", TEN + " Kilo", "Alpha Boots", {}, 0.1),
        ("nothing in common", "Acme Shoes", "Steel Tweezers", ELSEWHERE, 0.0),
        ("nothing in common whatever the query", "Acme Shoes", "Steel Tweezers", {}, 0.0),
        ("a wanted title without words", "921 # 2", "Steel Tweezers", ELSEWHERE, 0.5),
        ("a wanted title without words, same query", "921 # 2", "Steel Tweezers", {}, 1.0),
    ],
)
def test_the_type_follows_query_path_and_title(
    case: str, wanted: str, bought: str, changes: dict[str, object], expected: float
) -> None:
    assert type_score(item(bought, **changes), item(wanted)) == expected, case


def test_a_type_below_one_scales_the_whole_reward() -> None:
    goal = wish(item("Acme Red Tall Soft Shoes"))
    assert score(item("Acme Boots", **ELSEWHERE), 30.0, ["grey"], goal).reward == pytest.approx(
        0.5 * 4 / 5
    )


def test_a_wanted_title_s_words_count_as_often_as_they_stand_there() -> None:
    assert content_words("The 2 Bar-Tables for a Bar, with x") == ["bar", "tables", "bar"]
    assert title_score("Steel Bar", "Bar Bar Lamp Hook") == 1 / 4


@pytest.mark.parametrize(
    ("chosen", "wanted", "met"),
    [
        (["powder snow"], ["cool powder snow"], 1),
        (["pack of 12", "grey", "xl"], ["grey", "xl", "pack of 12"], 3),
        (["slate grey"], ["heather grey"], 1),
        (["dark grey"], ["grey"], 0),
        (["stone"], ["stonewash"], 0),
        (["9"], ["9.5"], 1),
        (["9"], ["10"], 0),
        (['28" x 28"'], ['28" x 28"'], 1),
        (["red"], ["red", "red"], 2),
        (["日本"], ["日本"], 1),
        (["*"], ["*"], 0),
        ([], ["red"], 0),
        (["red"], [], 0),
    ],
)
def test_options_match_by_colour_and_by_words(
    chosen: list[str], wanted: list[str], met: int
) -> None:
    """Quirks of the published rule included: the first colour of the list, in any part of a word,
    stands for the option; a text without letters and digits is like nothing."""
    assert options_met(chosen, wanted) == met


def test_the_first_listed_colour_stands_for_an_option() -> None:
    assert plain_color("midnight blue") == "blue"
    assert plain_color("standard") == "tan"
    assert plain_color("xx-large") == "xx-large"


words = st.text("abc tea 9é", max_size=12)


@given(
    title=words,
    chosen=st.lists(words, max_size=3),
    attributes=st.lists(words, min_size=1, max_size=3),
    options=st.lists(words, max_size=3),
    price=st.floats(0, 100),
)
def test_a_reward_is_between_nothing_and_one(
    title: str, chosen: list[str], attributes: list[str], options: list[str], price: float
) -> None:
    goal = wish(item("Acme tea"), attributes=tuple(attributes), options=tuple(options))
    assert 0.0 <= score(item(title), price, chosen, goal).reward <= 1.0
