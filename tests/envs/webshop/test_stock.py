import json

from interlat.envs.webshop.catalogue import build_catalogue
from interlat.envs.webshop.shop import Shop
from interlat.envs.webshop.stock import stock


def test_the_catalogue_is_large_enough_and_wholly_readable(shop: Shop) -> None:
    catalogue = build_catalogue(*stock(), {}, "stock")
    assert catalogue.left_out == ()
    assert len(catalogue.products) == 288
    assert len(shop.goals) == 2592
    for product in catalogue.products.values():
        assert len(product.options) == 2
        assert len(product.attributes) == 3
        assert product.description
    assert sum(bool(product.reviews) for product in catalogue.products.values()) > 100


def test_it_is_the_same_every_time() -> None:
    assert json.dumps(stock()) == json.dumps(stock())


def test_every_attribute_that_is_asked_for_can_be_read_among_the_features(shop: Shop) -> None:
    for goal in shop.goals:
        features = " ".join(goal.product.features).lower()
        assert all(attribute in features for attribute in goal.attributes)
