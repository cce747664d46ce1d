"""The two experts that write the demonstrations, and the words of plans and knowledge.

Both act through the shop's own pages. The informed one knows the product and goes straight to it.
The searching one has read the instruction only: it searches for its words, opens what is found in
order, goes back where an option is not offered, reads the features elsewhere, and buys the first
product that has all that was asked for. Prices above the limit it passes by.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from interlat.envs.webshop.catalogue import Product
from interlat.envs.webshop.goals import Goal
from interlat.envs.webshop.reward import alike
from interlat.envs.webshop.shop import BUY, NEXT, PAGE_SIZE, PREVIOUS, Place, Shop

_BEGINNING = re.compile(r"^find me ", re.IGNORECASE)
_PRICE = re.compile(r", and price lower than [\d.]+ dollars$")


class Play(NamedTuple):
    """A recorded episode; ``observations`` has one more than ``actions``."""

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    reward: float


def play(shop: Shop, goal: Goal, *, informed: bool, step_limit: int) -> Play:
    """Let an expert act until it has bought something, knows no further, or is out of steps."""
    place = Place()
    observations, actions = [shop.text(place, goal)], list[str]()
    for action in (informed_actions if informed else searching_actions)(shop, goal):
        if len(actions) == step_limit:
            break
        reached = shop.act(place, action, goal)
        assert reached is not None, f"{action} is not possible"
        place = reached
        observations.append(shop.text(place, goal))
        actions.append(action)
    reward = place.score.reward if place.score is not None else 0.0
    return Play(tuple(observations), tuple(actions), reward)


def informed_actions(shop: Shop, goal: Goal) -> Iterator[str]:
    """Search for the product's title, open it, choose its options, buy it.

    Ends early where the search does not find it.
    """
    query = _searchable(goal.product.title)
    hits = shop.find(query)
    if goal.product.asin not in hits:
        return
    yield f"search[{query}]"
    for _ in range(hits.index(goal.product.asin) // PAGE_SIZE):
        yield _click(NEXT)
    yield _click(goal.product.asin)
    yield from _purchase(goal.product, goal.options)


def searching_actions(shop: Shop, goal: Goal) -> Iterator[str]:
    """Open what the instruction's words find, one after the other, until one fits."""
    query = search_words(goal)
    yield f"search[{query}]"
    for rank, asin in enumerate(shop.find(query)):
        if rank and rank % PAGE_SIZE == 0:
            yield _click(NEXT)
        product = shop.products[asin]
        if product.prices[0] > goal.price_limit:
            continue
        yield _click(asin)
        if all(_offered(product, wanted) for wanted in goal.options):
            yield _click("features")
            if _says(product, goal.attributes):
                yield _click(PREVIOUS)
                yield from _purchase(product, goal.options)
                return
            yield _click(PREVIOUS)
        yield _click(PREVIOUS)


def search_words(goal: Goal) -> str:
    """An instruction as a search: without its beginning and its price limit."""
    return _searchable(_PRICE.sub("", _BEGINNING.sub("", goal.instruction)))


def knowledge_text(goal: Goal) -> str:
    """What the informed sender knows: the product's title and id."""
    return f"the product is {goal.product.title.lower()} , id {goal.product.asin.lower()}"


def plan_text(goal: Goal, *, informed: bool) -> str:
    """The plan in words; an uninformed one gives nothing away."""
    if not informed:
        return "search for it , open what fits , read its features , choose the options , buy it"
    steps = [
        f"search [{_searchable(goal.product.title)}]",
        f"open [{goal.product.asin.lower()}]",
        *(f"choose [{value}]" for value in goal.options),
    ]
    return " , ".join([*steps, "buy it"])


def _purchase(product: Product, options: Sequence[str]) -> Iterator[str]:
    for wanted in options:
        value = _offered(product, wanted)
        if value is not None:
            yield _click(value)
    yield _click(BUY)


def _offered(product: Product, wanted: str) -> str | None:
    """The product's option value that is asked for, in these words or nearly these."""
    values = [value for values in product.options.values() for value in values]
    near = (value for value in values if alike(value, wanted))
    return wanted if wanted in values else next(near, None)


def _click(label: str) -> str:
    return f"click[{label.lower()}]"


def _searchable(text: str) -> str:
    """A text without the brackets that an action is written with, in lower case."""
    return " ".join(re.sub(r"[\[\]]", " ", text).lower().split())


def _says(product: Product, attributes: Sequence[str]) -> bool:
    """Whether title and features mention each attribute, in these words or nearly these."""
    texts = (product.title, *product.features)
    return all(
        any(name in text.lower() or alike(text, name) for text in texts) for name in attributes
    )
