"""The curriculum: how much of a message is replaced by the embeddings of its plan's tokens.

The rate r is the share that is plan: r = 0 is the pure latent message, the form that evaluation
sends, and r = 1 the pure plan text. Both ends are trained.

plan_first     r uniform in {0, .1, ..., 1}; the plan's head stands first, latents follow (paper)
latents_first  the same rates; latents first, the plan's tail follows (the published code's order)
anneal         plan_first early on; the probability of r = 0 grows linearly to 1 at the last step
none           r = 0 always
"""

from typing import Literal, NamedTuple

import numpy as np

Curriculum = Literal["plan_first", "latents_first", "anneal", "none"]
CURRICULA: tuple[Curriculum, ...] = ("plan_first", "latents_first", "anneal", "none")
RATES = tuple(tenth / 10 for tenth in range(11))


class Mixture(NamedTuple):
    """Which part of the plan's P tokens and which of the message's L rows stand in the slots."""

    plan: slice
    rows: slice
    plan_first: bool


def draw_rate(curriculum: Curriculum, *, seed: int, step: int, steps: int, index: int) -> float:
    """The rate of sample ``index`` in step ``step`` of ``steps``.

    A function of its arguments alone, so that a resumed run and another number of ranks see the
    same rates.
    """
    if curriculum == "none":
        return 0.0
    generator = np.random.default_rng([seed, step, index])
    rate = RATES[int(generator.integers(len(RATES)))]
    pure = curriculum == "anneal" and generator.random() < step / max(steps - 1, 1)
    return 0.0 if pure else rate


def draw_length(share: float, *, seed: int, step: int, index: int) -> float:
    """How much of sample ``index``'s message is told: all of it, or a random share in (0, 1].

    share: of the messages that are cut. A function of its arguments alone, as ``draw_rate`` is.
    """
    if not share:
        return 1.0
    cut, kept = np.random.default_rng([seed, step, index, 1]).random(2)
    return float(1 - kept) if cut < share else 1.0


def mix(curriculum: Curriculum, rate: float, plan_tokens: int, rows: int) -> Mixture:
    """Split a plan of ``plan_tokens`` tokens and a message of ``rows`` rows at the given rate.

    Both are cut at the same share of their length, so what the plan says and what the latents carry
    on neither side of the cut is said twice or lost (to within rounding).
    """
    if curriculum == "latents_first":
        cut = 1 - rate
        return Mixture(
            slice(round(cut * plan_tokens), plan_tokens), slice(0, round(cut * rows)), False
        )
    return Mixture(slice(0, round(rate * plan_tokens)), slice(round(rate * rows), rows), True)
