import pytest
from envs.webshop.goods import item

from interlat.envs.webshop.search import HITS, SearchIndex, search_text
from interlat.envs.webshop.shop import Shop

TEXTS = ["red running shoes", "blue running shoe for men", "wooden table", "the shoes of men"]


def test_the_text_with_the_rarer_words_comes_first() -> None:
    index = SearchIndex(TEXTS)
    assert index.search("wooden shoes")[0] == 2
    assert index.search("blue shoes for men") == [1, 3, 0]


def test_words_are_stemmed_and_function_words_are_not_looked_for() -> None:
    index = SearchIndex(TEXTS)
    assert set(index.search("SHOE")) == {0, 1, 3}
    assert index.search("the of") == []


def test_only_what_has_a_word_of_the_query_is_found() -> None:
    index = SearchIndex(TEXTS)
    assert index.search("table") == [2]
    assert index.search("umbrella") == []
    assert index.search("") == []


def test_equal_texts_keep_their_order_and_there_is_a_limit() -> None:
    assert SearchIndex(["lamp oil"] * 80 + ["rug"]).search("lamp") == list(range(HITS))


def test_a_product_is_found_by_title_description_first_feature_and_options() -> None:
    product = item(
        description="For the road.",
        features=("Rubber sole", "Hidden"),
        options={"color": ("grey", "blue"), "size": ("9",)},
    )
    assert search_text(product) == (
        "acme runner walking shoes for the road. rubber sole color: grey, blue, and size: 9"
    )


def test_every_product_is_found_first_by_its_title(shop: Shop) -> None:
    for asin, product in shop.products.items():
        assert shop.find(product.title)[0] == asin


@pytest.mark.parametrize(
    "query", ["红色的鞋子", "\x00\x1b[31m", "a" * 10_000, "shoe " * 2_000, "]]"]
)
def test_any_text_can_be_looked_for(shop: Shop, query: str) -> None:
    assert len(shop.find(query)) <= HITS
