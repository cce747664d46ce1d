"""How many questions were answered rightly: overall, by level, by subject, with intervals.

Pure functions over graded answers. Conditions are compared on the same questions by McNemar's
exact test; several samples of a question by pass@k and by their majority.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Any, Literal, NamedTuple

from interlat.questions.grading import Verdict, clean
from interlat.stats import holm, mcnemar_exact, paired_difference, wilson
from interlat.tasks import Task

By = Literal["all", "level", "subject"]
GROUPS: tuple[By, ...] = ("all", "level", "subject")


class Graded(NamedTuple):
    """A question as it was answered."""

    task_id: str
    level: str
    """"" where the question does not say."""
    subject: str
    correct: bool

    def part(self, by: By) -> str:
        """The part of a grouping that it belongs to."""
        return {"all": "all", "level": self.level, "subject": self.subject}[by]


class Accuracy(NamedTuple):
    """Accuracy on a part of the questions, with Wilson's 95 % interval."""

    by: By
    part: str
    n: int
    correct: int
    accuracy: float
    low: float
    high: float


class Contrast(NamedTuple):
    """Accuracy of one condition minus that of another on a part of the same questions.

    p: exact McNemar; p_holm: adjusted for the parts of its grouping.
    """

    by: By
    part: str
    n: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float


def graded(tasks: Iterable[Task], correct: Mapping[str, bool]) -> list[Graded]:
    """What tasks say of their questions, beside whether each was answered rightly.

    correct: by task id. Raises ValueError unless it is of the same tasks.
    """
    by_id = {task.task_id: task.env_args for task in tasks}
    if by_id.keys() != correct.keys():
        odd = sorted(by_id.keys() ^ correct.keys())
        raise ValueError(f"{len(odd)} questions are without a task or an episode: {odd[:3]}")
    return [
        Graded(
            task_id, str(known.get("level") or ""), str(known.get("type") or ""), correct[task_id]
        )
        for task_id, known in by_id.items()
    ]


def accuracies(answers: Sequence[Graded]) -> list[Accuracy]:
    """Overall, then by level, then by subject; questions that do not say are in no part of these.

    Raises ValueError when there are none.
    """
    if not answers:
        raise ValueError("accuracy needs at least one answer")
    rows = []
    for by, part, members in _parts(answers):
        right = sum(answer.correct for answer in members)
        n = len(members)
        rows.append(Accuracy(by, part, n, right, right / n, *wilson(right, n)))
    return rows


def contrasts(first: Sequence[Graded], second: Sequence[Graded]) -> list[Contrast]:
    """The first condition against the second, in the parts and order of ``accuracies``.

    Raises ValueError unless both answered the same questions.
    """
    others = {answer.task_id: answer.correct for answer in second}
    if len(first) != len(second) or others.keys() != {answer.task_id for answer in first}:
        raise ValueError("conditions are compared on the same questions, and these differ")
    found: list[Contrast] = []
    for by in GROUPS:
        compared = []
        for _, part, members in _parts(first, (by,)):
            won = [answer.correct for answer in members]
            other = [others[answer.task_id] for answer in members]
            compared.append(
                (part, len(won), paired_difference(won, other), mcnemar_exact(won, other))
            )
        adjusted = holm([p for *_, p in compared])
        for (part, n, gap, p), p_holm in zip(compared, adjusted, strict=True):
            found.append(Contrast(by, part, n, *gap, p, p_holm))
    return found


def table(conditions: Mapping[str, Sequence[Graded]], reference: str) -> str:
    """CSV: condition, the columns of ``Accuracy``, and its difference to the reference condition.

    Every part has a row for every condition. Raises ValueError as ``contrasts`` does.
    """
    gaps = ("difference", "difference_low", "difference_high", "p", "p_holm")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["condition", *Accuracy._fields, *gaps])
    for condition, answers in conditions.items():
        differences = contrasts(answers, conditions[reference])
        for row, contrast in zip(accuracies(answers), differences, strict=True):
            compared = contrast[3:] if condition != reference else [""] * len(gaps)
            writer.writerow([condition, *row, *compared])
    return text.getvalue()


def verdict(conversation: Sequence[Mapping[str, Any]]) -> Verdict | None:
    """The verdict that closes an episode of ``QuestionEnvironment``; None where it has none."""
    try:
        told = json.loads(conversation[-1]["value"]) if conversation else None
    except ValueError:
        return None
    if not isinstance(told, dict) or not told.keys() >= set(Verdict._fields):
        return None
    return Verdict(**{name: told[name] for name in Verdict._fields})


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that at least one of k replies is right, estimated from more, without bias.

    Raises ValueError unless 0 <= correct <= samples and 1 <= k <= samples.
    Source: Chen et al., arXiv 2107.03374, equation 1.
    """
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {samples} samples, {correct} of them right")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def majority(predictions: Sequence[str | None]) -> str | None:
    """The answer most often given, the earliest of equals; None where none was given.

    Answers that read the same after clean-up are one.
    """
    given = [answer for answer in predictions if answer is not None and clean(answer)]
    if not given:
        return None
    votes = Counter(clean(answer) for answer in given)
    return max(given, key=lambda answer: votes[clean(answer)])


def _parts(
    answers: Sequence[Graded], groups: Sequence[By] = GROUPS
) -> list[tuple[By, str, list[Graded]]]:
    """(grouping, part, its answers): all, levels and subjects, each in alphabetical order."""
    parts: dict[tuple[By, str], list[Graded]] = {}
    for by in groups:
        for answer in answers:
            if answer.part(by):
                parts.setdefault((by, answer.part(by)), []).append(answer)
    order = sorted(parts, key=lambda key: (GROUPS.index(key[0]), key[1]))
    return [(by, part, parts[by, part]) for by, part in order]
