"""Is an answer right? math-verify decides, in processes that can be stopped.

Answers that read the same after clean-up are right at once; others are parsed and compared as
mathematics, each within a time limit. Text of models is parsed by grammars only, never evaluated.
Differs from math-verify alone where that is known to be wrong: a decimal is taken at its word
(.333333 is not 1/3), 50% is 50 or 1/2, and an interval may answer an inequality either way round.
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from interlat.questions.answers import Answer, find_answer

LONGEST = 1000
"""Characters of an answer that are still taken for mathematics."""
Reason = Literal[
    "same text",
    "equivalent",
    "different",
    "no answer",
    "no gold answer",
    "too long",
    "time limit",
    "not mathematics",
]
_SPACES = re.compile(r"\\[,;:! ]|~|\\q?quad(?![a-zA-Z])|\s+")
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|boldsymbol|mbox)\s*\{([^{}]*)\}")
_DRESS = re.compile(r"\\(?:left|right|displaystyle|limits)(?![a-zA-Z])|\$|\\\$")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PERCENT = re.compile(r"\\?%$")
_FRACTION = re.compile(r"^(-?)\\frac\{(\d+)\}\{([1-9]\d*)\}$")
_DIGITS = re.compile(r"-?\d{1,30}(\.\d{1,30})?|-?\d{1,30}/[1-9]\d{0,29}")
_PLAIN_WORDS = re.compile(r"[a-z][a-z .'-]*[a-z]")
_SYMBOLS = frozenset({"pi", "inf", "infty", "infinity", "sin", "cos", "tan", "log", "ln", "sqrt"})


class Verdict(NamedTuple):
    """A graded item; prediction and gold are the answers that were found, None without one."""

    prediction: str | None
    gold: str | None
    correct: bool
    reason: Reason


def grade(
    items: Iterable[tuple[str, str]],
    *,
    workers: int = 1,
    limit_s: float = 5.0,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[Verdict]:
    """Grade (reply, reference solution) pairs, in order.

    workers: processes. limit_s: seconds for one item; a worker that takes longer is replaced and
    the item counts as wrong.
    """
    found = [(_text(find_answer(reply)), _text(find_answer(gold))) for reply, gold in items]
    verdicts = [at_sight(prediction, gold) for prediction, gold in found]
    open_items = [i for i, verdict in enumerate(verdicts) if verdict is None]
    on_progress(len(found) - len(open_items))
    outcomes = _compared([found[i] for i in open_items], workers, limit_s, on_progress)
    for i, reason in zip(open_items, outcomes, strict=True):
        prediction, gold = found[i]
        verdicts[i] = Verdict(prediction, gold, reason == "equivalent", reason)
    return [verdict for verdict in verdicts if verdict is not None]


def clean(answer: str) -> str:
    """An answer without what does not change it: spacing, dollars, fonts, a final full stop."""
    text = _WORDS.sub(r"\1", answer.strip())
    text = _SPACES.sub(" ", _DRESS.sub("", text)).strip()
    text = text.replace("dfrac", "frac").replace("tfrac", "frac").rstrip(".").strip()
    text = _THOUSANDS.sub("", text)
    return text if " " in text and _PLAIN_WORDS.fullmatch(text.lower()) else text.replace(" ", "")


def at_sight(prediction: str | None, gold: str | None) -> Verdict | None:
    """The verdict where no mathematics is needed."""
    if gold is None or not clean(gold):
        return Verdict(prediction, gold, False, "no gold answer")
    if prediction is None or not clean(prediction):
        return Verdict(prediction, gold, False, "no answer")
    if clean(prediction).lower() == clean(gold).lower() and _same_case(prediction, gold):
        return Verdict(prediction, gold, True, "same text")
    values = _rational(prediction), _rational(gold)
    if None not in values:
        equal = values[0] == values[1]
        return Verdict(prediction, gold, equal, "equivalent" if equal else "different")
    if max(len(prediction), len(gold)) > LONGEST:
        return Verdict(prediction, gold, False, "too long")
    if _is_words(prediction) or _is_words(gold):
        return Verdict(prediction, gold, False, "different")
    return None


def _text(answer: Answer | None) -> str | None:
    return answer.text if answer else None


def _rational(answer: str) -> Fraction | None:
    """The number that an answer writes in digits, exactly; None for anything else."""
    text = _FRACTION.sub(r"\1\2/\3", clean(answer))
    return Fraction(text) if _DIGITS.fullmatch(text) else None


def _same_case(prediction: str, gold: str) -> bool:
    """Case tells symbols apart (x, X), not words (Monday, monday)."""
    return clean(prediction) == clean(gold) or _is_words(gold)


def _is_words(answer: str) -> bool:
    """Is it English rather than a product of letters? \\text{} says so, or two letters and more."""
    text = clean(answer).lower()
    return bool(_PLAIN_WORDS.fullmatch(text)) and text not in _SYMBOLS and len(text) > 3


def _compared(
    pairs: Sequence[tuple[Any, ...]],
    workers: int,
    limit_s: float,
    on_progress: Callable[[int], None],
) -> list[Reason]:
    from multiprocessing import get_context

    from pebble import ProcessExpired, ProcessPool

    if not pairs:
        return []
    reasons: list[Reason] = []
    context = get_context("spawn")
    with ProcessPool(max_workers=workers, context=context, initializer=prepare_worker) as pool:
        # A worker's first item pays for its imports, which are not the item's time.
        for ready in [pool.schedule(prepare_worker) for _ in range(workers)]:
            ready.result()
        waiting = [pool.schedule(compare, args=pair, timeout=limit_s) for pair in pairs]
        for future in waiting:
            try:
                reasons.append(future.result())
            except futures.TimeoutError:
                reasons.append("time limit")
            except (ProcessExpired, RuntimeError, ArithmeticError, MemoryError):
                reasons.append("not mathematics")
            on_progress(1)
    return reasons


def prepare_worker() -> None:
    """Load the parser before time is taken; it warns that the limit is ours to keep."""
    import math_verify

    logging.getLogger(math_verify.__name__).setLevel(logging.ERROR)
    compare("(x+1)^2", "x^2+2x+1")


def compare(prediction: str, gold: str) -> Reason:
    """Compare two answers as mathematics."""
    if _PERCENT.search(clean(prediction)) or _PERCENT.search(clean(gold)):
        return "equivalent" if _same_percentage(prediction, gold) else "different"
    return "equivalent" if _same_mathematics(prediction, gold) else "different"


def _same_percentage(prediction: str, gold: str) -> bool:
    """50% is 50% or, where the other side has no sign, 50 or 1/2."""
    bare = [_PERCENT.sub("", clean(answer)) for answer in (prediction, gold)]
    if _same_mathematics(*bare):
        return True
    if _PERCENT.search(clean(prediction)) and _PERCENT.search(clean(gold)):
        return False
    shared = [
        f"\\frac{{{number}}}{{100}}" if _PERCENT.search(clean(answer)) else number
        for answer, number in zip((prediction, gold), bare, strict=True)
    ]
    return _same_mathematics(*shared)


def _same_mathematics(prediction: str, gold: str) -> bool:
    from math_verify import parse, verify

    parsed = [
        parse(f"$\\boxed{{{answer}}}$", parsing_timeout=None) for answer in (gold, prediction)
    ]
    exact = [[_exact(value) for value in values] for values in parsed]
    return bool(
        exact[0]
        and exact[1]
        and verify(*exact, timeout_seconds=None, allow_set_relation_comp=True, float_rounding=12)
    )


def _exact(value: Any) -> Any:
    """A decimal as the fraction that it writes; everything else as it is."""
    from sympy import Float, Rational

    return Rational(str(value)) if isinstance(value, Float) else value
