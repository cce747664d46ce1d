"""One MLflow run a stage, nested under one run a pipeline; the only module that knows mlflow.

    with stage_run("train", params, inputs=[latents], outputs=[actor]) as run:
        run.log_metrics({"loss": 0.5}, step=10)

Only rank 0 tracks; every other rank gets a run that does nothing. A stage that was interrupted
continues its run. A run ends FINISHED, FAILED or KILLED: a small watchdog process ends it even
when the stage is killed without warning. Points are kept back and sent in batches.
"""

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from interlat import distributed
from interlat.config import Params, Scalar, UserError, flat, load_params
from interlat.files import make_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

_BATCH_POINTS = 500
_BATCH_SECONDS = 5.0
_PROBE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
_ENDED_WELL = "FINISHED"


class StageRun(Protocol):
    """What a stage may record."""

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Keep one point of each metric; sent in batches."""

    def log_artifact(self, path: Path) -> None:
        """Store a file or a folder with the run."""

    def log_dataset(self, path: Path, name: str, digest: str) -> None:
        """Name a data set that the run read, with its digest."""


@contextmanager
def stage_run(
    stage: str, params: Params, *, inputs: Sequence[Path] = (), outputs: Sequence[Path] = ()
) -> Iterator[StageRun]:
    """Track the block as a run of `stage`; its tags carry the md5 of every input and output.

    The md5 is DVC's own, for files and folders alike. Raises UserError when the store cannot be
    reached, before the block starts.
    """
    if not distributed.is_main():
        yield _Untracked()
        return
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.exceptions import MlflowException

    uri = store_uri(params)
    with _alone(uri):
        client, experiment = _connect(uri, params.tracking.experiment)
        parent = _parent_run(client, experiment, params)
    run = _child_run(client, experiment, parent, stage)
    owned = [run] if "MLFLOW_RUN_ID" in os.environ else [run, parent]
    tracked = _Tracked(client, run)
    status = "FAILED"
    with _watchdog(uri, owned):
        try:
            _describe(client, run, params, {f"dep.md5.{path}": dvc_md5(path) for path in inputs})
            yield tracked
            tracked.flush()
            for path in outputs:
                client.set_tag(run, f"out.md5.{path}", dvc_md5(path))
            status = _ENDED_WELL
        except (KeyboardInterrupt, SystemExit):
            status = "KILLED"
            raise
        finally:
            if status != _ENDED_WELL:
                with suppress(MlflowException):
                    tracked.flush()
            for owner in owned:
                client.set_terminated(owner, status)


def main_workspace(start: Path | None = None) -> Path:
    """The root of the checkout, also from inside DVC's throw-away copy of it (`exp run --temp`)."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if folder.name == "exps" and folder.parent.name == "tmp":
            workspace = folder.parent.parent
            if workspace.name == ".dvc":
                return workspace.parent
    return next((f for f in (here, *here.parents) if (f / ".dvc").is_dir()), here)


def store_uri(params: Params) -> str:
    """MLFLOW_TRACKING_URI, else tracking.uri, else mlflow.db in the main workspace."""
    given = os.environ.get("MLFLOW_TRACKING_URI") or params.tracking.uri
    return given or f"sqlite:///{main_workspace() / 'mlflow.db'}"


def dvc_md5(path: Path) -> str:
    """The md5 that DVC records for a file or a folder (`.dir`), or `absent`."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        entries = [{"md5": _md5(f), "relpath": f.relative_to(path).as_posix()} for f in files]
        listing = json.dumps(sorted(entries, key=lambda entry: entry["relpath"]), sort_keys=True)
        return hashlib.md5(listing.encode(), usedforsecurity=False).hexdigest() + ".dir"
    return _md5(path) if path.exists() else "absent"


class _Untracked:
    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Rank 0 records."""

    def log_artifact(self, path: Path) -> None:
        """Rank 0 records."""

    def log_dataset(self, path: Path, name: str, digest: str) -> None:
        """Rank 0 records."""


@dataclass
class _Tracked:
    client: "MlflowClient"
    run: str
    points: "list[Metric]" = field(default_factory=list)
    sent: float = field(default_factory=time.monotonic)

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.points += [Metric(key, float(value), now, step) for key, value in metrics.items()]
        waited = time.monotonic() - self.sent
        if len(self.points) >= _BATCH_POINTS or waited >= _BATCH_SECONDS:
            self.flush()

    def flush(self) -> None:
        while self.points:
            self.client.log_batch(self.run, metrics=self.points[:_BATCH_POINTS])
            del self.points[:_BATCH_POINTS]
        self.sent = time.monotonic()

    def log_artifact(self, path: Path) -> None:
        if path.is_dir():
            self.client.log_artifacts(self.run, str(path), artifact_path=path.name)
        else:
            self.client.log_artifact(self.run, str(path))

    def log_dataset(self, path: Path, name: str, digest: str) -> None:
        from mlflow.entities import Dataset, DatasetInput

        source = json.dumps({"uri": str(path)})
        data = Dataset(name, digest[:36], source_type="local", source=source)
        self.client.log_inputs(self.run, [DatasetInput(data)])


