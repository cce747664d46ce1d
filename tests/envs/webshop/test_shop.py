"""Pages and clicks, as the original's text mode has them."""

import pickle

import pytest
from envs.webshop.goods import catalogue_of, record

from interlat.envs.webshop.goals import Goal
from interlat.envs.webshop.shop import Place, Shop

WISH = {
    "attributes": ["arch support"],
    "instruction": "Find me shoes",
    "instruction_attributes": ["arch support"],
}
START = "Instruction: [SEP] {} [SEP] Back to Search [SEP] "


def small_shop(*, count: int = 1, attributes_page: bool = False, **changes: object) -> Shop:
    records = [record(f"B0{i:08d}", **changes) for i in range(count)]
    catalogue = catalogue_of(*records, **{r["asin"]: WISH for r in records})
    return Shop(catalogue, seed=1, attributes_page=attributes_page)


def walk(shop: Shop, *actions: str) -> Place:
    """Do actions that must all be possible."""
    place = Place()
    for action in actions:
        reached = shop.act(place, action, shop.goals[0])
        assert reached is not None, action
        place = reached
    return place


def seen(shop: Shop, *actions: str) -> str:
    goal = shop.goals[0]
    text = shop.text(walk(shop, *actions), goal)
    return text.removeprefix(START.format(goal.instruction))


ITEM = ("search[shoes]", "click[b000000000]")


def test_the_search_page() -> None:
    shop = small_shop()
    assert (
        seen(shop) == f"WebShop [SEP] Instruction: [SEP] {shop.goals[0].instruction} [SEP] Search"
    )
    assert shop.available(Place()) == (True, ("search",))


def test_ten_results_a_page() -> None:
    shop = small_shop(count=23)
    first = seen(shop, "search[shoes]")
    assert first.startswith(
        "Page 1 (Total results: 23) [SEP] Next > [SEP] "
        "B000000000 [SEP] Acme Runner Walking Shoes [SEP] $30.0 [SEP] B000000001 [SEP] "
    )
    assert first.count("Acme") == 10
    second = seen(shop, "search[shoes]", "click[next >]")
    assert second.startswith(
        "Page 2 (Total results: 23) [SEP] < Prev [SEP] Next > [SEP] B000000010"
    )
    third = seen(shop, "search[shoes]", "click[Next >]", "click[Next >]")
    assert third.startswith("Page 3 (Total results: 23) [SEP] < Prev [SEP] B000000020")
    assert third.count("Acme") == 3
    assert seen(shop, "search[shoes]", "click[next >]", "click[< prev]") == first
    assert seen(shop, "search[umbrella]") == "Page 1 (Total results: 0)"


def test_the_item_page() -> None:
    shop = small_shop()
    assert seen(shop, *ITEM) == (
        "< Prev [SEP] color [SEP] grey [SEP] red | blue [SEP] size [SEP] 9 [SEP] 10 [SEP] "
        "Acme Runner Walking Shoes [SEP] Price: $30.0 [SEP] Rating: N.A. [SEP] "
        "Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    assert shop.available(walk(shop, *ITEM)) == (
        False,
        (
            *("back to search", "< prev", "description", "features", "reviews", "buy now"),
            *("grey", "red | blue", "9", "10"),
        ),
    )


def test_the_sub_pages() -> None:
    reviews = [{"title": "Good", "score": 4, "body": "Yes."}]
    shop = small_shop(Reviews=reviews, attributes_page=True)
    assert seen(shop, *ITEM, "click[description]") == "< Prev [SEP] Shoes for the road."
    assert (
        seen(shop, *ITEM, "click[features]") == "< Prev [SEP] Rubber sole [SEP] Arch support inside"
    )
    assert seen(shop, *ITEM, "click[reviews]") == '< Prev [SEP] "Good" [SEP] 4 [SEP] Yes.'
    assert seen(shop, *ITEM, "click[attributes]") == (
        "< Prev [SEP] arch support [SEP] fashion [SEP] walking shoes [SEP] Clothing › Men › Shoes"
    )
    bare = small_shop(Reviews=[], small_description=[])
    assert seen(bare, *ITEM, "click[reviews]") == "< Prev [SEP] No reviews found"
    assert seen(bare, *ITEM, "click[features]") == "< Prev [SEP] No Features"
    assert bare.act(walk(bare, *ITEM), "click[attributes]", bare.goals[0]) is None


