"""README and docs promise nothing that is not there: commands, flags, settings, links, table."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from interlat.config import Params, load_params
from interlat.presets import choose
from interlat.schema import read_yaml, settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
KEYS = {key for key, _, _ in settings(Params)}
SECTIONS = {key.partition(".")[0] for key in KEYS if "." in key}
FILES = ("py", "json", "csv", "safetensors", "yaml", "journal")
"""Endings of file names that begin like a setting."""


def commands() -> Iterator[tuple[str, str]]:
    """(page, command): every line of a shell block, every piece of code that starts a program."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                yield page.name, line.strip()
        for code in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            if re.match(r"(python|torchrun|make|dvc|mlflow) ", code):
                yield page.name, code


COMMANDS = sorted(set(commands()))


def having(word: str) -> list[tuple[str, str]]:
    return [(page, command) for page, command in COMMANDS if re.search(word, command)]


@cache
def stage(name: str) -> click.Command:
    path = ROOT / "stages" / f"{name}.py"
    assert path.is_file(), f"stages/{name}.py does not exist"
    spec = importlib.util.spec_from_file_location(f"stage_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command = module.main
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize(("page", "command"), having(r"stages/"))
def test_a_stage_takes_the_flags_that_are_written(page: str, command: str) -> None:
    words = shlex.split(command, comments=True)
    script = next(i for i, word in enumerate(words) if word.startswith("stages/"))
    name, arguments = Path(words[script]).stem, words[script + 1 :]
    if "--help" in arguments:
        arguments.remove("--help")
    program = stage(name)
    if isinstance(program, click.Group):
        if not arguments:
            return
        program = program.commands[arguments.pop(0)]
    context = program.make_context(name, list(arguments))
    if name == "configure":
        choose(context.params["choices"], ROOT / "conf")
    else:
        sets = dict(item.split("=", 1) for item in context.params.get("assignments", ()))
        load_params(ROOT / "params.yaml", sets)


@pytest.mark.parametrize(("page", "command"), having(r"^dvc exp run.* -S "))
def test_an_experiment_changes_settings_that_exist(page: str, command: str) -> None:
    sets = re.findall(r"-S (\S+)=(\S+)", command)
    assert load_params(ROOT / "params.yaml", dict(sets)) != load_params(ROOT / "params.yaml")


@pytest.mark.parametrize(("page", "command"), having(r"^make "))
def test_a_target_of_make_exists(page: str, command: str) -> None:
    target = command.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


@pytest.mark.parametrize(("page", "command"), having(r"^dvc repro \w"))
def test_a_pipeline_that_is_named_exists(page: str, command: str) -> None:
    assert (ROOT / shlex.split(command, comments=True)[2]).is_file()


@pytest.mark.parametrize(("page", "command"), having(r"^mlflow run "))
def test_an_entry_point_of_mlflow_has_the_parameters_that_are_written(
    page: str, command: str
) -> None:
    entries = read_yaml(ROOT / "MLproject")["entry_points"]
    (entry,) = re.findall(r" -e (\w+)", command)
    assert set(re.findall(r" -P (\w+)=", command)) <= set(entries[entry]["parameters"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`([a-z]+\.[a-z_0-9]+)(?:: [^`]*)?`", page.read_text(encoding="utf-8"))
    dotted = {n for n in named if n.split(".")[0] in SECTIONS and n.split(".")[1] not in FILES}
    assert dotted <= KEYS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_stage_has_its_row() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    scripts = sorted((ROOT / "stages").glob("*.py"))
    assert [script.name for script in scripts if f"python stages/{script.name}" not in text] == []


def test_the_table_of_the_readme_is_the_published_one() -> None:
    """After a final run, docs/final/table.md goes between the README's markers."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- table -->\n(.*)<!-- /table -->", readme, re.DOTALL)
    assert shown == (ROOT / "docs" / "final" / "table.md").read_text(encoding="utf-8")


def test_the_list_of_final_runs_has_its_columns() -> None:
    lines = (ROOT / "docs" / "final-runs.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "date,commit,seed,splits,conditions,note"
    assert all(line.count(",") >= 5 for line in lines)
