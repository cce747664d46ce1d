r"""Questions with solutions from MATH, GSM8K, or users' own files.

{"problem": "Factor $x^2-1$.", "level": "Level 1", "type": "Algebra", "solution": "... \\boxed{}"}
{"question": "Ann has 3 pens ...", "answer": "... #### 42"}
{"problem": "...", "solution": "...", "answer": "42", "subject": "Geometry", "level": 4}

Where they lie is said as for collection (records.py): a hub id, `owner/name:configuration` for one
of several, a JSON or JSON lines file, a folder of them, a saved dataset. A record that cannot be
graded is left out with its reason; none is lost without a word.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from interlat.config import Subject, UserError
from interlat.questions.answers import find_answer
from interlat.records import Record, Records, read_records

PROBLEM, SOLUTION, ANSWER = ("problem", "question"), ("solution",), ("answer",)
TYPE, LEVEL, ID = ("type", "subject"), ("level",), ("id", "unique_id", "task_id")
FIELDS = frozenset(chain(PROBLEM, SOLUTION, ANSWER, TYPE, LEVEL, ID))
"""What is read of a record; of names for the same thing, the first that is there."""
UNKNOWN_LEVEL = "Level ?"
_MARKED = ("box", "hashes")
_LEVEL = re.compile(r"(?:level\s*)?([1-5])", re.IGNORECASE)


class Question(NamedTuple):
    """A question with its answer."""

    split: str
    """train | test, of its source."""
    number: int
    """Of its record there, from 1."""
    id: str | None
    problem: str
    solution: str
    """The worked solution or, where there is none, the answer."""
    gold: str
    """A text in which ``find_answer`` finds the right answer."""
    type: str | None
    """Its subject, as its source calls it."""
    level: str | None
    """Level 1 to Level 5; Level ? for a label that is no level, None without one."""
    marked: bool
    """The answer stands in a box, after #### or in a field; else it was looked for in the text."""


class LeftOut(NamedTuple):
    """A record that became no question, and why."""

    split: str
    number: int
    reason: str
    record: Record


class Deck(NamedTuple):
    """The questions of one source."""

    train: tuple[Question, ...]
    test: tuple[Question, ...]
    """Empty where the source has no splits; then all are in ``train``."""
    left_out: tuple[LeftOut, ...]

    def counts(self) -> dict[str, int]:
        """How many there are, were left out for which reason, and are odd in which way."""
        kept = [*self.train, *self.test]
        reasons = Counter(f"left out: {item.reason}" for item in self.left_out)
        oddities = {
            "answer looked for in the text": sum(not question.marked for question in kept),
            "unknown level": sum(question.level == UNKNOWN_LEVEL for question in kept),
        }
        return {
            "records": len(kept) + len(self.left_out),
            "questions": len(kept),
            **dict(sorted(reasons.items())),
            **{name: count for name, count in oddities.items() if count},
        }


def read_deck(source: str, *, subjects: Sequence[Subject] = (), levels: Sequence[int] = ()) -> Deck:
    """The questions of a source, of these subjects and levels; of all where none are named.

    A question of the train split that is one of the test split as well is left out of train.
    Raises UserError for a source that cannot be read, that lacks a field, or has none of these.
    """
    place, colon, name = source.partition(":")
    if not colon or Path(source).exists():
        place, name = source, ""
    splits = {
        split: read_records(place, split=split, name=name or None, subjects=subjects, fields=FIELDS)
        for split in ("train", "test")
    }
    if splits["train"].rows == splits["test"].rows:
        del splits["test"]
    wanted = {f"Level {level}" for level in levels}
    found: dict[str, list[Question]] = {"train": [], "test": []}
    left_out: list[LeftOut] = []
    known: set[str] = set()
    for split in reversed(splits):
        _require_fields(splits[split], subjects, levels)
        for item in _read(split, splits[split].rows):
            if isinstance(item, Question):
                item = _sifted(item, splits[split].rows, known, subjects, wanted)
            if isinstance(item, LeftOut):
                left_out.append(item)
            else:
                known.add(item.problem)
                found[split].append(item)
    deck = Deck(tuple(found["train"]), tuple(found["test"]), tuple(left_out))
    if not deck.train:
        counts = ", ".join(f"{name}: {count}" for name, count in deck.counts().items())
        raise UserError(f"{source}: there is no question to train on in it ({counts})")
    return deck


def subject_of(title: str) -> str:
    """`Counting & Probability` as `counting_and_probability`."""
    return re.sub(r"\W+", "_", title.lower().replace("&", "and"))


def level_of(value: object) -> str | None:
    """`Level 3` for what says so: `Level 3`, `level 3`, 3, `3`; `Level ?` for anything else."""
    if value is None:
        return None
    match = _LEVEL.fullmatch(str(value).strip())
    return f"Level {match[1]}" if match else UNKNOWN_LEVEL


def _require_fields(records: Records, subjects: Sequence[str], levels: Sequence[int]) -> None:
    """Refuse records of which none can be a question, or none be chosen."""
    needed: list[tuple[tuple[str, ...], str]] = [
        (PROBLEM, "the problem"),
        ((*SOLUTION, *ANSWER), "its solution or answer"),
    ]
    needed += [(TYPE, "the subject, to choose by")] if subjects else []
    needed += [(LEVEL, "the level, to choose by")] if levels else []
    for names, what in needed:
        if not set(names) & set(records.fields):
            raise UserError(
                f"{records.source}: no field {' or '.join(map(repr, names))} for {what}; "
                f"the fields there: {', '.join(records.fields)}"
            )


def _read(split: str, rows: Sequence[Record]) -> Iterator[Question | LeftOut]:
    for number, row in enumerate(rows, start=1):
        problem, solution, answer = (_text(row, names) for names in (PROBLEM, SOLUTION, ANSWER))
        if problem is None:
            yield LeftOut(split, number, "no problem text", row)
        elif solution is None and answer is None:
            yield LeftOut(split, number, "no solution", row)
        elif (gold := _gold(solution, answer)) is None:
            yield LeftOut(split, number, "no answer in its solution", row)
        else:
            yield Question(
                split=split,
                number=number,
                id=_text(row, ID),
                problem=problem,
                solution=solution or answer or "",
                gold=gold,
                type=_text(row, TYPE),
                level=level_of(_text(row, LEVEL)),
                marked=gold != solution or _is_marked(gold),
            )


def _sifted(
    question: Question,
    rows: Sequence[Record],
    known: set[str],
    subjects: Sequence[str],
    wanted: set[str],
) -> Question | LeftOut:
    """The question, unless another subject or level is asked for or it has come before."""
    reason = None
    if subjects and subject_of(question.type or "") not in subjects:
        reason = "another subject"
    elif wanted and question.level not in wanted:
        reason = "another level" if question.level != UNKNOWN_LEVEL else "unknown level"
    elif question.problem in known:
        reason = "the same problem again"
    if reason is None:
        return question
    return LeftOut(question.split, question.number, reason, rows[question.number - 1])


def _gold(solution: str | None, answer: str | None) -> str | None:
    """What says the right answer most plainly; None where nothing does."""
    for text in (solution, answer):
        if text is not None and _is_marked(text):
            return text
    if answer is not None:
        return rf"\boxed{{{answer}}}"
    found = find_answer(solution or "")
    return solution if found is not None and found.text else None


def _is_marked(text: str) -> bool:
    found = find_answer(text)
    return found is not None and found.found in _MARKED and bool(found.text)


def _text(row: Record, names: Sequence[str]) -> str | None:
    """The first of some fields that holds text or a number, as text."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = str(value).strip()
            if text:
                return text
    return None
