"""The shop: pages, what can be clicked on them, and where a click leads.

A shop never changes; where a shopper is, is a ``Place``, a small value that pickles. The pages and
their words are those of the original's text mode: the visible strings, joined by " [SEP] ".
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from interlat.envs.webshop.catalogue import Catalogue, Product, read_catalogue
from interlat.envs.webshop.goals import Authors, Goal, make_goals, price_of
from interlat.envs.webshop.reward import Score, score
from interlat.envs.webshop.search import product_index

PageName = Literal[
    "search", "results", "item", "description", "features", "reviews", "attributes", "done"
]
SEPARATOR = " [SEP] "
SEARCH, BACK, PREVIOUS, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES: tuple[PageName, ...] = ("description", "features", "reviews", "attributes")
"""The last one is shown on request only: it says what the others have to be read for."""
PAGE_SIZE = 10
INSTRUCTION = "Instruction:"
_ACTION = re.compile(r"\s*(search|click)\s*\[(.+)\]", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """Where a shopper is, and what was chosen on the way."""

    page: PageName = "search"
    hits: tuple[str, ...] = ()
    """The asins that the last search found, best first."""
    number: int = 1
    """Of the page of results."""
    asin: str = ""
    chosen: tuple[tuple[str, str], ...] = ()
    """Option name and value, in the order of choosing."""
    score: Score | None = None
    """Of the purchase, once there is one."""


class Available(NamedTuple):
    """What can be done on a page."""

    has_search_bar: bool
    clickables: tuple[str, ...]
    """In lower case, in the order of the page."""


class Shop:
    """Products, their prices and how to find them."""

    def __init__(
        self,
        catalogue: Catalogue,
        seed: int,
        authors: Authors = "auto",
        *,
        attributes_page: bool = False,
    ) -> None:
        """seed: of prices and price limits. attributes_page: offer it, the original does not."""
        self._sub_pages = SUB_PAGES if attributes_page else SUB_PAGES[:-1]
        self.products = catalogue.products
        self.goals = make_goals(catalogue, seed, authors)
        self.prices = {asin: price_of(p, seed) for asin, p in self.products.items()}
        self._asins = tuple(self.products)
        self._index = product_index(self.products.values())

    def find(self, query: str) -> tuple[str, ...]:
        """The asins of the products that a search finds, best first."""
        return tuple(self._asins[position] for position in self._index.search(query.lower()))

    def act(self, place: Place, action: str, goal: Goal) -> Place | None:
        """Where an action leads; None for one that is not possible here.

        A search is possible everywhere until something is bought, as in the original.
        """
        match = _ACTION.match(action)
        if match is None or place.page == "done":
            return None
        verb, value = match[1].lower(), match[2].strip()
        if verb == "search":
            return Place("results", self.find(value)) if value else None
        label = plain(value)
        if label not in map(plain, self.available(place).clickables) or label == plain(SEARCH):
            return None
        return self._click(place, label, goal)

    def available(self, place: Place) -> Available:
        """What can be done at a place."""
        product = self.products.get(place.asin)
        options = [v for values in product.options.values() for v in values] if product else []
        buttons: dict[str, Sequence[str]] = {
            "search": [SEARCH],
            "results": [BACK, *self._turns(place), *self._listed(place)],
            "item": [BACK, PREVIOUS, *self._sub_pages, BUY, *options],
            "done": [],
        }
        clickables = buttons.get(place.page, [BACK, PREVIOUS])
        return Available(place.page == "search", tuple(dict.fromkeys(map(str.lower, clickables))))

    def text(self, place: Place, goal: Goal) -> str:
        """What a shopper sees."""
        if place.page == "search":
            return SEPARATOR.join(["WebShop", INSTRUCTION, goal.instruction, SEARCH])
        if place.page == "done":
            return SEPARATOR.join(self._receipt(place))
        if place.page == "results":
            body = list(self._results(place))
        elif place.page == "item":
            body = [PREVIOUS, *self._item(self.products[place.asin])]
        else:
            body = [PREVIOUS, *_sub_page(self.products[place.asin], place.page)]
        texts = [INSTRUCTION, goal.instruction, BACK, *body]
        return SEPARATOR.join(text.strip() for text in texts)

    def _click(self, place: Place, label: str, goal: Goal) -> Place:
        """Where a click on what is there leads. Buttons go before options of the same name."""
        if label == plain(BACK):
            return Place()
        if label == plain(NEXT) and place.page == "results":
            return replace(place, number=place.number + 1)
        if label == plain(PREVIOUS):
            return _previous(place)
        if place.page == "results":
            asin = next(asin for asin in self._listed(place) if plain(asin) == label)
            return Place("item", place.hits, place.number, asin)
        if label == plain(BUY):
            return self._buy(place, goal)
        for page in self._sub_pages:
            if label == page:
                return replace(place, page=page)
        return _choose(place, self.products[place.asin], label)

    def _buy(self, place: Place, goal: Goal) -> Place:
        values = [value for _, value in place.chosen]
        result = score(self.products[place.asin], self.prices[place.asin], values, goal)
        return replace(place, page="done", score=result)

    def _listed(self, place: Place) -> tuple[str, ...]:
        return place.hits[(place.number - 1) * PAGE_SIZE : place.number * PAGE_SIZE]

    def _turns(self, place: Place) -> list[str]:
        """The buttons that turn the pages of results."""
        more = place.number * PAGE_SIZE < len(place.hits)
        return [PREVIOUS] * (place.number > 1) + [NEXT] * more

    def _results(self, place: Place) -> Iterator[str]:
        yield f"Page {place.number} (Total results: {len(place.hits)})"
        yield from self._turns(place)
        for asin in self._listed(place):
            product = self.products[asin]
            yield from (asin, product.title, product.tag)

    def _item(self, product: Product) -> Iterator[str]:
        for name, values in product.options.items():
            yield from (name, *values)
        yield from (product.title, f"Price: {product.tag}", f"Rating: {product.rating}")
        yield from (*(page.title() for page in self._sub_pages), BUY)

    def _receipt(self, place: Place) -> list[str]:
        assert place.score is not None
        return [
            *("Thank you for shopping with us!", "Purchased", "asin", place.asin),
            *("options", json.dumps(dict(place.chosen), ensure_ascii=False)),
            *("Reward", "Your score (min 0.0, max 1.0)", str(place.score.reward)),
        ]


@lru_cache(maxsize=4)
def open_shop(
    data: Path | None, seed: int, authors: Authors = "auto", *, attributes_page: bool = False
) -> Shop:
    """The shop of a catalogue; a process opens it once, however many environments play in it."""
    return Shop(read_catalogue(data), seed, authors, attributes_page=attributes_page)


def plain(label: str) -> str:
    """A label as it is compared: lower case, single spaces."""
    return " ".join(label.lower().split())


def _previous(place: Place) -> Place:
    """Back from a sub-page to its item, from an item to the results, or one page of results."""
    if place.page == "results":
        return replace(place, number=place.number - 1)
    if place.page == "item":
        return Place("results", place.hits, place.number)
    return replace(place, page="item")


def _choose(place: Place, product: Product, label: str) -> Place:
    """Choose an option; of two options with that value the last one, as in the original."""
    name, value = [
        (name, value)
        for name, values in product.options.items()
        for value in values
        if plain(value) == label
    ][-1]
    kept = tuple(pair for pair in place.chosen if pair[0] != name)
    return replace(place, chosen=(*kept, (name, value)))


def _sub_page(product: Product, page: PageName) -> Iterator[str]:
    if page == "description":
        yield product.description
    elif page == "features":
        yield from product.features or ("No Features",)
    elif page == "attributes":
        yield from (*product.attributes, product.category, product.query, " › ".join(product.path))
    elif product.reviews:
        for review in product.reviews:
            yield from (f'"{review.title}"', review.score, review.body)
    else:
        yield "No reviews found"
