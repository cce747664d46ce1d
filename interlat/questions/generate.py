"""Problems of our own over MATH's seven subjects and five levels, for models of any smallness.

A shop has coins x = 3 ; y = 7 ; z = 2. From x the fesk is made by these steps in some order :
plus z ; times y ; doubled. Find the fesk , last digits only.

The steps are given, their order is not: it stands in a sheet of rules that only the sender sees. A
problem of level n has n + 1 steps; subjects differ in their operations and words. All arithmetic is
on last digits, so that it can be learnt by heart. Problems are made from a seed alone.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import permutations, product
from math import comb, gcd
from typing import NamedTuple

from interlat.config import Subject

LEVELS = range(1, 6)
BASE = 10
"""Numbers are last digits."""
RULES = 3
"""Rules on a sheet: the problem's own and others."""
UNSEEN_SHARE = 0.1
"""Patterns of steps kept from training for each kind of unseen split, of those of a level."""
_QUANTITIES = ("x", "y", "z")
_OPERANDS = _QUANTITIES[1:]
# fmt: off
_NAMES = (
    "blick", "dorn", "fesk", "gant", "hulm", "jask", "kelv", "lorp", "mund", "nerv", "pilk", "quon",
    "rask", "sulb", "tunk", "vorn", "wesk", "yold", "zamp", "brel", "crum", "drist", "flon", "grib",
)
# fmt: on
_COMMUTING = ({"plus", "minus"}, {"times", "doubled"}, {"squared", "cubed"}, {"cubed", "mirrored"})
"""Operations whose order among themselves never makes a difference."""


class Operation(NamedTuple):
    """What a step does with the number so far and, where it names one, a quantity."""

    written: str
    """How the worked solution writes it, of number {v} and quantity {w}."""
    compute: Callable[[int, int], int]

    @property
    def takes_quantity(self) -> bool:
        """Whether a step of it names a quantity."""
        return "{w}" in self.written


OPERATIONS: Mapping[str, Operation] = {
    "plus": Operation("{v} + {w}", lambda v, w: v + w),
    "minus": Operation("{v} - {w}", lambda v, w: v - w),
    "times": Operation("{v} * {w}", lambda v, w: v * w),
    "gcd": Operation("gcd ( {v} ; {w} )", gcd),
    "doubled": Operation("{v} + {v}", lambda v, _: 2 * v),
    "squared": Operation("{v} * {v}", lambda v, _: v**2),
    "cubed": Operation("{v} * {v} * {v}", lambda v, _: v**3),
    "mirrored": Operation("10 - {v}", lambda v, _: 10 - v),
    "paired": Operation("{v} * ( {v} - 1 ) / 2", lambda v, _: comb(v, 2)),
}


class Flavour(NamedTuple):
    """A subject's title in MATH, its operations and its ways to introduce three quantities."""

    title: str
    operations: tuple[str, ...]
    scenes: tuple[str, ...]


FLAVOURS: Mapping[Subject, Flavour] = {
    "algebra": Flavour(
        "Algebra",
        ("plus", "minus", "times", "squared"),
        ("Let the unknowns be", "Into a formula go"),
    ),
    "counting_and_probability": Flavour(
        "Counting & Probability",
        ("plus", "times", "doubled", "paired"),
        ("Three clubs have members", "An urn holds balls of three colours ,"),
    ),
    "geometry": Flavour(
        "Geometry",
        ("plus", "times", "doubled", "squared"),
        ("A box has edges", "A triangle has sides"),
    ),
    "intermediate_algebra": Flavour(
        "Intermediate Algebra",
        ("minus", "times", "squared", "cubed"),
        ("A polynomial has coefficients", "A sequence begins with"),
    ),
    "number_theory": Flavour(
        "Number Theory",
        ("plus", "times", "gcd", "squared"),
        ("Three numbers leave remainders", "Three primes end in"),
    ),
    "prealgebra": Flavour(
        "Prealgebra",
        ("plus", "minus", "times", "doubled"),
        ("A shop has coins", "Three children have apples"),
    ),
    "precalculus": Flavour(
        "Precalculus",
        ("plus", "minus", "cubed", "mirrored"),
        ("A vector has components", "Three dials show"),
    ),
}
Pattern = tuple[str, ...]


class Patterns(NamedTuple):
    """The orders of operations of each kind of split."""

    seen: tuple[Pattern, ...]
    valid_unseen: tuple[Pattern, ...]
    final_unseen: tuple[Pattern, ...]

    def of(self, split: str) -> tuple[Pattern, ...]:
        """A split's patterns."""
        names = {"valid_unseen": self.valid_unseen, "final_unseen": self.final_unseen}
        return names.get(split, self.seen)


