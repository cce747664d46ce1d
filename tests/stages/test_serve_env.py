"""The stage as a process: it says where it listens, and leaves nothing behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec as find_package
from pathlib import Path

import psutil
import pytest

from interlat.config import TaskConfig
from interlat.envs import find, make
from interlat.tasks import Task

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.system]
SCIENCE = pytest.mark.skipif(
    find_package("scienceworld") is None or shutil.which("java") is None,
    reason='needs Java and pip install "interlat[scienceworld]"',
)


@contextmanager
def stage(name: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The stage on a free port, and its address; in a session of its own."""
    command = [sys.executable, "stages/serve_env.py", name, "--port", "0", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            yield process, said.split(" at ")[1].split(";")[0]
        finally:
            process.kill()


def play(kind: str, server: str) -> None:
    """Some steps of an episode; the instance is left open."""
    name = f"agentgym-{kind}"
    environment = make(name, **find(name).settings(TaskConfig(data=server), Path()))
    environment.reset(Task("t", "agentgym", "test", "?", env_args={"index": 0}))
    assert not environment.step("inventory").done


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        ("textcraft", signal.SIGTERM),
        ("alfworld", signal.SIGINT),
        ("alfworld", signal.SIGKILL),
        pytest.param("sciworld", signal.SIGINT, marks=SCIENCE),
        pytest.param("sciworld", signal.SIGKILL, marks=SCIENCE),
    ],
)
def test_a_stopped_server_leaves_no_process(name: str, stop: signal.Signals) -> None:
    with stage(name) as (process, server):
        play(name, server)
        family = psutil.Process(process.pid).children(recursive=True)
        assert ("java" in {child.name() for child in family}) == (name == "sciworld")
        if stop == signal.SIGINT:
            os.killpg(process.pid, stop)  # as a terminal does on Ctrl-C
        else:
            process.send_signal(stop)
        status = process.wait(60)
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[stop]
    assert psutil.wait_procs(family, timeout=30)[1] == []


def test_a_port_that_is_taken_is_the_users_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "stages/serve_env.py", "textcraft", "--port", port]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: --host 127.0.0.1 --port {port}: ")
    assert len(ended.stderr.splitlines()) == 1


@SCIENCE
def test_without_java_the_server_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "stages/serve_env.py", "sciworld", "--port", "0"]
    environment = {**os.environ, "PATH": str(tmp_path)}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "install the package default-jre-headless" in ended.stderr


def test_an_address_that_others_reach_is_warned_of() -> None:
    with stage("textcraft", "--host", "0.0.0.0") as (process, _):
        process.terminate()
        assert process.stderr is not None
        assert "can be reached from other machines" in process.stderr.read()
