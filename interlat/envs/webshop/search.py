"""Full-text search over products by BM25.

As in the original, a product is its title, description, first feature and options; words are
stemmed (Porter) and weighed by Lucene's form of BM25 with k1 = 0.9 and b = 0.4. Ties keep the order
of the catalogue. Lucene's own tokenizer differs in details, so that ranks are near, not equal.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from threading import Lock

import bm25s
import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from interlat.envs.webshop.catalogue import Product

HITS = 50
"""Products that a search finds, at most."""
K1, B = 0.9, 0.4
_WORD = re.compile(r"\w+")
_FUNCTION_WORDS = frozenset(STOPWORDS_EN)
_CACHED_STEMS = 100_000


class SearchIndex:
    """An index over texts, by their position."""

    def __init__(self, texts: Sequence[str]) -> None:
        # It sets its own logger to DEBUG when it is imported.
        logging.getLogger("bm25s").setLevel(logging.WARNING)
        self._stemmer = Stemmer.Stemmer("porter", _CACHED_STEMS)
        self._one_at_a_time = Lock()
        self._index = bm25s.BM25(k1=K1, b=B, method="lucene")
        self._index.index([self.words(text) for text in texts], show_progress=False)

    def search(self, query: str, limit: int = HITS) -> list[int]:
        """Positions of the best texts that have a word of the query, best first."""
        known = self._index.get_tokens_ids(self.words(query))
        if not known:
            return []
        scores = self._index.get_scores_from_ids(known)
        best = np.argsort(-scores, kind="stable")[:limit]
        return [int(position) for position in best if scores[position] > 0]

    def words(self, text: str) -> list[str]:
        """The words of a text as they are indexed: stemmed, without function words."""
        words = [word for word in _WORD.findall(text.lower()) if word not in _FUNCTION_WORDS]
        with self._one_at_a_time:  # a stemmer has a cache that threads may not share
            stems: list[str] = self._stemmer.stemWords(words)
        return stems


def search_text(product: Product) -> str:
    """What a product is found by."""
    options = ", and ".join(f"{name}: {', '.join(v)}" for name, v in product.options.items())
    parts = (product.title, product.description, *product.features[:1], options)
    return " ".join(parts).lower()


def product_index(products: Iterable[Product]) -> SearchIndex:
    """The index of a catalogue."""
    return SearchIndex([search_text(product) for product in products])
