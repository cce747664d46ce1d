"""params.yaml, dvc.yaml, MLproject, the lock file and the code say the same."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from interlat.config import Params
from interlat.schema import read_yaml, settings

ROOT = Path(__file__).parent.parent
STAGES: dict[str, Any] = read_yaml(ROOT / "dvc.yaml")["stages"]
GLUE = {
    "config",
    "schema",
    "presets",
    "cli",
    "earlier",
    "tracking",
    "files",
    "distributed",
    "__init__",
}


def script(stage: str) -> str:
    return str(STAGES[stage]["cmd"].split()[1])


def imported(path: Path) -> Iterator[Path]:
    """The package's modules that a file imports, at its top or inside its functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            base = ROOT.joinpath(*name.split("."))
            if name.startswith("interlat"):
                candidates = (base.with_suffix(".py"), base / "__init__.py")
                yield from (file for file in candidates if file.is_file())


def needed(path: Path) -> set[Path]:
    """Every module that a stage's numbers rest on: what it imports, but for the glue."""
    found: set[Path] = set()
    queue = [path]
    while queue:
        new = set(imported(queue.pop())) - found
        found |= new
        queue += [file for file in new if file.stem not in GLUE - {"__init__"}]
    return {file.relative_to(ROOT) for file in found if file.stem not in GLUE}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_the_code_that_it_imports(stage: str) -> None:
    deps = [Path(dep) for dep in STAGES[stage]["deps"]]
    assert Path(script(stage)) in deps
    code = needed(ROOT / script(stage))
    missing = {file for file in code if not any(d == file or d in file.parents for d in deps)}
    assert missing == set()
    for dep in deps:
        if dep.parts[0] == "interlat":
            assert any(dep == file or dep in file.parents for file in code), f"{dep} is not used"


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_s_params_exist(stage: str) -> None:
    keys = {key for key, _, _ in settings(Params)}
    known = keys | {key.partition(".")[0] for key in keys}
    assert set(STAGES[stage].get("params", [])) <= known


def test_a_change_of_the_message_s_source_touches_only_evaluate_and_report() -> None:
    touched = {
        stage
        for stage, entry in STAGES.items()
        if {"hidden", "hidden.source"} & set(entry.get("params", []))
    }
    assert touched == {"evaluate", "report"}


def test_every_stage_is_an_entry_point_of_mlflow() -> None:
    entries = read_yaml(ROOT / "MLproject")["entry_points"]
    assert set(STAGES) <= set(entries)
    for stage in STAGES:
        assert entries[stage]["command"].startswith(f"python {script(stage)} ")


def test_the_lock_file_pins_every_dependency_to_a_version_that_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    assert not [version for version in versions.values() if "+" in version]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for requirement in map(Requirement, wanted):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_what_dvc_keeps_is_ignored_by_git_at_the_root() -> None:
    """DVC's own ignore files vanish with data/, and the next `git add` would commit it."""
    ignored = re.findall(r"^/(\w+)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    for entry in STAGES.values():
        for out in entry["outs"]:
            assert out.split("/")[0] in ignored
