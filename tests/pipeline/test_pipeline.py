"""The whole story in miniature: dvc repro in a copy of this checkout, and what is promised of it.

Sizes are so small that nothing is learned; what is tested is that every stage hands the next one
what it needs, that nothing runs twice without a reason, and that nothing is lost.
"""

import csv
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from ruamel.yaml import YAML

from interlat.schema import place, read_yaml

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.slow, pytest.mark.system]
ROOT = Path(__file__).parent.parent.parent
LEFT_OUT = ("docs/", "metrics/", "pipelines/", "dvc.lock")
"""What is committed and is no source of this pipeline."""
SMALL: dict[str, Any] = {
    "launch.processes": 1,
    "task.train_games": 60,
    "task.valid_games": 6,
    "task.step_limit": 12,
    "task.success_steps": [8, 12],
    "base.hidden_size": 32,
    "base.layers": 2,
    "base.intermediate_size": 64,
    "base.steps": 10,
    "base.sender_batch": 8,
    "base.actor_batch": 12,
    "base.save_every": 4,
    "base.log_every": 2,
    "collect.tasks": 20,
    "collect.max_new_tokens": 24,
    "train.steps": 6,
    "train.batch_size": 8,
    "train.heads": 2,
    "train.save_every": 4,
    "train.log_every": 2,
    "evaluate.env_workers": 1,
    "ablate.conditions": ["data", "none"],
}
SPLITS = ("valid_seen", "valid_unseen")
COLLECTIONS = [f"{k}-{s}" for k in ("layout", "none") for s in ("train", *SPLITS)]
STAGES = {
    "prepare",
    "base",
    *(f"collect@{name}" for name in COLLECTIONS),
    "train",
    "evaluate",
    "ablate@data",
    "ablate@none",
    "report",
}


class Done(NamedTuple):
    """What a command said, and how long it took."""

    text: str
    seconds: float

    @property
    def stages(self) -> set[str]:
        """Stages that DVC ran."""
        lines = [line for line in self.text.splitlines() if line.startswith("Running stage '")]
        return {line.split("'")[1] for line in lines}


class Checkout(NamedTuple):
    """A checkout of its own with a small params.yaml."""

    root: Path
    environment: dict[str, str]

    def run(self, *command: str) -> Done:
        """Run a command that is to succeed."""
        start = time.monotonic()
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return Done(done.stdout + done.stderr, time.monotonic() - start)

    def commit(self, message: str) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", message)

    def read(self, name: str) -> Any:
        """A metrics file."""
        return json.loads((self.root / "metrics" / f"{name}.json").read_text())

    def rows(self, name: str) -> list[dict[str, str]]:
        """A plots file."""
        with (self.root / "plots" / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))


class Pipeline(NamedTuple):
    """A checkout in which dvc repro ran once, and the MLflow runs that it left."""

    checkout: Checkout
    first: Done
    runs: list[Run]


