"""The script prints the table, and with --table only that, at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from report.conftest import pipeline as pipeline

ROOT = Path(__file__).parent.parent.parent


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "stages" / "report.py", "--params", ROOT / "params.yaml"]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)


def test_there_is_no_table_before_the_report(pipeline: Path) -> None:
    done = report(pipeline, "--table")
    assert done.stderr == "error: plots/success.csv: no such file; `dvc repro` writes it\n"
    assert done.returncode == 2


@pytest.mark.slow
def test_the_table_is_printed_again_without_a_change(pipeline: Path) -> None:
    first = report(pipeline)
    assert first.returncode == 0, first.stderr
    files = {f: f.stat().st_mtime_ns for f in pipeline.rglob("*")}

    again = report(pipeline, "--table")

    assert again.stdout == first.stdout
    assert again.stdout.startswith("valid_seen, 40 games\ncondition ")
    assert {f: f.stat().st_mtime_ns for f in pipeline.rglob("*")} == files
