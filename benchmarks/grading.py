"""Grading 5,000 answers: interlat's grader against math-verify alone, and how often each is right.

python benchmarks/grading.py [--items 5000] [--workers 2] [--baseline_items 1000]

The items are distinct and of known truth: numbers, fractions, percentages, roots, polynomials,
tuples, intervals, sets, matrices, words. Baseline is math-verify's parse and verify of the same
replies in one process, at its own time limits, on a sample of the items. Then both grade the table
of the grader's test, which holds answers written to be awkward.
"""

import logging
import random
import runpy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple

import click

from interlat.questions.grading import grade

TABLE = Path(__file__).parent.parent / "tests" / "questions" / "pairs.py"


class Item(NamedTuple):
    """A prediction, the right answer, and whether it is one."""

    prediction: str
    gold: str
    right: bool


def integer(rng: random.Random) -> tuple[str, str]:
    """A right answer, and the same written in another way."""
    number = rng.randint(-99999, 99999)
    return str(number), rng.choice([f"{number}.0", f"x={number}", f"{number:,}"])


def decimal(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    number = rng.randint(1, 9999)
    return f"{number / 100:.2f}", rf"\frac{{{number}}}{{100}}"


def fraction(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    a, b, k = rng.randint(1, 99), rng.randint(2, 99), rng.randint(2, 5)
    return rf"\frac{{{a}}}{{{b}}}", rng.choice([f"{a}/{b}", rf"\dfrac{{{k * a}}}{{{k * b}}}"])


def percentage(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    number = rng.randint(1, 999)
    return rf"{number}\%", rng.choice([f"{number}%", str(number)])


def root(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    a, b = rng.randint(2, 40), rng.choice([2, 3, 5, 7, 11, 13])
    return rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}"


def polynomial(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    a, b = rng.randint(1, 40), rng.randint(1, 40)
    return f"(x+{a})(x-{b})", f"x^2+{a - b}x-{a * b}".replace("+-", "-")


def pair(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    a, b = rng.randint(-50, 50), rng.randint(-50, 50)
    return f"({a},{b})", rf"\left({a}.0, {b}\right)"


def interval(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    a = rng.randint(-500, 500)
    return rf"(-\infty,{a}]", rf"x\le {a}"


def numbers(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    a, b, c = rng.sample(range(-99, 99), 3)
    return rf"\{{{a},{b},{c}\}}", rf"\{{{c}, {a}, {b}\}}"


def matrix(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    a, b, c, d = (rng.randint(-20, 20) for _ in range(4))
    inner = rf"{a} & {b} \\ {c} & {d}"
    return tuple(rf"\begin{{{kind}}}{inner}\end{{{kind}}}" for kind in ("pmatrix", "bmatrix"))


def words(rng: random.Random) -> tuple[str, str]:
    """As ``integer``."""
    text = "".join(rng.choices("abcdefghijklmnop", k=6))
    return rf"\text{{{text}}}", text


FORMS: tuple[Callable[[random.Random], tuple[str, str]], ...] = (
    *(integer, integer, decimal, fraction, fraction, percentage, root),
    *(polynomial, pair, interval, numbers, matrix, words),
)


def draw(count: int, rng: random.Random) -> list[Item]:
    """Distinct items: half are right, most others wrong ones of the same form.

    One in a thousand is made to be computed for ever.
    """
    items: dict[tuple[str, str], Item] = {}
    while len(items) < count:
        form = rng.choice(FORMS)
        gold, same = form(rng)
        other, other_same = form(rng)
        chance = rng.random()
        if chance < 0.5:
            item = Item(same, gold, True)
        elif chance < 0.999 and other != gold:
            item = Item(other_same, gold, False)
        else:
            item = Item("(" * rng.randint(1, 400) + "9^{9^{9}}" * rng.randint(1, 3), gold, False)
        items[item.prediction, item.gold] = item
    return list(items.values())


def table() -> Iterator[Item]:
    """The awkward answers of the grader's test."""
    for gold, right, wrong in runpy.run_path(str(TABLE))["TABLE"]:
        for expected, predictions in ((True, right), (False, wrong)):
            yield from (Item(prediction, gold, expected) for prediction in predictions)


def with_interlat(items: Sequence[Item], workers: int) -> list[bool]:
    """Our verdicts."""
    pairs = [(boxed(item.prediction), boxed(item.gold)) for item in items]
    return [verdict.correct for verdict in grade(pairs, workers=workers)]


def with_math_verify(items: Sequence[Item]) -> list[bool]:
    """Verdicts of math-verify as its documentation uses it."""
    from math_verify import parse, verify

    return [bool(verify(parse(boxed(item.gold)), parse(boxed(item.prediction)))) for item in items]


def boxed(answer: str) -> str:
    """A reply that ends in an answer."""
    return rf"Therefore $\boxed{{{answer}}}$."


def timed(work: Callable[[], list[bool]], items: Sequence[Item]) -> tuple[float, float]:
    """Seconds that grading took, and the share of items that it got right."""
    start = time.perf_counter()
    verdicts = work()
    seconds = time.perf_counter() - start
    agreed = [said == item.right for said, item in zip(verdicts, items, strict=True)]
    return seconds, sum(agreed) / len(items)


@click.command()
@click.option("--items", "count", default=5000, show_default=True, help="answers to grade")
@click.option("--baseline_items", default=1000, show_default=True, help="of them, for math-verify")
@click.option("--workers", default=2, show_default=True, help="our processes")
@click.option("--seed", default=0, show_default=True)
def main(count: int, baseline_items: int, workers: int, seed: int) -> None:
    """Print seconds, items a second, their ratio, and agreement with the truth."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    items = draw(count, random.Random(seed))
    some = random.Random(seed).sample(items, min(baseline_items, count))
    with_math_verify(some[:1])  # pays for the imports
    ours, our_share = timed(lambda: with_interlat(items, workers), items)
    used = getrusage(RUSAGE_CHILDREN)
    theirs, their_share = timed(lambda: with_math_verify(some), some)
    ratio = (len(items) / ours) / (len(some) / theirs)
    click.echo(
        f"interlat, {workers} processes: {ours:.1f} s for {len(items)} items, "
        f"{len(items) / ours:.0f}/s, agreement {our_share:.4f}; "
        f"{used.ru_utime + used.ru_stime:.1f} s of CPU time\n"
        f"math-verify, 1 process: {theirs:.1f} s for {len(some)} items, "
        f"{len(some) / theirs:.0f}/s, agreement {their_share:.4f}\n"
        f"ratio of items a second: {ratio:.1f} (imports of our processes included)"
    )
    awkward = list(table())
    for name, verdicts in (
        ("interlat", with_interlat(awkward, workers)),
        ("math-verify", with_math_verify(awkward)),
    ):
        agreed = Counter(said == item.right for said, item in zip(verdicts, awkward, strict=True))
        click.echo(f"table of {len(awkward)}: {name} agrees on {agreed[True]}")


if __name__ == "__main__":
    main()
