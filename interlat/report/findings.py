"""What the data support and what they do not, in words; every word follows from the numbers.

Conditions stand in backticks, which the page and Markdown show as code.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from interlat.report.outcomes import Contrast
from interlat.report.tables import (
    CONTROLS,
    EXPERTS,
    REFERENCE,
    Ceilings,
    Row,
    interval,
    p_value,
    percent,
    points,
    points_interval,
)

OWN = "data"
"""The condition that is about the method: the sender's own message."""
MARGIN = 0.10
"""A wrong message counts as no help when its upper 95 % bound over none is below this."""
WRONG = ("random_other", "white_noise")
"""Messages that should not help."""
QUESTIONS = {
    "none": "Does the message help?",
    "random_other": "Does it matter whose task the message is about?",
    "white_noise": "Does it matter what stands in the message at all?",
    "text": "Do hidden states work otherwise than the same plan in words?",
    "noised": "Does noise on the message cost success?",
    "uninformed": "Does it matter what the sender knows?",
}
MEANINGS = {
    "data": "The sender's hidden states about this very task: what the method is about.",
    "text": "The sender's plan for this task in words, read by the same actor.",
    "none": "No message: the actor has to search.",
    "random_other": "The sender's hidden states about another task of the same split.",
    "white_noise": "Random numbers in the message's place, of the same shape.",
    "noised": "The sender's own hidden states with Gaussian noise added to every entry.",
    "uninformed": "Hidden states about this very task from a sender that has not seen the house. "
    "What `data` gains over it is what the sender knows, not the way in which it is told.",
}


class Finding(NamedTuple):
    """An answer and the numbers behind it; ``clear`` when the data support one."""

    question: str
    answer: str
    clear: bool
    numbers: list[str]


def summary(rows: Sequence[Row]) -> str:
    """One sentence: success with and without the message."""
    controls = [row for row in rows if row.run == CONTROLS]
    budget = controls[0].within_steps
    at_first = [row for row in controls if row.within_steps == budget]
    by_condition: dict[str, list[str]] = {}
    for row in at_first:
        shown = f"{percent(row.success)} % {interval(row.low, row.high)} on {row.split}"
        by_condition.setdefault(row.condition, []).append(shown)
    without = f"without any message (`{REFERENCE}`) {_listed(by_condition[REFERENCE])}"
    games = sum(row.n for row in at_first if row.condition == REFERENCE)
    opening = f"Of {games} games, within {budget} steps,"
    if OWN not in by_condition:
        return f"{opening} the actor solved {without}."
    return (
        f"{opening} the actor that read its sender's hidden states (`{OWN}`) solved "
        f"{_listed(by_condition[OWN])}; {without}."
    )


def findings(
    rows: Sequence[Row], contrasts: Sequence[Contrast], ceilings: Ceilings
) -> list[Finding]:
    """Every question that the conditions allow, answered."""
    by_second: dict[str, list[Contrast]] = {}
    for contrast in contrasts:
        by_second.setdefault(contrast.second, []).append(contrast)
    order = [c for c in QUESTIONS if c in by_second]
    order += [c for c in by_second if c not in QUESTIONS]
    found = [_contrasted(second, by_second[second]) for second in order]
    wrong = [
        _wrong_message(condition, group)
        for condition in WRONG
        if (group := _at_first(rows, condition))
    ]
    return [*found, *wrong, *_against_experts(rows, ceilings)]


def headline(contrasts: Sequence[Contrast], split: str) -> str:
    """The finding about a split, short enough for a figure's title."""
    found = [c for c in contrasts if c.split == split and c.second == REFERENCE]
    if not found:
        return f"{split}: success by condition"
    (c,) = found
    within = f"success within {c.within_steps} steps"
    bounds = points_interval(c.low, c.high)
    if c.verdict == 0:
        gap = f"{points(c.difference)} points {bounds} over none"
        return f"{split}: no effect of the message on {within} is shown, {gap}"
    verb = "raises" if c.verdict > 0 else "lowers"
    by = f"{percent(abs(c.difference))} points, {bounds} over none"
    return f"{split}: the message {verb} {within} by {by}"


def lengths(rows_by_split: Mapping[str, float]) -> str:
    """How long the messages are that `data` delivers."""
    shown = [f"{rows:.1f} on {split}" for split, rows in rows_by_split.items()]
    if not shown:
        return ""
    return (
        f"A message of `{OWN}` has, on average, {_listed(shown)} rows: one for each token of the "
        "plan that the sender says, its end mark included."
    )


