"""params.yaml and the dataclasses are the same settings."""

from pathlib import Path

import pytest

from interlat.config import Params, UserError, build_params, flat, load_params
from interlat.schema import read_yaml, settings

ROOT = Path(__file__).parent.parent


def keys_of(tree: dict[str, object], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in tree.items():
        is_section = isinstance(value, dict)
        found |= keys_of(value, f"{prefix}{key}.") if is_section else {prefix + key}
    return found


def test_params_yaml_holds_every_setting_and_no_other() -> None:
    assert keys_of(read_yaml(ROOT / "params.yaml")) == {key for key, _, _ in settings(Params)}


def test_the_file_is_valid() -> None:
    assert load_params(ROOT / "params.yaml").task.name == "alfworld"


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("train: {steps: 3}\nhidden: {source: none}\n")
    params = load_params(path, {"train.steps": "5", "collect.tasks": "null"})
    assert (params.train.steps, params.hidden.source, params.collect.tasks) == (5, "none", None)


def test_flat_gives_scalars_by_dotted_key() -> None:
    values = flat(Params())
    assert values["hidden.source"] == "data"
    assert values["task.success_steps"] == "12,20"
    assert values["hidden.first_k"] is None
    assert all(isinstance(v, str | int | float | bool | None) for v in values.values())


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"task": {"step_limit": 10}}, "task.success_steps: .*task.step_limit"),
        ({"task": {"success_steps": [0, 20]}}, "task.success_steps"),
        ({"collect": {"num_beams": 2}}, "collect.num_beams: only 1 is possible"),
        ({"collect": {"prompt_template": "{plan}"}}, "collect.prompt_template has no {task}"),
        ({"base": {"heads": 3}}, "base.heads: expected a divisor of base.hidden_size"),
        ({"train": {"none_share": 0.9, "uninformed_share": 0.2}}, "train: none_share"),
        ({"base": {"none_share": 0.9, "uninformed_share": 0.2}}, "base: none_share"),
        ({"hidden": {"source": "telepathy"}}, "hidden.source: expected one of data, text"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tree: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_params(tree)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run from the repository"):
        load_params(tmp_path / "params.yaml")
