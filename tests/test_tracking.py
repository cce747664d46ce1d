"""Runs nest, resume, carry DVC's digests, and never stay RUNNING."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from interlat.config import HiddenConfig, Params, UserError
from interlat.tracking import dvc_md5, main_workspace, stage_run, store_uri

STAGE = """
import os, signal, sys
from interlat.config import Params
from interlat.tracking import stage_run
with stage_run(sys.argv[1], Params()) as run:
    run.log_metrics({"loss": 1.0}, step=1)
    if sys.argv[2] == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def runs() -> dict[str, Run]:
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("interlat")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    names = [run.info.run_name for run in found]
    assert len(set(names)) == len(names)
    return {str(run.info.run_name): run for run in found}


def start(folder: Path, stage: str, end: str) -> "subprocess.Popen[bytes]":
    (folder / "stage.py").write_text(STAGE)
    return subprocess.Popen([sys.executable, folder / "stage.py", stage, end])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_stage_s_run_holds_params_points_digests_and_its_parent(folder: Path) -> None:
    Path("in").write_text("abc")
    with stage_run("train", Params(), inputs=[Path("in")], outputs=[Path("out")]) as run:
        for step in range(3):
            run.log_metrics({"loss": 1.0 / (step + 1), "valid/success": 0.5}, step)
        Path("out").mkdir()
        Path("out/x").write_text("x")
        run.log_artifact(Path("in"))
        run.log_dataset(Path("in"), "messages", "0123")
    train = runs()["train"]
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    history = client.get_metric_history(train.info.run_id, "loss")
    assert [(point.step, round(point.value, 3)) for point in history] == [
        (0, 1.0),
        (1, 0.5),
        (2, 0.333),
    ]
    assert train.data.params["hidden.source"] == "data"
    assert train.data.tags["dvc.stage"] == "train"
    assert train.data.tags["dep.md5.in"] == "900150983cd24fb0d6963f7d28e17f72"
    assert train.data.tags["out.md5.out"].endswith(".dir")
    assert [item.dataset.digest for item in train.inputs.dataset_inputs] == ["0123"]
    assert [entry.path for entry in client.list_artifacts(train.info.run_id)] == ["in"]
    assert train.info.status == "FINISHED"
    parent = client.get_run(train.data.tags["mlflow.parentRunId"])
    assert parent.info.status == "FINISHED"

    with pytest.raises(ZeroDivisionError), stage_run("evaluate", Params()):
        raise ZeroDivisionError
    with pytest.raises(SystemExit), stage_run("report", Params()):
        sys.exit(143)
    assert (runs()["evaluate"].info.status, runs()["report"].info.status) == ("FAILED", "KILLED")

    first = runs()["evaluate"].info.run_id
    with stage_run("evaluate", Params()):
        pass
    assert runs()["evaluate"].info.run_id == first
    assert runs()["evaluate"].info.status == "FINISHED"
    assert runs()["evaluate"].data.tags["mlflow.parentRunId"] == parent.info.run_id

    with stage_run("other", Params(hidden=HiddenConfig(source="none"))):
        pass
    assert runs()["other"].data.tags["mlflow.parentRunId"] != parent.info.run_id


@pytest.mark.slow
def test_two_stages_may_open_a_fresh_store_at_once(folder: Path) -> None:
    """Guards against the crash of two processes that initialise one SQLite store together."""
    both = [start(folder, name, "well") for name in ("one", "two")]
    assert [process.wait() for process in both] == [0, 0]
    found = runs()
    assert {found[name].info.status for name in ("one", "two")} == {"FINISHED"}
    assert len(found) == 3


@pytest.mark.slow
def test_a_stage_killed_without_warning_does_not_stay_running(folder: Path) -> None:
    assert start(folder, "train", "SIGKILL").wait() == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while "RUNNING" in {run.info.status for run in runs().values()}:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert {run.info.status for run in runs().values()} == {"KILLED"}


@pytest.mark.slow
def test_a_server_that_is_down_is_said_before_work_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    begin = time.monotonic()
    with pytest.raises(UserError, match="does not answer"), stage_run("train", Params()):
        pytest.fail("the block must not start")
    assert time.monotonic() - begin < 20


def test_other_ranks_record_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with stage_run("train", Params()) as run:
        run.log_metrics({"loss": 1.0})
        run.log_artifact(Path("missing"))
    assert list(folder.iterdir()) == []


def test_the_store_is_in_the_main_workspace_even_from_a_throw_away_copy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = folder / ".dvc" / "tmp" / "exps" / "standalone" / "tmpab" / "deep"
    (copy.parent / ".dvc").mkdir(parents=True)
    copy.mkdir()
    assert main_workspace(copy) == folder
    (folder / "stages").mkdir()
    assert main_workspace(folder / "stages") == folder
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.chdir(copy)
    assert store_uri(Params()) == f"sqlite:///{folder / 'mlflow.db'}"


def test_digests_are_those_of_dvc(folder: Path) -> None:
    from dvc_data.hashfile.build import build
    from dvc_data.hashfile.db import HashFileDB
    from dvc_objects.fs.local import LocalFileSystem

    store = Path("store")
    for name in ("b/2", "a.txt", "a/1", "é"):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(name)
    odb = HashFileDB(LocalFileSystem(), str(folder / "cache"))
    _, _, tree = build(odb, str(store.resolve()), LocalFileSystem(), "md5")
    assert tree.hash_info is not None
    assert dvc_md5(store) == tree.hash_info.value
    assert dvc_md5(Path("nowhere")) == "absent"