def test_going_back_goes_one_page_up_and_forgets_options_on_leaving_an_item() -> None:
    shop = small_shop(count=12)
    place = walk(shop, "search[shoes]", "click[next >]", "click[b000000010]", "click[grey]")
    below = walk(
        shop,
        "search[shoes]",
        "click[next >]",
        "click[b000000010]",
        "click[grey]",
        "click[features]",
    )
    goal = shop.goals[0]
    assert shop.act(below, "click[< prev]", goal) == place
    results = shop.act(place, "click[< prev]", goal)
    assert results == walk(shop, "search[shoes]", "click[next >]")
    assert shop.act(place, "click[back to search]", goal) == Place()


def test_one_value_of_an_option_is_chosen_at_a_time() -> None:
    shop = small_shop()
    place = walk(shop, *ITEM, "click[grey]", "click[9]", "click[red | blue]")
    assert place.chosen == (("size", "9"), ("color", "red | blue"))


def test_of_one_value_under_two_names_the_last_counts_and_buttons_go_first() -> None:
    options = {
        "Frame": [{"value": "black"}, {"value": "features"}],
        "Seat": [{"value": "black"}],
    }
    shop = small_shop(customization_options=options)
    assert walk(shop, *ITEM, "click[black]").chosen == (("seat", "black"),)
    assert walk(shop, *ITEM, "click[features]").page == "features"


def test_a_purchase_ends_with_a_receipt() -> None:
    shop = small_shop()
    goal: Goal = shop.goals[0]
    color, size = goal.options
    place = walk(shop, *ITEM, f"click[{color}]", f"click[{size}]", "click[Buy Now]")
    assert place.score is not None
    assert place.score.reward == 1.0
    text = shop.text(place, goal)
    assert text.startswith("Thank you for shopping with us! [SEP] Purchased [SEP] asin [SEP] B0000")
    assert text.endswith("Reward [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0")
    assert shop.available(place) == (False, ())
    assert shop.act(place, "search[shoes]", goal) is None


@pytest.mark.parametrize("action", ["SEARCH[Shoes]", " search [ shoes ] ", "Search[shoes] please"])
def test_case_and_space_do_not_matter(action: str) -> None:
    shop = small_shop()
    assert walk(shop, action) == walk(shop, "search[shoes]")
    assert walk(shop, action, "CLICK[ B000000000 ]", "click[RED |  BLUE]").chosen


def test_a_search_is_possible_on_every_page() -> None:
    shop = small_shop()
    assert walk(shop, *ITEM, "click[features]", "search[shoes]") == walk(shop, "search[shoes]")


@pytest.mark.parametrize(
    "action",
    [
        *("", " ", "search", "search[]", "search[ ]", "click[]", "click[search]", "buy now"),
        *("click[next >]", "click[b000000000]", "think[shoes]", "购买[鞋子]", "click[鞋子]"),
        *("click[" + "x" * 10_000 + "]", "\x00\x07\x1b", "[]", "]click[", "click[buy now"),
    ],
)
def test_what_is_not_possible_leads_nowhere(action: str) -> None:
    shop = small_shop()
    assert shop.act(Place(), action, shop.goals[0]) is None


def test_a_place_is_a_small_value() -> None:
    shop = small_shop(count=60)
    place = walk(shop, "search[shoes]", "click[next >]", "click[b000000010]", "click[grey]")
    packed = pickle.dumps(place)
    assert pickle.loads(packed) == place
    assert len(packed) < 2_000
