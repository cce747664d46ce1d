"""The words around a game: observations cleaned once, first turns, and recorded conversations."""

import re
from collections.abc import Sequence
from typing import Literal

from interlat.envs.alfworld.replica import BANNER
from interlat.tasks import Turn

Style = Literal["plain", "react"]

_REACT = """\
Interact with a household to solve a task. Each turn you get an observation and choose what to do \
next. Answer with "Thought: <your thoughts>" and a line "Action: <your next action>", or with the \
action line alone. The actions are:
go to <receptacle>
open <receptacle>
close <receptacle>
take <object> from <receptacle>
{put}
clean <object> with <receptacle>
heat <object> with <receptacle>
cool <object> with <receptacle>
use <object>
examine <object or receptacle>
look
inventory
"Nothing happens." means that the action was not possible.

"""


def clean(observation: str) -> str:
    """The engine's text without its banner and with single spaces; the words verbatim."""
    return re.sub(r"\s+", " ", observation.replace(BANNER, "")).strip()


def first_turn(observation: str, style: Style, put: str) -> str:
    """The first human turn. put: the game's command for putting down, with placeholders in <>."""
    return _REACT.format(put=put) + observation if style == "react" else observation


def conversation(
    observations: Sequence[str], actions: Sequence[str], style: Style, put: str
) -> tuple[Turn, ...]:
    """An episode as turns, ended by its last action; observations are the engine's own texts."""
    human = [clean(text) for text in observations[: len(actions)]]
    human[0] = first_turn(human[0], style, put)
    prefix = "Action: " if style == "react" else ""
    return tuple(
        turn
        for observation, action in zip(human, actions, strict=True)
        for turn in (
            Turn({"from": "human", "value": observation}),
            Turn({"from": "gpt", "value": prefix + action}),
        )
    )
