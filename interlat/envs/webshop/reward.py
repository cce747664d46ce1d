"""The published reward of a purchase.

    reward = type x (attributes met + options met + [price <= limit]) / (attributes + options + 1)

type is 1 for a thing of the right sort, judged by query, category path and title; 0.5, 0.1 or 0 for
others. Source: WebShop (arXiv 2207.01206), section 3 and appendix, and its code's thresholds.

One thing differs. The original takes the nouns of a title from a statistical tagger (spaCy), which
is a model to download; here every word counts that is not a number, a single letter or a function
word. Adjectives and verbs therefore count as well: the share of a title's words that the bought
title has can come out some hundredths lower or higher, which matters only near 0.1 and 0.2, only
for products of another query and category path, or with titles that have next to nothing in common.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from bm25s.stopwords import STOPWORDS_EN_PLUS
from rapidfuzz import fuzz, utils

from interlat.envs.webshop.catalogue import Product
from interlat.envs.webshop.goals import Goal

ALIKE = 85
"""Two texts are the same attribute or option above this token-set ratio, in percent."""
SAME_LEVELS = 2
"""Levels that two category paths share when they are of one sort."""
SIMILAR, UNLIKE = 0.2, 0.1
"""Title scores above which titles are of one sort, and below which they are of different ones."""
_COLORS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown "
    "burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee "
    "cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia "
    "gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender "
    "lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor "
    "mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red "
    "rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan "
    "taupe teal tiger turquoise violet walnut wheat white wine yellow"
)
COLORS = tuple(_COLORS.split())
"""The published list; the first that is part of an option's text stands for it."""
_DROPPED = dict.fromkeys(range(128, 256))
"""The upper half of Latin-1."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_FUNCTION_WORDS = frozenset(STOPWORDS_EN_PLUS)


class Score(NamedTuple):
    """A purchase judged."""

    reward: float
    type: float
    attributes: int
    """How many of the goal's attributes the product has."""
    options: int
    """How many of the goal's options were chosen."""
    affordable: bool


def score(bought: Product, price: float, chosen: Iterable[str], goal: Goal) -> Score:
    """Judge a purchase. chosen: the values of the options that were clicked."""
    kind = type_score(bought, goal.product)
    attributes = sum(_has(bought, attribute) for attribute in goal.attributes)
    options = options_met(chosen, goal.options)
    affordable = price <= goal.price_limit
    wanted = len(goal.attributes) + len(goal.options) + 1
    reward = kind * (attributes + options + affordable) / wanted
    return Score(reward, kind, attributes, options, affordable)


def type_score(bought: Product, wanted: Product) -> float:
    """How far the bought product is of the wanted sort: 1, 0.5, 0.1 or 0."""
    title = title_score(bought.title, wanted.title)
    if title == 0.0:
        return 0.0
    if title < UNLIKE:
        return 0.1
    same_path = len(set(bought.path) & set(wanted.path)) >= SAME_LEVELS
    return 1.0 if bought.query == wanted.query or same_path or title > SIMILAR else 0.5


def title_score(bought: str, wanted: str) -> float:
    """The share of the wanted title's words that the bought title has; 0.2 where it has none."""
    words = content_words(wanted)
    if not words:
        return SIMILAR
    return len(set(words) & set(content_words(bought))) / len(words)


def content_words(title: str) -> list[str]:
    """The words of a title, in lower case, that say what a thing is."""
    words = (word.lower() for word in _WORD.findall(title))
    return [word for word in words if word not in _FUNCTION_WORDS]


def options_met(chosen: Iterable[str], wanted: Iterable[str]) -> int:
    """How many of the wanted option values one of the chosen ones is like."""
    have = [plain_color(value) for value in chosen]
    return sum(any(alike(value, plain_color(want)) for value in have) for want in wanted)


def plain_color(option: str) -> str:
    """The first listed colour that is part of an option's text, or that text."""
    return next((color for color in COLORS if color in option), option)


def alike(one: str, other: str) -> bool:
    """Whether two texts have much the same set of words."""
    return round(fuzz.token_set_ratio(_normal(one), _normal(other))) > ALIKE


def _has(product: Product, attribute: str) -> bool:
    if any(alike(own, attribute) for own in product.attributes):
        return True
    texts = (product.title, " ".join(product.features), product.description)
    return any(attribute in text.lower() for text in texts)


def _normal(text: str) -> str:
    """Lower case, a space for all but letters and digits, as in the original's thefuzz."""
    return utils.default_process(text.translate(_DROPPED))
