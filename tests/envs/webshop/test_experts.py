import pytest
from envs.webshop.goods import record

from interlat.envs.webshop.catalogue import build_catalogue
from interlat.envs.webshop.experts import knowledge_text, plan_text, play, search_words
from interlat.envs.webshop.shop import Shop


def test_the_right_purchase_of_every_goal_is_worth_one(shop: Shop) -> None:
    for goal in shop.goals:
        assert play(shop, goal, informed=True, step_limit=5).reward == 1.0


@pytest.mark.slow
def test_the_right_purchase_of_every_real_goal_is_worth_one(real_shop: Shop) -> None:
    assert len(real_shop.goals) == 6910
    for goal in real_shop.goals:
        assert play(real_shop, goal, informed=True, step_limit=8).reward == 1.0


def test_the_searching_expert_reads_before_it_buys(shop: Shop) -> None:
    plays = [play(shop, goal, informed=False, step_limit=12) for goal in shop.goals[:200]]
    assert 0.4 < sum(p.reward == 1.0 for p in plays) / len(plays) < 0.8
    for made in plays:
        if made.reward:
            assert made.actions[0].startswith("search[")
            assert "click[features]" in made.actions
            assert made.actions[-1] == "click[buy now]"


def test_options_that_are_not_offered_in_these_words_are_taken_as_near_as_there_are() -> None:
    said = {
        "instruction": "i need shoes",
        "instruction_attributes": ["arch support"],
        "instruction_options": ["Red / Blue", "size seventy"],
    }
    catalogue = build_catalogue([record()], {}, {"B000000001": [said]}, "test")
    shop = Shop(catalogue, seed=1)
    made = play(shop, shop.goals[0], informed=True, step_limit=9)
    assert made.actions[2:] == ("click[red | blue]", "click[buy now]")
    assert made.reward == pytest.approx(3 / 4)


def test_a_play_stops_at_the_step_limit(shop: Shop) -> None:
    made = play(shop, shop.goals[0], informed=False, step_limit=3)
    assert (len(made.actions), len(made.observations), made.reward) == (3, 4, 0.0)


def test_the_informed_plan_names_the_product_and_the_other_gives_nothing_away(shop: Shop) -> None:
    goal = shop.goals[0]
    plan = plan_text(goal, informed=True)
    title, asin = goal.product.title.lower(), goal.product.asin.lower()
    choices = " , ".join(f"choose [{value}]" for value in goal.options)
    assert plan == f"search [{title}] , open [{asin}] , {choices} , buy it"
    assert knowledge_text(goal) == f"the product is {title} , id {asin}"
    assert len({plan_text(goal, informed=False) for goal in shop.goals[:50]}) == 1


def test_a_search_leaves_out_the_beginning_and_the_price(shop: Shop) -> None:
    words = search_words(shop.goals[0])
    assert words in shop.goals[0].instruction.lower()
    assert "find me" not in words
    assert "dollars" not in words
