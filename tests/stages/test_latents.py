"""The tools for stores: what they print, and status 0 only when all is right."""

import json
import shutil
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from datasets import load_from_disk
from latents.stores import make_store, some_messages

from interlat.latents.store import LatentStore

ROOT = Path(__file__).parent.parent.parent
Tool = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Tool:
    """Run stages/latents.py beside the stores a (t0 to t2) and b (t3, t4): status, out, err."""
    monkeypatch.chdir(tmp_path)
    make_store(Path("a"), some_messages(0, 3), failures={"x": "NaN"}, seed=1)
    make_store(Path("b"), some_messages(3, 2), seed=1)
    spec = spec_from_file_location("latents_stage", ROOT / "stages" / "latents.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            module.main.main(list(arguments), prog_name="latents")
        return ended.value.code, *capsys.readouterr()

    return call


def test_verify_says_sound_or_what_is_wrong(tool: Tool) -> None:
    assert tool("verify", "a", "b") == (0, "a: sound\nb: sound\n", "")
    shard = next(Path("a").rglob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    status, out, _ = tool("verify", "a", "b")
    assert (status, out) == (1, f"{shard} differs from the manifest (sha256)\nb: sound\n")
    shard.unlink()
    assert tool("verify", "a")[:2] == (1, f"{shard} is missing\n")


def test_info_is_for_people_and_for_programs(tool: Tool) -> None:
    status, out, _ = tool("info", "a", "b")
    assert status == 0
    facts = [" ".join(line.split()) for line in out.splitlines()]
    assert facts[0] == "a"
    assert {"messages 3", "length max 3", "failures x NaN", "settings seed 1"} <= set(facts)
    status, out, _ = tool("info", "a", "--json")
    summary = json.loads(out)["a"]
    assert (summary["messages"], summary["rows"], summary["failures"]) == (3, 6, {"x": "NaN"})


def test_stores_are_joined_compared_and_exported(tool: Tool) -> None:
    assert tool("merge", "a", "b", "--output-dir", "both")[0] == 0
    assert LatentStore("both").ids == [f"t{i}" for i in range(5)]
    status, out, _ = tool("diff", "a", "both", "--json")
    difference = json.loads(out)
    assert (status, difference["only_second"], difference["largest_absolute"]) == (
        1,
        ["t3", "t4"],
        0.0,
    )
    assert tool("export", "both", "--output_dir", "lists", "--no-parquet")[0] == 0
    assert load_from_disk("lists/hf_dataset")["task_id"][:] == LatentStore("both").ids
    assert tool("diff", "both", "lists")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("info nowhere", "nowhere holds no messages"),
        ("verify half", "half is unfinished; run its collection again"),
        ("merge a other --output_dir c", "cannot be merged: seed is 1 in the one and 2"),
        ("merge a b --output_dir b", "b exists; choose another folder"),
        ("export a", "Missing option '--output_dir'"),
        ("export a --output_dir b", "b exists; choose another folder"),
        ("diff a", "Missing argument 'SECOND'"),
        ("info a --split train", "a is a store, it has no splits"),
        ("check a", "No such command 'check'"),
    ],
)
def test_a_mistake_is_one_line_and_status_two(tool: Tool, arguments: str, complaint: str) -> None:
    make_store(Path("other"), some_messages(9, 2), seed=2)
    shutil.copytree("a", "half")
    Path("half/manifest.json").rename("half/collect.journal")
    status, out, error = tool(*arguments.split())
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("error: ")
    assert complaint in error
