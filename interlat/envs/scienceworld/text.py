"""The words around an experiment."""

from typing import Literal

Style = Literal["plain", "react"]

_REACT = """\
You are in a house with a laboratory's worth of things in it, and have a science task to do. Each \
turn you get an observation and choose what to do next. Answer with "Thought: <your thoughts>" and \
a line "Action: <your next action>", or with the action line alone. The actions are:
open <thing>, close <thing>: doors and containers
go to <room>: through an open door
look around, look at <thing>, look in <thing>
pick up <thing>, put down <thing>, move <thing> to <thing>, inventory
activate <thing>, deactivate <thing>: devices
use <thing> on <thing>, use <thing>
connect <thing> to <thing>, disconnect <thing>: electrical parts
pour <thing> into <thing>, dunk <thing> into <thing>, mix <thing>: mix the contents of a container
read <thing>, eat <thing>, flush <thing>
focus on <thing>: say that this is the thing that the task asks for; the wrong one ends the task
wait, wait1: let ten moments pass, or one
task: hear the task again
Where a name could mean several things you are asked which, and answer with its number.

"""


def first_turn(observation: str, style: Style) -> str:
    """The first human turn, in ``react`` style after an explanation of the game."""
    return _REACT + observation if style == "react" else observation
