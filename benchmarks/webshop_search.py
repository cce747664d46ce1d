"""Searches a second in the shop against a plain ranking of everything, with the same results.

    python benchmarks/webshop_search.py [--data FOLDER] [--searches N]

Asks for the words of instructions in both: with interlat's index, and with the textbook loop over
all products that computes the same BM25 from word counts. The best product must be equally good in
both. Prints searches a second and how often the loop's time ours fits into.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click

from interlat.envs.webshop.catalogue import read_catalogue
from interlat.envs.webshop.experts import search_words
from interlat.envs.webshop.goals import make_goals
from interlat.envs.webshop.search import HITS, K1, B, product_index, search_text


class PlainRanking:
    """BM25 in Lucene's form, word by word over every text, best texts sorted out at the end."""

    def __init__(self, texts: list[str], words: Callable[[str], list[str]]) -> None:
        self._words = words
        self._counts = [Counter(words(text)) for text in texts]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = sum(self._lengths) / len(texts)
        self._having = Counter(word for counts in self._counts for word in counts)

    def search(self, query: str) -> list[int]:
        """Positions of the best texts, best first."""
        words = self._words(query)
        scores = [self.score(words, position) for position in range(len(self._counts))]
        best = sorted(range(len(scores)), key=lambda position: -scores[position])[:HITS]
        return [position for position in best if scores[position] > 0]

    def score(self, words: list[str], position: int) -> float:
        """How well a text answers the words."""
        counts = self._counts[position]
        length = K1 * (1 - B + B * self._lengths[position] / self._mean)
        return sum(
            self._rarity(word) * counts[word] / (counts[word] + length)
            for word in words
            if word in counts
        )

    def best(self, query: str, found: list[int]) -> float:
        """The score of the first text found."""
        return self.score(self._words(query), found[0]) if found else 0.0

    def _rarity(self, word: str) -> float:
        having = self._having[word]
        return math.log(1 + (len(self._counts) - having + 0.5) / (having + 0.5))


def timed(search: Callable[[str], list[int]], queries: list[str]) -> tuple[float, list[list[int]]]:
    """Seconds for all the searches, and what they found."""
    start = time.perf_counter()
    found = [search(query) for query in queries]
    return time.perf_counter() - start, found


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="WebShop-format folder")
@click.option("--searches", default=300, show_default=True, help="searches in each")
def main(data: Path | None, searches: int) -> None:
    """Print searches a second of both, and their ratio."""
    catalogue = read_catalogue(data)
    products = list(catalogue.products.values())
    goals = make_goals(catalogue, seed=7)
    queries = [search_words(goals[i * len(goals) // searches]) for i in range(searches)]
    index = product_index(products)
    plain = PlainRanking([search_text(p) for p in products], index.words)
    (ours, found), (loop, same) = timed(index.search, queries), timed(plain.search, queries)
    for query, one, other in zip(queries, found, same, strict=True):
        if not math.isclose(plain.best(query, one), plain.best(query, other), rel_tol=1e-5):
            raise click.ClickException(f"{query!r}: the two rankings differ")
    click.echo(
        f"{len(products)} products: loop {searches / loop:.0f} searches/s, ours "
        f"{searches / ours:.0f} searches/s, ratio {loop / ours:.1f} (n = {searches})"
    )


if __name__ == "__main__":
    main()
