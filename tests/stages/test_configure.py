"""The script lays presets over params.yaml, says what changed, refuses what it does not know."""

import shutil
import subprocess
import sys
from pathlib import Path

from interlat.config import load_params

ROOT = Path(__file__).parent.parent.parent


def configure(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "stages" / "configure.py", "--conf", ROOT / "conf"]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)


def test_a_real_model_is_one_command_away(tmp_path: Path) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    done = configure(tmp_path, "model=qwen2.5-0.5b", "task=alfworld-official")
    assert done.returncode == 0, done.stderr
    assert "+  sender: Qwen/Qwen2.5-0.5B-Instruct" in done.stdout
    params = load_params(tmp_path / "params.yaml")
    assert (params.model.actor, params.task.prompt) == ("Qwen/Qwen2.5-0.5B", "react")
    assert configure(tmp_path, "model=qwen2.5-0.5b").stdout == "params.yaml already says so\n"


def test_an_unknown_name_changes_nothing(tmp_path: Path) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    done = configure(tmp_path, "model=tiny", "model=gpt")
    assert done.stderr.startswith("error: model=gpt: no such preset; choose one of ")
    assert (done.stderr.count("\n"), done.returncode) == (1, 2)
    assert (tmp_path / "params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()
