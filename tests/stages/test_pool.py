"""Seeds that are not all there are one line, and nothing is written."""

import shutil
import subprocess
import sys
from pathlib import Path

from report.conftest import write_json

ROOT = Path(__file__).parent.parent.parent


def test_a_seed_without_episodes_is_one_line(tmp_path: Path) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    write_json(tmp_path / "games" / "metrics" / "prepare.json", {})
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, str(ROOT / "stages" / "pool.py"), "seed-1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: seed-1/plots/ablate/data.csv: no such file; `dvc repro` plays its episodes\n"
    )
    assert sorted(tmp_path.rglob("*")) == before
