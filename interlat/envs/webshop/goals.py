"""Goals: an instruction with its price limit, and what has to be bought for it.

As in the original, a price limit is one of the multiples of ten above the price, and the order of
goals is a fixed shuffle: over the 1,000 products that AgentGym serves, goal k is its session k.
Unlike there, what a product of a price range costs and every limit follow from the seed.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations
from typing import Literal

from interlat.envs.webshop.catalogue import Catalogue, Product, Request

Authors = Literal["auto", "human", "synthetic"]
"""Whose instructions; auto: people's where there are any."""
ORDER_SEED = 233
"""Of the published order of goals."""
LIMITS = [10.0 * tens for tens in range(1, 100)]
NEAREST = 4
"""Limits above a price from which two are drawn; the larger is taken."""
NO_LIMIT = 1_000_000.0


@dataclass(frozen=True)
class Goal:
    """What is asked for. The instruction is all that a shopper gets to see of it."""

    instruction: str
    product: Product
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_limit: float


def price_of(product: Product, seed: int) -> float:
    """What a product costs in dollars: its price, or one within its range."""
    if len(product.prices) == 1:
        return product.prices[0]
    return random.Random(f"{seed} price {product.asin}").uniform(*product.prices)


def make_goals(catalogue: Catalogue, seed: int, authors: Authors = "auto") -> list[Goal]:
    """Every goal, in the published order. seed: of prices and price limits."""
    people = authors == "human" or (authors == "auto" and bool(catalogue.human))
    goals = [
        goal
        for product in catalogue.products.values()
        for goal in (_human if people else _synthetic)(catalogue, product, seed)
    ]
    random.Random(ORDER_SEED).shuffle(goals)
    return goals


def _human(catalogue: Catalogue, product: Product, seed: int) -> Iterator[Goal]:
    for number, request in enumerate(catalogue.human.get(product.asin, ())):
        limit, words = _limit(product, seed, number)
        yield Goal(request.text + words, product, request.attributes, request.options or (), limit)


def _synthetic(catalogue: Catalogue, product: Product, seed: int) -> Iterator[Goal]:
    """A goal for every combination of the product's options, with one price limit."""
    request: Request | None = catalogue.synthetic.get(product.asin)
    if request is None:
        return
    limit, words = _limit(product, seed, 0)
    names = sorted(product.options)
    for values in combinations(*(product.options[name] for name in names)):
        said = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
        text = request.text + (f" with {said}" if said else "") + words
        yield Goal(text, product, request.attributes, values, limit)


def _limit(product: Product, seed: int, number: int) -> tuple[float, str]:
    """A price limit, and how an instruction says it."""
    price = price_of(product, seed)
    near = [limit for limit in LIMITS if limit > price][:NEAREST]
    if len(near) < 2:
        return NO_LIMIT, ""
    limit = max(random.Random(f"{seed} limit {product.asin} {number}").sample(near, 2))
    return limit, f", and price lower than {limit:.2f} dollars"