def _connect(uri: str, experiment: str) -> "tuple[MlflowClient, str]":
    """A client and the id of the experiment, made where needed: `mlflow run`'s own, or the named.

    Raises UserError, within seconds, when the store does not answer.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    database = _sqlite_file(uri)
    try:
        with _environment(_PROBE), _without_warnings("urllib3"):
            client = MlflowClient(uri)
            if given := os.environ.get("MLFLOW_RUN_ID"):
                return client, str(client.get_run(given).info.experiment_id)
            return client, _experiment(client, experiment, database and database.parent)
    except MlflowException as error:
        reason = str(error).splitlines()[0][:200]
        raise UserError(
            f"the MLflow store {uri} does not answer: {reason}; start it, or choose another "
            "with MLFLOW_TRACKING_URI or tracking.uri"
        ) from None


def _experiment(client: "MlflowClient", name: str, folder: Path | None) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    try:
        location = None if folder is None else (folder / "mlartifacts" / name).as_uri()
        return client.create_experiment(name, artifact_location=location)
    except MlflowException:
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)


def _parent_run(client: "MlflowClient", experiment: str, params: Params) -> str:
    """The pipeline's run: `mlflow run`'s own, else the one that carries this pipeline's key."""
    if given := os.environ.get("MLFLOW_RUN_ID"):
        return given
    key = _pipeline_key(params)
    found = _search(client, experiment, {"interlat.pipeline": key, "interlat.kind": "pipeline"})
    if found:
        run = found[0].info.run_id
        client.update_run(run, status="RUNNING")
        return str(run)
    tags = {"interlat.pipeline": key, "interlat.kind": "pipeline"}
    return str(client.create_run(experiment, run_name=key, tags=tags).info.run_id)


def _child_run(client: "MlflowClient", experiment: str, parent: str, stage: str) -> str:
    """A new run of the stage, or its last one when that did not finish."""
    name = os.environ.get("DVC_STAGE") or stage
    tags = {"mlflow.parentRunId": parent, "mlflow.runName": name, "interlat.kind": "stage"}
    for run in _search(client, experiment, tags)[:1]:
        if run.info.status != _ENDED_WELL:
            client.update_run(run.info.run_id, status="RUNNING")
            return str(run.info.run_id)
    tags |= {"dvc.stage": name, "mlflow.source.name": sys.argv[0], "mlflow.source.type": "LOCAL"}
    return str(client.create_run(experiment, run_name=name, tags=tags).info.run_id)


def _search(client: "MlflowClient", experiment: str, tags: Mapping[str, str]) -> "list[Run]":
    query = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    return list(client.search_runs([experiment], query, order_by=["attributes.start_time DESC"]))


def _describe(client: "MlflowClient", run: str, params: Params, digests: Mapping[str, str]) -> None:
    from mlflow.entities import Param, RunTag

    logged = client.get_run(run).data.params
    new = [Param(k, _text(v)) for k, v in flat(params).items() if k not in logged]
    tags = {**_git_tags(), **_dvc_tags(), **digests}
    client.log_batch(run, params=new, tags=[RunTag(k, v) for k, v in tags.items()])


def _pipeline_key(params: Params) -> str:
    """What the stages of a pipeline share: under DVC params.yaml, whatever a stage's flags say."""
    if name := os.environ.get("DVC_EXP_NAME"):
        return name
    shared = Path(os.environ.get("DVC_ROOT", os.devnull), "params.yaml")
    if shared.is_file():
        params = load_params(shared)
    settings = json.dumps(flat(params), sort_keys=True).encode()
    return f"repro-{(_git('rev-parse', 'HEAD') or 'no-git')[:7]}-{_short_digest(settings)}"


def _dvc_tags() -> dict[str, str]:
    names = {"dvc.exp_name": "DVC_EXP_NAME", "dvc.baseline_rev": "DVC_EXP_BASELINE_REV"}
    return {tag: os.environ[name] for tag, name in names.items() if name in os.environ}


def _git_tags() -> dict[str, str]:
    head = _git("rev-parse", "HEAD")
    if not head:
        return {}
    dirty = bool(_git("status", "--porcelain", "--untracked-files=no"))
    return {"git.commit": head, "mlflow.source.git.commit": head, "git.dirty": str(dirty).lower()}


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _short_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:7]


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _text(value: Scalar) -> str:
    return "null" if value is None else str(value)[:6000]


def _sqlite_file(uri: str) -> Path | None:
    prefix = "sqlite:///"
    return Path(uri.removeprefix(prefix)).resolve() if uri.startswith(prefix) else None


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Keep other processes away from a SQLite store: initialising one twice at once breaks it."""
    from filelock import FileLock

    database = _sqlite_file(uri)
    if database is None:
        yield
        return
    make_folder(database.parent)
    with FileLock(f"{database}.lock"):
        yield


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _without_warnings(name: str) -> Iterator[None]:
    """Log nothing below an error: what goes wrong in the block is told by its exception."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _watchdog(uri: str, runs: Sequence[str]) -> Iterator[None]:
    """A process that ends `runs` as KILLED when this one dies without saying goodbye.

    It sleeps on a pipe whose other end only this process holds, and imports mlflow only then.
    """
    command = [sys.executable, "-m", "interlat.tracking", uri, *runs]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            process.communicate(b"goodbye")


def _watch(uri: str, runs: Sequence[str]) -> None:
    if sys.stdin.buffer.read():
        return
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    for run in runs:
        client.set_terminated(run, "KILLED")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _watch(sys.argv[1], sys.argv[2:])
