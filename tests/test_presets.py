"""Presets change what they say and nothing else."""

from pathlib import Path

import pytest

from interlat.config import Params, UserError, build_params
from interlat.presets import choose, difference, lay_over
from interlat.schema import parse_yaml, place, settings

CONF = Path(__file__).parent.parent / "conf"
GROUPS = sorted(entry.name for entry in CONF.iterdir())
NAMES = [f"{group}={p.stem}" for group in GROUPS for p in sorted((CONF / group).glob("*.yaml"))]
DEFAULTS = ["model=tiny", "task=alfworld", "collect=default", "train=pair"]

TEXT = """\
# mine
seed: 5          # lucky

train:
  steps: 77      # by hand
  learning_rate: 0.5
evaluate:
  splits: [a, b] # both
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_is_valid(name: str) -> None:
    tree: dict[str, object] = {}
    for key, value in choose([name], CONF).items():
        place(tree, key, value)
    build_params(tree)


@pytest.mark.parametrize("group", GROUPS)
def test_presets_of_a_group_set_the_same_keys(group: str) -> None:
    keys = {name: set(choose([name], CONF)) for name in NAMES if name.startswith(f"{group}=")}
    assert len(set(map(frozenset, keys.values()))) == 1, keys


def test_two_groups_never_set_the_same_key() -> None:
    keys = [key for name in DEFAULTS for key in choose([name], CONF)]
    assert len(keys) == len(set(keys))


def test_the_embedded_default_s_presets_are_the_dataclasses_defaults() -> None:
    values = choose(DEFAULTS, CONF)
    expected = {key: default for key, _, default in settings(Params)}
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()} == {
        key: expected[key] for key in values
    }


def test_hand_made_edits_and_comments_stay() -> None:
    after = lay_over(TEXT, {"train.learning_rate": 0.1, "evaluate.splits": ["c", "d"]})
    assert after == TEXT.replace("0.5", "0.1").replace("[a, b]", "[c, d]")


def test_going_there_and_back_changes_nothing() -> None:
    text = (CONF.parent / "params.yaml").read_text()
    start = lay_over(text, choose(DEFAULTS, CONF))
    away = lay_over(start, choose(["model=qwen2.5-7b", "task=alfworld-official"], CONF))
    back = lay_over(away, choose(DEFAULTS, CONF))
    assert parse_yaml(back, "params.yaml") == parse_yaml(start, "params.yaml")
    assert "threads: 8" in difference(start, away)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("model=gpt", "no such preset; choose one of llama3.1-8b, qwen-to-llama"),
        ("modle=tiny", "a group of collect, model, task, train"),
        ("model", "expected GROUP=NAME"),
        ("model=../task/alfworld", "no such preset"),
    ],
)
def test_an_unknown_name_is_refused(choice: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        choose([choice], CONF)


def test_an_outcome_that_is_not_valid_is_refused() -> None:
    with pytest.raises(UserError, match=r"train\.steps"):
        lay_over(TEXT.replace("77", "-1"), choose(["train=pair"], CONF))
