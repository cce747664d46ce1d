"""The pipeline of the ablation trains what it says, plays all of it, and compares all of it."""

import importlib.util
from pathlib import Path
from typing import Any

import click
import pytest

from interlat.config import load_params
from interlat.schema import read_yaml

ROOT = Path(__file__).parent.parent
FILE: dict[str, Any] = read_yaml(ROOT / "pipelines" / "ablation" / "dvc.yaml")
STAGES: dict[str, Any] = FILE["stages"]
(LISTS,) = FILE["vars"]
MAIN: dict[str, Any] = read_yaml(ROOT / "dvc.yaml")["stages"]


def train_command() -> click.Command:
    spec = importlib.util.spec_from_file_location("train", ROOT / "stages" / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command = module.main
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize("name", LISTS["variants"])
def test_a_variant_changes_settings_that_exist(name: str) -> None:
    given = train_command().make_context("train", LISTS["variants"][name].split()).params
    changed = {key: value for key, value in given.items() if isinstance(value, str)}
    sets = {f"train.{key}": value for key, value in changed.items() if key != "output_dir"}
    assert sets
    assert load_params(ROOT / "params.yaml", sets) != load_params(ROOT / "params.yaml")


def test_every_actor_is_played_and_compared() -> None:
    trained = {*LISTS["variants"], *(f"kind-{kind}" for kind in LISTS["kinds"])}
    played = {v for s in ("evaluate", "words", "silence") for v in STAGES[s]["matrix"]["variant"]}
    assert played == trained
    compared = {Path(d).name for d in STAGES["compare"]["deps"] if d.startswith("run/plots/")}
    assert compared == trained
    assert all(f"run/plots/{name}/" in STAGES["compare"]["cmd"] for name in trained)


def test_it_rests_on_the_settings_of_the_main_pipeline() -> None:
    def settings(entry: dict[str, Any]) -> set[str]:
        (listed,) = entry["params"]
        return set(listed["../../params.yaml"])

    assert settings(STAGES["train"]["do"]) == set(MAIN["train"]["params"])
    without_noise = set(MAIN["ablate"]["params"]) - {"hidden.noise_std"}
    assert settings(STAGES["evaluate"]) == without_noise
