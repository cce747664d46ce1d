"""Finding the answer in a solution's text.

In MATH and its kin the answer stands in the last ``\\boxed{}``. What people write instead is looked
for in turn: GSM8K's ``#### 42``, "the answer is 42", the last formula, the last number.
"""

import re
from typing import NamedTuple

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_SAID = re.compile(
    r"(?:final\s+answer|answer)\s*(?:is|are|:|=)+\s*:?\s*(.+?)(?:\.(?:\s|$)|\n|$)", re.IGNORECASE
)
_HASHES = re.compile(r"####\s*(.+)")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?%?")


class Answer(NamedTuple):
    """An answer and where it was found: box, hashes, said, formula, number."""

    text: str
    found: str


def find_answer(text: str) -> Answer | None:
    """The answer that a solution arrives at; None where there is nothing that could be one."""
    boxed = last_boxed(text)
    if boxed is not None:
        return Answer(boxed, "box")
    for found, pattern in (
        ("hashes", _HASHES),
        ("said", _SAID),
        ("formula", _FORMULA),
        ("number", _NUMBER),
    ):
        matches = list(pattern.finditer(text))
        if matches:
            groups = [group for group in matches[-1].groups() if group]
            return Answer((groups[0] if groups else matches[-1][0]).strip(), found)
    return None


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{} or \fbox{} whose braces balance; None without one.

    A box without braces (\boxed 5) holds the next token.
    """
    for match in reversed(list(_BOX.finditer(text))):
        content = _argument(text, match.end())
        if content is not None:
            return content.strip()
    return None


def _argument(text: str, start: int) -> str | None:
    if not text.startswith("{", start):
        token = re.compile(r"\\[a-zA-Z]+|[^\s$.,;}]+").match(text, start)
        return token[0] if token else None
    depth = 0
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[start + 1 : match.start()]
    return None
