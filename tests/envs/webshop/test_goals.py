import re

import pytest
from envs.webshop.goods import catalogue_of, item, record

from interlat.envs.webshop.catalogue import build_catalogue, read_catalogue
from interlat.envs.webshop.goals import NO_LIMIT, make_goals, price_of
from interlat.envs.webshop.shop import Shop

WISH = {
    "attributes": ["arch support", "rubber sole"],
    "instruction": "Find me shoes with arch support",
    "instruction_attributes": ["arch support"],
}
SAID = {
    "instruction": "i need shoes for my feet.",
    "instruction_attributes": ["arch support"],
    "instruction_options": ["9"],
}


def test_each_combination_of_options_is_a_goal() -> None:
    goals = make_goals(catalogue_of(record(), B000000001=WISH), seed=1)
    assert {goal.options for goal in goals} == {
        ("grey", "9"),
        ("grey", "10"),
        ("red | blue", "9"),
        ("red | blue", "10"),
    }
    [goal] = [goal for goal in goals if goal.options == ("grey", "9")]
    assert re.fullmatch(
        r"Find me shoes with arch support with color: grey, and size: 9, "
        r"and price lower than (50|60|70).00 dollars",
        goal.instruction,
    )
    assert len({goal.price_limit for goal in goals}) == 1


def test_a_product_without_options_or_a_wish_has_one_goal_or_none() -> None:
    plain = record(customization_options="")
    [goal] = make_goals(catalogue_of(plain, B000000001=WISH), seed=1)
    assert goal.instruction.startswith("Find me shoes with arch support, and price lower than")
    assert make_goals(catalogue_of(plain), seed=1) == []


def test_people_s_instructions_go_first_where_there_are_any() -> None:
    catalogue = build_catalogue(
        [record()], {"B000000001": WISH}, {"B000000001": [SAID, SAID]}, "test"
    )
    goals = make_goals(catalogue, seed=1)
    assert [goal.options for goal in goals] == [("9",), ("9",)]
    assert goals[0].instruction.startswith("i need shoes for my feet, and price lower than")
    assert len(make_goals(catalogue, seed=1, authors="synthetic")) == 4


@pytest.mark.parametrize(("price", "limits"), [(35.0, {50, 60, 70}), (965.0, {980, 990})])
def test_a_limit_is_the_larger_of_two_near_tens(price: float, limits: set[int]) -> None:
    catalogue = catalogue_of(record(pricing=[price]), B000000001=WISH)
    seen = {make_goals(catalogue, seed)[0].price_limit for seed in range(40)}
    assert seen == limits


def test_what_is_dearer_than_all_limits_has_none() -> None:
    goals = make_goals(catalogue_of(record(pricing=[985.0]), B000000001=WISH), seed=1)
    assert goals[0].price_limit == NO_LIMIT
    assert "price" not in goals[0].instruction


def test_prices_and_limits_follow_from_the_seed() -> None:
    """The original draws them anew for every instance of the environment."""
    ranged = item(prices=(10.0, 20.0))
    assert price_of(ranged, 1) == price_of(ranged, 1) != price_of(ranged, 2)
    assert 10.0 <= price_of(ranged, 1) <= 20.0
    assert price_of(item(), 1) == 30.0


def test_the_order_is_a_fixed_shuffle(shop: Shop) -> None:
    catalogue = read_catalogue(None)
    again = make_goals(catalogue, seed=8)
    assert [(g.product.asin, g.options) for g in again] == [
        (g.product.asin, g.options) for g in shop.goals
    ]
    assert [g.instruction for g in again] != [g.instruction for g in shop.goals]


def test_the_numbers_of_goals_are_those_that_agentgym_publishes(real_shop: Shop) -> None:
    """Instructions seen under these numbers in public records of AgentGym's WebShop."""
    assert len(real_shop.goals) == 6910
    known = {
        0: 'pillows with printing technology with size: 28" x 28"',
        1: "shorts with high waist, tummy control with color: black, and size: 3x-large",
        490: "throw blankets with fleece throw with color: tortoisegoo9511, and size: 39x49in",
    }
    for number, words in known.items():
        assert words in real_shop.goals[number].instruction
