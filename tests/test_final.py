"""The pipeline of the published table is the main one, with its own splits and seeds."""

from pathlib import Path
from typing import Any

import pytest

from interlat.schema import read_yaml

ROOT = Path(__file__).parent.parent
MAIN: dict[str, Any] = read_yaml(ROOT / "dvc.yaml")["stages"]
FINAL_FILE: dict[str, Any] = read_yaml(ROOT / "pipelines" / "final" / "dvc.yaml")
FINAL: dict[str, Any] = FINAL_FILE["stages"]
SAME = {"base": "base", "collect": "collect", "train": "train", "evaluate": "ablate"}


def body(stage: str) -> dict[str, Any]:
    entry: dict[str, Any] = FINAL[stage].get("do", FINAL[stage])
    return entry


def code(deps: list[str]) -> set[str]:
    names = {dep.removeprefix("../../") for dep in deps}
    return {name for name in names if name.startswith(("interlat", "stages"))}


def params(entry: dict[str, Any]) -> set[str]:
    """Settings but for the seed, which stands in the command."""
    (listed,) = entry["params"]
    return set(listed["../../params.yaml"])


@pytest.mark.parametrize(("final", "main"), SAME.items())
def test_a_stage_rests_on_the_same_code_and_settings(final: str, main: str) -> None:
    assert code(body(final)["deps"]) == code(MAIN[main]["deps"])
    assert params(body(final)) == set(MAIN[main]["params"]) - {"seed"}


def test_the_games_rest_on_the_same_code() -> None:
    assert code(FINAL["games"]["deps"]) == code(MAIN["prepare"]["deps"])


def test_every_stage_of_a_seed_is_told_its_seed() -> None:
    assert "--seed ${item}" in body("base")["cmd"]
    assert "--seed ${item}" in body("train")["cmd"]
    assert "--seed ${item.seed}" in body("collect")["cmd"]
    assert "--set seed=${item.seed}" in body("evaluate")["cmd"]


def test_the_table_is_of_every_seed() -> None:
    seeds = next(v["seeds"] for v in FINAL_FILE["vars"] if isinstance(v, dict))
    folders = [f"seed-{seed}" for seed in seeds]
    assert [Path(w).name for w in FINAL["pool"]["cmd"].split() if "seed-" in w] == folders
    assert [d.split("/")[0] for d in FINAL["pool"]["deps"] if "seed-" in d] == folders
    assert len(folders) >= 3
