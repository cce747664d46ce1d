"""The catalogue that comes with interlat, grown from stock.json into WebShop-format records.

stock.json lists kinds of things with their styles, attributes and options; a product is a maker, a
style and a part of what its kind can be. Titles say little: which attributes a product has stands
on its features page, so that reading pages, or knowing the product, pays. Always the same bytes.
"""

import json
import random
from importlib.resources import files
from typing import Any

ATTRIBUTES = 3
"""Attributes of a product; its instruction asks for all but one."""
OPTION_VALUES = 3
"""Values of each option that a product comes in, at most."""
RANGE_PRICED = 0.1
"""Share of the products whose price is a range."""
REVIEWED = 0.5
"""Share of the products with reviews."""


def stock() -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The records of items_shuffle.json and of items_ins_v2.json."""
    content = json.loads((files("interlat.envs.webshop") / "stock.json").read_text("utf-8"))
    rng = random.Random("interlat webshop stock")
    products: list[dict[str, Any]] = []
    instructions: dict[str, dict[str, Any]] = {}
    for kind in content["kinds"]:
        for style in kind["styles"]:
            asin = f"S{100000001 + len(products)}"
            has = rng.sample(kind["attributes"], ATTRIBUTES)
            products.append(_product(content, kind, style, has, asin, rng))
            instructions[asin] = _instruction(content, kind, has)
    order = rng.sample(range(len(products)), len(products))
    return [products[i] for i in order], instructions


def _product(
    content: dict[str, Any],
    kind: dict[str, Any],
    style: str,
    has: list[str],
    asin: str,
    rng: random.Random,
) -> dict[str, Any]:
    title = f"{rng.choice(content['makers'])} {style} {kind['noun']}"
    sentences = [content["attributes"][name][1] for name in has]
    low, high = kind["price"]
    price = round(rng.uniform(low, high)) - 0.01
    ranged = rng.random() < RANGE_PRICED
    return {
        "asin": asin,
        "name": title,
        "category": kind["category"],
        "query": kind["query"],
        "product_category": kind["path"].replace(" > ", " › "),
        "pricing": f"${price:.2f}" + (f"${1.4 * price:.2f}" if ranged else ""),
        "full_description": f"{kind['about']}. The {title} is one of our {kind['query']}.",
        "small_description": [f"{kind['about']}.", *sentences],
        "customization_options": {
            name.title(): [{"value": value} for value in _some(values, rng)]
            for name, values in kind["options"].items()
        },
        "Reviews": [
            {"title": title, "score": score, "body": body}
            for title, score, body in rng.sample(content["reviews"], 2)
        ]
        if rng.random() < REVIEWED
        else [],
    }


def _some(values: list[str], rng: random.Random) -> list[str]:
    """A few of the values, in their order."""
    chosen = rng.sample(values, min(OPTION_VALUES, len(values)))
    return [value for value in values if value in chosen]


def _instruction(content: dict[str, Any], kind: dict[str, Any], has: list[str]) -> dict[str, Any]:
    """The attributes, and an instruction that asks for all but the last of them."""
    asked = has[:-1]
    by_form: dict[str, list[str]] = {"plain": [], "with": [], "for": []}
    for name in asked:
        by_form[content["attributes"][name][0]].append(name)
    before = f"{', '.join(by_form['plain'])} " if by_form["plain"] else ""
    after = "".join(
        f" {word} {', '.join(by_form[word])}" for word in ("with", "for") if by_form[word]
    )
    return {
        "attributes": has,
        "instruction": f"Find me {before}{kind['query']}{after}",
        "instruction_attributes": asked,
    }
