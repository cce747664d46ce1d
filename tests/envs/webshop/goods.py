"""Small products, goals and catalogues to make tests of."""

from typing import Any

from interlat.envs.webshop.catalogue import Catalogue, Product, build_catalogue
from interlat.envs.webshop.goals import Goal


def record(asin: str = "B000000001", **changes: Any) -> dict[str, Any]:
    """A product record in the WebShop format."""
    return {
        "asin": asin,
        "name": "Acme Runner Walking Shoes",
        "category": "fashion",
        "query": "Walking Shoes ",
        "product_category": "Clothing › Men › Shoes",
        "pricing": "$30.00",
        "full_description": "Shoes for the road.",
        "small_description": ["Rubber sole", "Arch support inside"],
        "customization_options": {
            "Color": [{"value": "Grey"}, {"value": "Red/Blue"}],
            "Size": [{"value": "9"}, {"value": "10"}],
        },
        **changes,
    }


def item(title: str = "Acme Runner Walking Shoes", **changes: Any) -> Product:
    """A product as the shop has it."""
    values: dict[str, Any] = {
        "asin": "B000000001",
        "title": title,
        "category": "fashion",
        "query": "walking shoes",
        "path": ("Clothing", "Men", "Shoes"),
        "description": "",
        "features": (),
        "options": {},
        "attributes": ("tea tree", "essential oils"),
        "prices": (30.0,),
        "rating": "N.A.",
        "reviews": (),
    }
    return Product(**{**values, **changes})


def wish(product: Product | None = None, **changes: Any) -> Goal:
    """A goal that asks for two attributes, two options and at most 40 dollars."""
    values: dict[str, Any] = {
        "instruction": "Find me walking shoes",
        "product": product or item(),
        "attributes": ("tea tree", "essential oils"),
        "options": ("grey", "xl"),
        "price_limit": 40.0,
    }
    return Goal(**{**values, **changes})


def catalogue_of(*records: Any, **instructions: Any) -> Catalogue:
    """A catalogue of records; instructions: by asin."""
    return build_catalogue(records, instructions, {}, "test")
