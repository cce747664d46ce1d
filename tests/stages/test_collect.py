"""Every collection command of docs/commands.md does what its script did, on a tiny model."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from datasets import load_from_disk

from interlat.files import read_json

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "stages" / "collect.py"
TABLE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").partition("## Coming from")[2]
TASKS = [f"put a hot plate {n} in the {{fridge}}." for n in range(5)]
ALFWORLD = [
    {
        "id": f"a{n}",
        "task": task,
        "conversations": [
            {"from": "human", "value": "Interact with a household."},
            {"from": "gpt", "value": "OK"},
            {"from": "human", "value": f"You are in a room. {task}"},
        ],
    }
    for n, task in enumerate(TASKS)
]
MATH = [
    {"problem": f"Find the plate {n}.", "level": f"Level {n}", "type": kind, "solution": "1"}
    for n, kind in enumerate(["Algebra", "Geometry", "Prealgebra"], start=1)
]


class Row(NamedTuple):
    """A line of the table."""

    there: str
    here: str


def rows() -> list[Row]:
    pairs = re.findall(r"^\| `(.+?)`.* \| `(.+?)`.* \|$", TABLE, re.MULTILINE)
    return [Row(*pair) for pair in pairs if "stages/collect.py" in pair[1]]


ROWS = rows()
ALONE = [row.here for row in ROWS if row.here.startswith("python")]
LAUNCHED = [row.here for row in ROWS if row.here.startswith("torchrun")]


@pytest.fixture(scope="module")
def stage() -> ModuleType:
    spec = spec_from_file_location("collect_stage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are that the commands name; the sender there is the tiny checkpoint."""
    folder = tmp_path_factory.mktemp("workspace")
    settings = re.sub(r"processes: \d+", "processes: 1", (ROOT / "params.yaml").read_text())
    (folder / "params.yaml").write_text(settings)
    shutil.copytree(tiny_checkpoint, folder / "models" / "base")
    (folder / "datasets" / "MATH" / "train").mkdir(parents=True)
    for name in ("alfworld_sft.json", "datasets/alfworld_dataset.json"):
        (folder / name).write_text(json.dumps(ALFWORLD))
    problems = folder / "datasets" / "MATH" / "train" / "problems.jsonl"
    problems.write_text("\n".join(map(json.dumps, MATH)))
    return folder


@pytest.fixture(autouse=True)
def workspace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder for every command, and one MLflow store."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'runs' / 'mlflow.db'}")
    return folder


def arguments(command: str) -> list[str]:
    """What follows our script in a command, of the tiny model, and of files rather than the hub."""
    words = shlex.split(command.partition("stages/collect.py ")[2])
    words = ["models/base" if word.startswith("Qwen/") else word for word in words]
    from_hub = {"math", "--subjects"} & set(words) and "--dataset_path" not in words
    return [*words, *(["--dataset_path", "datasets/MATH"] if from_hub else [])]


def option(command: str, name: str, default: str) -> str:
    words = shlex.split(command)
    return words[words.index(name) + 1] if name in words else default


def run(stage: ModuleType, *words: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        stage.main.main(list(words), prog_name="collect")
    return ended.value.code


def check(folder: Path, command: str) -> None:
    """The store holds the tasks, sampled as the script of that kind did."""
    is_math = "datasets/MATH" in arguments(command)
    store = folder / option(
        command, "--output_dir", f"data/latents/{'math' if is_math else 'alfworld'}/train"
    )
    data = load_from_disk(str(store / "hf_dataset"))
    if is_math:
        kept = MATH[:2] if "--subjects" in command else MATH
        assert data["task"][:] == [record["problem"] for record in kept]
        assert data["task_id"][:] == [f"MATH_{n}" for n in range(1, len(kept) + 1)]
    else:
        in_turns = "--conversations_index" in command
        tasks = [r["conversations"][2]["value"] if in_turns else r["task"] for r in ALFWORLD]
        assert data["task"][:] == tasks
        assert data["task_id"][:] == [record["id"] for record in ALFWORLD]
    most = int(option(command, "--c", "1500"))
    for message in data:
        assert isinstance(message["plan"], str)
        assert 1 <= len(message["hidden_state"]) <= most
        assert {len(state) for state in message["hidden_state"]} == {32}
    assert (store / "data.parquet").is_file()
    generation = read_json(store / "manifest.json")["generation"]
    tokens, temperature = ("1500", "0.8") if is_math else ("1500", "0.7")
    if is_math or "collect.py alfworld" in command or "--temperature" in command:
        assert generation["do_sample"] is True
        assert generation["temperature"] == float(option(command, "--temperature", temperature))
        assert generation["max_new_tokens"] == int(option(command, "--max_new_tokens", tokens))


def test_a_command_is_the_earlier_one_with_our_script() -> None:
    their_script = re.compile(r"(collect_hidden_states|compressed_latent_collect)\.py")
    same = [row for row in ROWS if their_script.search(row.there)]
    assert len(same) == 7
    for row in same:
        assert their_script.sub("stages/collect.py", row.there) == row.here


@pytest.mark.slow
@pytest.mark.parametrize("command", ALONE, ids=range(len(ALONE)))
def test_a_command_writes_its_store(stage: ModuleType, workspace: Path, command: str) -> None:
    assert run(stage, *arguments(command)) == 0
    check(workspace, command)
    assert not (workspace / "metrics").exists(), "they are of the pipeline's own splits"


@pytest.mark.slow
@pytest.mark.system
def test_the_commands_for_many_gpus_do_so_with_two_processes(workspace: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    jobs = [
        subprocess.Popen([*launch, str(SCRIPT), *arguments(command)], stderr=subprocess.PIPE)
        for command in LAUNCHED
    ]
    for job in jobs:
        _, said = job.communicate()
        assert job.returncode == 0, said.decode()
    for command in LAUNCHED:
        check(workspace, command)


def test_a_dry_run_says_what_to_expect_and_writes_nothing(
    stage: ModuleType, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(workspace.rglob("*"))
    assert run(stage, "--dataset_path", "alfworld_sft.json", "--dry_run", "--temp_dir", "x") == 0
    assert capsys.readouterr().out.split()[:2] == ["tasks:", "5"]
    assert sorted(workspace.rglob("*")) == before