def check_out(folder: Path) -> Checkout:
    """Copy what git knows or would add, make params.yaml small, commit."""
    root = folder / "checkout"
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(LEFT_OUT):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    params = read_yaml(root / "params.yaml")
    for key, value in SMALL.items():
        place(params, key, value)
    YAML().dump(params, root / "params.yaml")
    foreign = ("MLFLOW_", "DVC_", "GIT_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(folder / "site-cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    checkout = Checkout(root, environment)
    checkout.run("git", "init", "--quiet")
    checkout.run("git", "config", "user.name", "Somebody")
    checkout.run("git", "config", "user.email", "somebody@example.org")
    checkout.commit("Small settings")
    return checkout


def read_runs(root: Path) -> list[Run]:
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("interlat")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    checkout = check_out(tmp_path_factory.mktemp("pipeline"))
    first = checkout.run("dvc", "repro")
    log.info("dvc repro: %.0f s", first.seconds)
    runs = read_runs(checkout.root)
    checkout.commit("Results")
    return Pipeline(checkout, first, runs)


def test_every_stage_ran_and_left_what_it_promises(pipeline: Pipeline) -> None:
    assert pipeline.first.stages == STAGES
    lock = read_yaml(pipeline.checkout.root / "dvc.lock")["stages"]
    assert set(lock) == STAGES
    outs = [out["path"] for stage in lock.values() for out in stage["outs"]]
    assert len(outs) == len(set(outs)) >= 2 * len(STAGES)
    for path in outs:
        assert (pipeline.checkout.root / path).exists(), path


def test_metrics_tell_what_was_asked_for(pipeline: Pipeline) -> None:
    read = pipeline.checkout.read
    games = {split: entry["games"] for split, entry in read("prepare").items()}
    assert games == {"train": 60, "valid_seen": 6, "valid_unseen": 6}
    assert read("base")["parameters"] > 10_000
    messages = {name: read(f"collect/{name}")["messages"] for name in COLLECTIONS}
    assert messages == {n: 20 if n.endswith("train") else 6 for n in COLLECTIONS}
    assert sum(v for k, v in read("train").items() if k.startswith("samples_")) == 6 * 8
    for name in ("evaluate", "ablate/data", "ablate/none"):
        assert {split: entry["n"] for split, entry in read(name).items()} == dict.fromkeys(
            SPLITS, 6
        )
        assert [entry["errors"] for entry in read(name).values()] == [0, 0]


def test_evaluate_plays_what_its_control_plays(pipeline: Pipeline) -> None:
    rows = pipeline.checkout.rows
    assert len(rows("evaluate")) == 12
    assert rows("evaluate") == rows("ablate/data")
    assert rows("evaluate") != rows("ablate/none")


def test_curves_and_table_are_written_and_shown(pipeline: Pipeline) -> None:
    checkout = pipeline.checkout
    assert [row["step"] for row in checkout.rows("base")] == ["2", "4", "6", "8", "10"]
    assert [row["step"] for row in checkout.rows("train")] == ["2", "4", "6"]
    shown = {(r["run"], r["split"], r["condition"]) for r in checkout.rows("success")}
    told = [("ablate", "data"), ("ablate", "none"), ("evaluate", "data")]
    assert shown == {(run, split, condition) for split in SPLITS for run, condition in told}
    assert "valid_unseen, 6 games" in pipeline.first.text
    page = (checkout.root / "report" / "index.html").read_text()
    assert page.count("data:image/png;base64,") >= 5


def test_mlflow_has_one_run_a_stage_under_one_pipeline(pipeline: Pipeline) -> None:
    (parent,) = (run for run in pipeline.runs if run.data.tags["interlat.kind"] == "pipeline")
    children = [run for run in pipeline.runs if run is not parent]
    assert sorted(run.info.run_name for run in children) == sorted(STAGES)
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in pipeline.runs} == {"FINISHED"}
    (evaluate,) = (run for run in children if run.info.run_name == "evaluate")
    lock = read_yaml(pipeline.checkout.root / "dvc.lock")["stages"]["evaluate"]
    deps = {dep["path"]: dep["md5"] for dep in lock["deps"]}
    assert evaluate.data.tags["dep.md5.models/actor"] == deps["models/actor"]
    assert evaluate.data.params["hidden.source"] == "data"


def test_a_second_repro_runs_nothing(pipeline: Pipeline) -> None:
    again = pipeline.checkout.run("dvc", "repro")
    log.info("dvc repro, nothing to do: %.1f s", again.seconds)
    assert again.stages == set()
    assert "Data and pipelines are up to date." in again.text
    assert again.seconds < 30


def test_push_and_pull_bring_everything_back(pipeline: Pipeline) -> None:
    checkout = pipeline.checkout
    checkout.run("dvc", "push")
    for name in ("data", "models", ".dvc/cache"):
        shutil.rmtree(checkout.root / name)
    checkout.run("dvc", "pull")
    assert (checkout.root / "models" / "actor" / "model.safetensors").is_file()
    assert "up to date" in checkout.run("dvc", "status").text
    assert checkout.run("git", "status", "--porcelain").text == ""


def test_stages_that_are_forced_give_the_same_bytes(pipeline: Pipeline) -> None:
    checkout = pipeline.checkout
    names = ["models/actor/model.safetensors", "plots/train.csv", "plots/evaluate.csv"]
    names += ["metrics/train.json", "metrics/evaluate.json"]
    before = {name: (checkout.root / name).read_bytes() for name in names}
    forced = checkout.run("dvc", "repro", "--force", "--single-item", "train", "evaluate")
    assert forced.stages == {"train", "evaluate"}
    assert {name: (checkout.root / name).read_bytes() for name in names} == before


def test_an_experiment_runs_only_what_it_changes_and_is_compared(pipeline: Pipeline) -> None:
    checkout = pipeline.checkout
    changed = checkout.run("dvc", "exp", "run", "--set-param", "hidden.source=random_other")
    assert changed.stages == {"evaluate", "report"}
    assert {row["condition"] for row in checkout.rows("evaluate")} == {"random_other"}
    assert {row["condition"] for row in checkout.rows("ablate/data")} == {"data"}
    table = checkout.run("dvc", "exp", "show", "--csv").text
    sources = {
        row["rev"]: (row["hidden.source"], row["metrics/evaluate.json:valid_seen.success_12"])
        for row in csv.DictReader(table.splitlines())
    }
    assert sorted(source for source, success in sources.values() if success) == [
        "data",
        "random_other",
        "random_other",
    ]