def caveats(seed: int, knowledge: str) -> list[str]:
    """What no number here can say."""
    told = (
        "The sender has seen the house and the actor has not, so a message carries knowledge that "
        "the actor cannot have; `uninformed` shows what is left without it."
        if knowledge != "none"
        else "The sender knows no more than the actor (sender.knowledge is none), so `data` and "
        "`uninformed` are the same messages."
    )
    return [
        told,
        f"All models come from one training seed ({seed}): the intervals are about the games, not "
        "about how another training would end.",
        "The numbers are about these games, this model and these budgets of steps. A time-out is a "
        "failure.",
        "Intervals are at the 95 % level: Wilson's for a rate, Newcombe's paired one for a "
        "difference. p is McNemar's exact test on the same games, two-sided; p (Holm) is adjusted "
        "for the comparisons of a split, and an answer counts as clear when it is below 0.05.",
    ]


def meanings(conditions: Sequence[str]) -> Mapping[str, str]:
    """What each condition is."""
    return {c: MEANINGS.get(c, "As hidden.source of that name.") for c in conditions}


def _contrasted(second: str, group: Sequence[Contrast]) -> Finding:
    """`data` against one other condition, on every split."""
    question = QUESTIONS.get(second, f"Does `{OWN}` differ from `{second}`?")
    numbers = [
        f"{c.split}: `{c.first}` minus `{c.second}` {points(c.difference)} points "
        f"{points_interval(c.low, c.high)}, p = {p_value(c.p)}, p (Holm) = {p_value(c.p_holm)}"
        for c in group
    ]
    verdicts = {c.verdict for c in group}
    if verdicts == {0}:
        room = max(max(abs(c.low), abs(c.high)) for c in group)
        answer = f"Not shown: no difference was found; up to {percent(room)} points remain possible"
        return Finding(question, answer, False, numbers)
    if len(verdicts) == 1:
        upheld = verdicts == {1} or second == "text"
        answer = f"{'Yes' if upheld else 'The reverse'}: `{OWN}` is {_place(*verdicts)} `{second}`"
        return Finding(question, answer, True, numbers)
    parts = [f"{_place(c.verdict)} on {c.split}" for c in group]
    return Finding(question, f"Not everywhere: {_listed(parts)}", False, numbers)


def _wrong_message(condition: str, rows: Sequence[Row]) -> Finding:
    """Whether a message that should not help does not."""
    bounds = {row.split: (row.difference_low or 0.0, row.difference_high or 0.0) for row in rows}
    numbers = [
        f"{row.split}: `{condition}` minus `{REFERENCE}` {points(row.difference or 0.0)} points "
        f"{points_interval(*bounds[row.split])}, p = {p_value(1.0 if row.p is None else row.p)}"
        for row in rows
    ]
    question = f"Does a wrong message (`{condition}`) help by itself?"
    if any(low > 0 for low, _ in bounds.values()):
        places = [split for split, (low, _) in bounds.items() if low > 0]
        return Finding(question, f"Yes, on {_listed(places)}", True, numbers)
    worst = max(high for _, high in bounds.values())
    if worst < MARGIN:
        harm = " and it harms" if all(high < 0 for _, high in bounds.values()) else ""
        most = f"the upper bound over none is {points(worst)} points"
        return Finding(question, f"No{harm}: {most}", True, numbers)
    return Finding(question, f"Not excluded: up to {points(worst)} points", False, numbers)


def _against_experts(rows: Sequence[Row], ceilings: Ceilings) -> list[Finding]:
    """How far `data` is from the expert that knows, and `none` from the one that searches."""
    pairs = {OWN: "informed_expert", REFERENCE: "searching_expert"}
    found = []
    for condition, expert in pairs.items():
        numbers, gaps = [], []
        for row in _at_first(rows, condition):
            ceiling = ceilings.get(row.split, {}).get(expert, {}).get(row.within_steps)
            if ceiling is not None:
                gaps.append(row.success - ceiling)
                numbers.append(
                    f"{row.split}: {EXPERTS[expert]} {percent(ceiling)} %, `{condition}` "
                    f"{percent(row.success)} % {interval(row.low, row.high)}"
                )
        if gaps:
            question = f"How far is `{condition}` from the {EXPERTS[expert]} that it learned from?"
            shown = [f"{points(gap)} points" for gap in gaps]
            found.append(Finding(question, _listed(shown), True, numbers))
    return found


def _at_first(rows: Sequence[Row], condition: str) -> list[Row]:
    """A control's rows at the first number of steps."""
    return [
        row
        for row in rows
        if (row.run, row.condition, row.within_steps) == (CONTROLS, condition, rows[0].within_steps)
    ]


def _place(verdict: int) -> str:
    return {1: "above", 0: "no difference shown", -1: "below"}[verdict]


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
