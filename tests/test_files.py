"""Files are whole or absent, names are safe and distinct."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat.config import UserError
from interlat.files import (
    atomic_directory,
    atomic_write_json,
    atomic_write_text,
    read_json,
    safe_name,
    sha256_file,
)


def test_json_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    atomic_write_json(path, {"name": "é", "values": [1, 2.5, None]})
    assert read_json(path) == {"name": "é", "values": [1, 2.5, None]}
    assert [entry.name for entry in path.parent.iterdir()] == ["b.json"]


def test_a_failed_directory_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with atomic_directory(target) as folder:
        (folder / "x").write_text("old")
    with pytest.raises(RuntimeError), atomic_directory(target) as folder:
        (folder / "x").write_text("new")
        raise RuntimeError
    assert (target / "x").read_text() == "old"
    with atomic_directory(target) as folder:
        (folder / "y").write_text("new")
    assert [entry.name for entry in target.iterdir()] == ["y"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("wait", [0.0, 0.01, 0.03, 0.06])
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path, wait: float) -> None:
    path = tmp_path / "numbers"
    atomic_write_text(path, "0" * 1_000_000)
    program = (
        "import sys; from pathlib import Path; from interlat.files import atomic_write_text\n"
        "print('ready', flush=True)\n"
        "for i in range(10**6): atomic_write_text(Path(sys.argv[1]), str(i % 10) * 1_000_000)"
    )
    writer = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(wait)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    content = path.read_text()
    assert len(content) == 1_000_000
    assert len(set(content)) == 1


@given(st.lists(st.text(max_size=200), unique=True, max_size=30))
def test_different_ids_have_different_safe_names(ids: list[str]) -> None:
    names = [safe_name(task_id) for task_id in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        assert 0 < len(name) <= 100
        assert os.sep not in name
        assert name not in {".", ".."}
        assert name.isascii()


def test_a_plain_id_stays_readable() -> None:
    assert safe_name("valid_seen-0007") == "valid_seen-0007"
    assert safe_name("pick_two/room 3").startswith("pick_two_room_3+")


def test_an_episode_never_takes_the_summary_s_name() -> None:
    assert safe_name("summary") != "summary"


def test_the_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256_file(tmp_path / "x").startswith("ba7816bf8f01cfea")


def test_bad_json_is_a_user_s_mistake(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(UserError, match=r"x\.json: not valid JSON"):
        read_json(tmp_path / "x.json")
    with pytest.raises(UserError, match="no such file"):
        read_json(tmp_path / "y.json")
