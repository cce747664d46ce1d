"""Shards cover everything once; ranks meet; a stage starts itself under torchrun."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlat import distributed

STAGE = """
import sys
from pathlib import Path
from interlat import distributed
from interlat.cli import stage_command
from interlat.config import Params, UserError

@stage_command("launch", parallel=True)
def main(params: Params) -> None:
    rank, folder = distributed.rank(), Path(sys.argv[0]).parent
    (folder / f"before-{rank}").touch()
    distributed.barrier()
    part = distributed.shard(5)
    seen = sorted(path.name for path in folder.glob("before-*"))
    (folder / f"rank-{rank}").write_text(f"{list(part)} {seen}")
    if (folder / "fail").exists():
        raise UserError("the input is empty")

main()
"""


@given(st.integers(0, 1000), st.integers(1, 17))
def test_shards_are_contiguous_even_and_cover_everything(count: int, world: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", str(world))
        parts = []
        for rank in range(world):
            patch.setenv("RANK", str(rank))
            parts.append(distributed.shard(count))
    assert [i for part in parts for i in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_alone_there_is_nobody_to_wait_for() -> None:
    distributed.init()
    distributed.barrier()
    distributed.relaunch(1)
    assert distributed.is_main()
    assert distributed.shard(3) == range(3)


def start(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "params.yaml").write_text("launch: {processes: 2}\n")
    (folder / "stage.py").write_text(STAGE)
    command = [sys.executable, folder / "stage.py", "--params", folder / "params.yaml", *flags]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_two_processes_meet_and_share_the_work(tmp_path: Path) -> None:
    done = start(tmp_path)
    assert done.returncode == 0, done.stderr
    both = "['before-0', 'before-1']"
    assert (tmp_path / "rank-0").read_text() == f"[0, 1] {both}"
    assert (tmp_path / "rank-1").read_text() == f"[2, 3, 4] {both}"


@pytest.mark.slow
def test_a_mistake_of_the_user_s_stays_one_line_and_status_2_under_torchrun(
    tmp_path: Path,
) -> None:
    (tmp_path / "fail").touch()
    done = start(tmp_path)
    assert (done.stderr, done.returncode) == ("error: the input is empty\n", 2)


def test_a_bad_setting_is_found_before_anything_starts(tmp_path: Path) -> None:
    done = start(tmp_path, "--processes", "0")
    assert "launch.processes: expected an integer >= 1, found 0" in done.stderr
    assert done.returncode == 2
    assert not list(tmp_path.glob("before-*"))