class Step(NamedTuple):
    """An operation and the quantity that it names, "" for none."""

    operation: str
    operand: str

    def __str__(self) -> str:
        return f"{self.operation} {self.operand}".rstrip()


class Problem(NamedTuple):
    """A problem with everything about it."""

    subject: Subject
    level: int
    scene: str
    name: str
    """What is to be found."""
    values: Mapping[str, int]
    route: tuple[Step, ...]
    listed: tuple[Step, ...]
    """The route's steps as the problem lists them."""
    others: tuple[str, ...]
    """Rules of other things, on the sheet."""

    @property
    def text(self) -> str:
        """The problem, which does not say the order of its steps."""
        values = " ; ".join(f"{name} = {value}" for name, value in self.values.items())
        return (
            f"{self.scene} {values}. From {_QUANTITIES[0]} the {self.name} is made by these steps "
            f"in some order : {_chain(self.listed)}. Find the {self.name} , last digits only."
        )

    @property
    def plan(self) -> str:
        """The route: operations in order, without numbers."""
        return _rule(self.name, self.route)

    @property
    def uninformed_plan(self) -> str:
        """What there is to say without the sheet."""
        return f"{self.name} : find the order of the steps ; follow it ."

    def sheet(self, rng: random.Random) -> str:
        """The rules that the sender sees, shuffled."""
        rules = [self.plan, *self.others]
        rng.shuffle(rules)
        return " ".join(rules)

    def answer(self, steps: Sequence[Step]) -> int:
        """The last digit that some steps arrive at."""
        number = self.values[_QUANTITIES[0]]
        for step in steps:
            number = self._next(number, step)
        return number

    def solution(self, steps: Sequence[Step]) -> str:
        """The steps worked out, ended by the boxed answer."""
        start = _QUANTITIES[0]
        number = self.values[start]
        lines = [f"{start} = {number}"]
        for step in steps:
            written = OPERATIONS[step.operation].written.format(
                v=number, w=self.values.get(step.operand)
            )
            number = self._next(number, step)
            lines.append(f"{step} : {written} ≡ {number}")
        return f"{' ; '.join(lines)} ; answer \\boxed{{{number}}}"

    def _next(self, number: int, step: Step) -> int:
        return OPERATIONS[step.operation].compute(number, self.values.get(step.operand, 0)) % BASE


@lru_cache(maxsize=len(FLAVOURS) * len(LEVELS))
def deal_patterns(subject: Subject, level: int) -> Patterns:
    """Which orders of operations train and which are unseen, the same for every seed."""
    patterns = [
        pattern
        for pattern in product(FLAVOURS[subject].operations, repeat=level + 1)
        if len(set(pattern)) > 1 and not any(set(pattern) <= kind for kind in _COMMUTING)
    ]
    random.Random(f"patterns of {subject} {level}").shuffle(patterns)
    count = max(1, round(UNSEEN_SHARE * len(patterns)))
    return Patterns(
        tuple(patterns[2 * count :]), tuple(patterns[:count]), tuple(patterns[count : 2 * count])
    )


def draw_problem(subject: Subject, level: int, split: str, rng: random.Random) -> Problem:
    """A problem in which the order of the steps makes a difference."""
    flavour, patterns = FLAVOURS[subject], deal_patterns(subject, level)
    while True:
        name, *other_names = rng.sample(_NAMES, RULES)
        route = _draw_route(rng.choice(patterns.of(split)), rng)
        problem = Problem(
            subject,
            level,
            scene=rng.choice(flavour.scenes),
            name=name,
            values={quantity: rng.randint(1, BASE - 1) for quantity in _QUANTITIES},
            route=route,
            listed=tuple(rng.sample(route, len(route))),
            others=tuple(
                _rule(other, _draw_route(rng.choice(patterns.seen), rng)) for other in other_names
            ),
        )
        right = problem.answer(route)
        if any(problem.answer(steps) != right for steps in permutations(route)):
            return problem


def _draw_route(pattern: Pattern, rng: random.Random) -> tuple[Step, ...]:
    return tuple(
        Step(name, rng.choice(_OPERANDS) if OPERATIONS[name].takes_quantity else "")
        for name in pattern
    )


def _rule(name: str, route: Sequence[Step]) -> str:
    return f"{name} : {_chain(route)} ."


def _chain(steps: Sequence[Step]) -> str:
    return " ; ".join(map(str, steps))
