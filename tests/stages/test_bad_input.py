"""Every stage tells a mistake in one line, status 2, and leaves nothing behind.

Mistakes that the scripts' own tests cover are not repeated here. Processes run two at a time, each
in a folder of its own.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from interlat.tasks import Task, write_tasks

ROOT = Path(__file__).parent.parent.parent
DEMONSTRATION = (
    {"from": "human", "value": "put a plate in fridge."},
    {"from": "gpt", "value": "look"},
)
DEMONSTRATED = [
    Task(name, "alfworld", "train", "put a plate in fridge.", None, "search", DEMONSTRATION)
    for name in ("a", "b")
]


class Mistake(NamedTuple):
    """How a stage is called, and what its error says; {tiny} is a checkpoint."""

    stage: str
    arguments: str
    words: str
    store: str | None = None
    """Where MLflow is said to be."""


class Told(NamedTuple):
    """What came of a mistake."""

    status: int
    errors: str
    new_files: set[Path]


SETTINGS = {
    "params.yaml": "launch: {processes: 1}\ntask: {train_games: 2, valid_games: 1}\n",
    "typo.yaml": "seed: 1\ntrain: {stpes: 3}\n",
    "type.yaml": "base: {steps: many}\n",
    "range.yaml": "task: {train_games: 0}\n",
    "source.yaml": "hidden: {source: coffee}\n",
    "broken.yaml": "seed: 1\ntask: [\n",
    "section.yaml": "collect: 3\n",
}
TASKS = {
    "cut.jsonl": '{"task_id": "a", "env": "alfworld", "split": "train", "instruction": "x"}\n{"tas',
    "field.jsonl": '{"task_id": "a", "env": "alfworld", "split": "train"}\n',
    "empty.jsonl": "",
    "tasks.json": '[{"id": "a", "task": "x"}, {"id": "a", "task": "y"}]',
}
AT_ONCE = {
    "a key that is none": Mistake(
        "base", "--params typo.yaml", "train.stpes: unknown key; did you mean train.steps?"
    ),
    "a word for a number": Mistake(
        "prepare", "--params type.yaml", "base.steps: expected an integer >= 1, found 'many'"
    ),
    "a number out of range": Mistake(
        "train", "--params range.yaml", "task.train_games: expected an integer >= 1, found 0"
    ),
    "a source that is none": Mistake(
        "report",
        "--params source.yaml",
        "hidden.source: expected one of data, text, none, random_other, white_noise, noised",
    ),
    "settings that are not YAML": Mistake(
        "evaluate", "--params broken.yaml", "broken.yaml, line 3: not valid YAML"
    ),
    "a value for a section": Mistake(
        "collect", "--params section.yaml", "collect: expected a section of `key: value`, found 3"
    ),
    "a task cut off": Mistake(
        "collect", "--dataset_path cut.jsonl", "cut.jsonl, line 2: not valid JSON"
    ),
    "a task without its text": Mistake(
        "collect",
        "--dataset_path field.jsonl",
        "field.jsonl, line 1: field 'instruction' must be text that is not empty",
    ),
    "no task": Mistake(
        "collect", "--dataset_path empty.jsonl", "empty.jsonl: there is no record in it"
    ),
    "an id that comes twice": Mistake(
        "collect", "--dataset_path tasks.json", "tasks.json, record 2: id 'a' comes twice"
    ),
    "a field that is none": Mistake(
        "collect",
        "--dataset_path tasks.json --task_field goal",
        "tasks.json, record 1: has no field 'goal', choose with --task_field; the fields there: id",
    ),
    "a dataset that is not there": Mistake(
        "collect", "--dataset_path ./tasks", "./tasks: no such file or folder"
    ),
    "a dataset without a network": Mistake(
        "collect", "math --subjects algebra", "EleutherAI/hendrycks_math: there is no such file"
    ),
    "a subject that is none": Mistake(
        "collect", "--subjects algebra magic", "collect.subjects: expected one of algebra, counting"
    ),
    "beams": Mistake("collect", "--num_beams 4", "collect.num_beams: only 1 is possible, found 4"),
    "a prompt without the task": Mistake(
        "collect", "--custom_prompt Plan!", "collect.prompt_template has no {task}"
    ),
    "tasks that are not there": Mistake(
        "collect",
        "--split valid",
        "data/tasks/layout/valid.jsonl: no such file; stages/prepare.py",
    ),
}
AFTER_A_WHILE = {
    "an MLflow server that is down": Mistake(
        "prepare", "", "the MLflow store http://127.0.0.1:9 does not answer", "http://127.0.0.1:9"
    ),
    "an MLflow store that cannot be": Mistake(
        "prepare", "", "/proc/none: this folder cannot be made", "sqlite:////proc/none/mlflow.db"
    ),
    "games under a file": Mistake(
        "prepare", "--output_dir file", "file/tasks/layout: this folder cannot be made: Not a direc"
    ),
    "a base model where nothing can be": Mistake(
        "base", "--output_dir /proc/none/base", "/proc/none/base.partial: this folder cannot be"
    ),
    "messages under a file, by two processes": Mistake(
        "collect",
        "--processes 2 --sender_path {tiny} --output_dir file/store",
        "file/store.partial: this folder cannot be made: Not a directory",
    ),
    "episodes under a file": Mistake(
        "evaluate",
        "--condition none --splits train --model_path {tiny} --output_dir file",
        "file/train: this folder cannot be made: Not a directory",
    ),
    "a sender that is not there": Mistake("collect", "", "model path 'models/base' does not exist"),
    "messages that are not there": Mistake(
        "train", "", "data/latents/layout/train holds no messages"
    ),
}


def workspace(folder: Path) -> Path:
    """A folder with settings and one task; no games, no messages and no models."""
    folder.mkdir()
    for name, text in {**SETTINGS, **TASKS, "file": ""}.items():
        (folder / name).write_text(text)
    for knowledge in ("layout", "none"):
        write_tasks(folder / "data" / "tasks" / knowledge / "train.jsonl", DEMONSTRATED)
    return folder


def make(mistake: Mistake, folder: Path, tiny: Path) -> Told:
    runs = folder.with_name("runs") / "mlflow.db"
    environment = {
        "MLFLOW_TRACKING_URI": mistake.store or f"sqlite:///{runs}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "HF_HUB_OFFLINE": "1",
    }
    before = set(workspace(folder).rglob("*"))
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "stages" / f"{mistake.stage}.py",
            *mistake.arguments.format(tiny=tiny).split(),
        ],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    return Told(done.returncode, done.stderr, set(folder.rglob("*")) - before)


def make_all(mistakes: Mapping[str, Mistake], folder: Path, tiny: Path) -> dict[str, Told]:
    with ThreadPoolExecutor(2) as pool:
        jobs = {
            name: pool.submit(make, mistake, folder / str(number), tiny)
            for number, (name, mistake) in enumerate(mistakes.items())
        }
    return {name: job.result() for name, job in jobs.items()}


@pytest.fixture(scope="module")
def told_at_once(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path
) -> dict[str, Told]:
    return make_all(AT_ONCE, tmp_path_factory.mktemp("at_once"), tiny_checkpoint)


@pytest.fixture(scope="module")
def told_after_a_while(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path
) -> dict[str, Told]:
    return make_all(AFTER_A_WHILE, tmp_path_factory.mktemp("after"), tiny_checkpoint)


def check(told: Told, words: str) -> None:
    lines = told.errors.splitlines()
    assert [line for line in lines if not line.startswith("error: ")] == []
    assert len(lines) == 1
    assert words in lines[0]
    assert told.status == 2
    assert told.new_files == set()


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_mistake_in_settings_or_tasks(told_at_once: dict[str, Told], name: str) -> None:
    check(told_at_once[name], AT_ONCE[name].words)


@pytest.mark.slow
@pytest.mark.parametrize("name", AFTER_A_WHILE)
def test_what_cannot_be_read_written_or_reached(
    told_after_a_while: dict[str, Told], name: str
) -> None:
    check(told_after_a_while[name], AFTER_A_WHILE[name].words)
