"""Settings are checked by type, choice and bound, and a mistake is one line that helps."""

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat.schema import UserError, allowed, build, from_text, parse_yaml, setting, settings


@dataclass(frozen=True)
class Oven:
    heat: float = setting(180.0, "degrees", above=0.0, maximum=250.0)
    mode: Literal["fan", "grill"] = setting("fan", "how it heats")
    shelf: int | None = setting(None, "where", minimum=1)
    light: bool = setting(True, "see inside")
    minutes: tuple[int, ...] = setting((10,), "when to look", minimum=1)


@dataclass(frozen=True)
class Kitchen:
    name: str = setting("mine", "whose")
    oven: Oven = Oven()


def test_what_is_left_out_has_its_default() -> None:
    assert build(Kitchen, {"oven": {"mode": "grill"}}) == Kitchen(oven=Oven(mode="grill"))


def test_an_integer_serves_where_a_number_is_wanted() -> None:
    heat = build(Oven, {"heat": 200}).heat
    assert heat == 200.0
    assert isinstance(heat, float)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"oven": {"heat": 0}}, "oven.heat: expected a number > 0 and <= 250, found 0"),
        ({"oven": {"heat": "hot"}}, "oven.heat: expected a number > 0 and <= 250, found 'hot'"),
        (
            {"oven": {"heat": float("nan")}},
            "oven.heat: expected a number > 0 and <= 250, found nan",
        ),
        ({"oven": {"mode": "steam"}}, "oven.mode: expected one of fan, grill, found 'steam'"),
        ({"oven": {"shelf": 0}}, "oven.shelf: expected an integer >= 1 or null, found 0"),
        ({"oven": {"shelf": True}}, "oven.shelf: expected an integer >= 1 or null, found True"),
        ({"oven": {"shelf": 1.5}}, "oven.shelf: expected an integer >= 1 or null, found 1.5"),
        ({"oven": {"light": 1}}, "oven.light: expected true or false, found 1"),
        ({"oven": {"minutes": 3}}, "a list, each entry an integer >= 1, found 3"),
        ({"oven": {"minutes": []}}, "a list, each entry an integer >= 1, found []"),
        ({"oven": {"minutes": [0]}}, "oven.minutes: expected an integer >= 1, found 0"),
        ({"name": None}, "name: expected text, found null"),
        ({"oven": None}, "oven: expected a section of `key: value`, found null"),
        (
            {"oven": {"haet": 1}},
            "oven.haet: unknown key; did you mean oven.heat? "
            "allowed here: heat, mode, shelf, light, minutes",
        ),
        ({"over": {}}, "over: unknown key; did you mean oven? allowed here: name, oven"),
    ],
)
def test_a_mistake_names_the_key_and_what_is_allowed(tree: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build(Kitchen, tree)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("oven.heat", "1e2", 100.0),
        ("oven.shelf", "null", None),
        ("oven.light", "false", False),
        ("oven.minutes", "5,10", [5, 10]),
        ("oven.minutes", "[5, 10]", [5, 10]),
        ("oven.mode", "grill", "grill"),
        ("name", "007", "007"),
        ("name", "null", "null"),
        ("name", "a: {b", "a: {b"),
    ],
)
def test_text_from_the_command_line_is_read_as_the_setting_wants_it(
    key: str, text: str, value: object
) -> None:
    assert from_text(Kitchen, key, text) == value


@pytest.mark.parametrize("key", ["oven", "oven.haet", "over.heat", "name.first", "", "oven."])
def test_a_key_that_is_no_setting_is_unknown(key: str) -> None:
    with pytest.raises(UserError, match="unknown key"):
        from_text(Kitchen, key, "1")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_number_is_taken_exactly_when_it_is_within_its_bounds(value: float) -> None:
    if 0 < value <= 250:
        assert build(Oven, {"heat": value}).heat == value
    else:
        with pytest.raises(UserError):
            build(Oven, {"heat": value})


def test_yaml_that_comes_twice_or_is_broken_is_named_with_its_line() -> None:
    with pytest.raises(UserError, match=r"params\.yaml, line 2: not valid YAML"):
        parse_yaml("a: 1\na: 2\n", "params.yaml")
    with pytest.raises(UserError, match=r"params\.yaml, line \d"):
        parse_yaml("a: [1\n", "params.yaml")
    with pytest.raises(UserError, match="expected sections"):
        parse_yaml("- 1\n", "params.yaml")


def test_settings_come_with_dotted_keys_in_order() -> None:
    assert [key for key, _, _ in settings(Kitchen)][:3] == ["name", "oven.heat", "oven.mode"]
    assert allowed(Kitchen, "oven.shelf") == "an integer >= 1 or null"
