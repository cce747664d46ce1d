import pytest

from interlat.config import UserError
from interlat.envs import make
from interlat.envs.base import parse_reply


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("go to cabinet 1", "go to cabinet 1"),
        ("Thought: hm.\nAction: look\nAction: wait", "look"),
        ("Action:\n  open fridge 1  \n", "open fridge 1"),
        ("look\nand see", "look"),
        ("Action:", ""),
        ("", ""),
    ],
)
def test_the_action_is_the_first_line_after_the_marker(reply: str, action: str) -> None:
    assert parse_reply(reply) == action


def test_an_unknown_environment_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"'chess'; there is: .*alfworld"):
        make("chess")
