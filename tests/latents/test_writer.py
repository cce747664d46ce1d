import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from datasets import load_from_disk

from interlat import distributed
from interlat.config import UserError
from interlat.files import read_json, sha256_file
from interlat.latents import shards as shards_module
from interlat.latents.manifest import (
    DATASET,
    JOURNAL,
    MANIFEST,
    PARQUET,
    partial_folder,
    read_manifest,
)
from interlat.latents.message import Message
from interlat.latents.store import LatentStore, verify
from interlat.latents.writer import LatentWriter

WIDTH = 4


def messages(start: int, count: int) -> list[Message]:
    return [
        Message(
            f"t{i}", torch.full((i % 3 + 1, WIDTH), float(i)), f"plan {i}", f"task {i}", 9, "eos"
        )
        for i in range(start, start + count)
    ]


def make(output: Path, **work: object) -> LatentWriter:
    return LatentWriter(output, {"seed": 1, **work}, width=WIDTH, dtype="float16")


def write(output: Path, order: tuple[int, ...] = (0, 1, 2), **work: object) -> Path:
    writer = make(output, **work)
    writer.claim()
    for number in order:
        writer.write_piece(number, messages(4 * number, 4))
    writer.publish(len(order))
    return output


def in_a_fork(work: Callable[..., None], *arguments: Any) -> multiprocessing.Process:
    """Start some work in a copy of this process: its imports are done."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_documented_readers_open_it(tmp_path: Path):
    store = write(tmp_path / "store")
    dataset = load_from_disk(str(store / DATASET))
    assert dataset["task_id"][:] == [f"t{i}" for i in range(12)]
    assert dataset[4]["hidden_state"] == [[4.0] * WIDTH] * 2
    assert dataset[4]["plan"] == "plan 4"
    assert list(dataset[0])[:3] == ["task_id", "task", "plan"]
    table = pq.read_table(store / PARQUET)
    assert table.to_pylist() == list(dataset)
    frame = pd.read_parquet(store / PARQUET)
    assert (frame.task_id[4], frame.task[4], frame.plan[4]) == ("t4", "task 4", "plan 4")
    assert [row.tolist() for row in frame.hidden_state[4]] == dataset[4]["hidden_state"]


def test_the_order_of_writing_does_not_show(tmp_path: Path):
    assert content(write(tmp_path / "a")) == content(write(tmp_path / "b", (2, 0, 1)))


def test_the_manifest_describes_every_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shards_module, "SHARD_BYTES", 1)
    store = write(tmp_path / "store")
    manifest = read_json(store / MANIFEST)
    assert manifest["d_s"] == WIDTH
    assert manifest["dtype"] == "float16"
    assert [shard["messages"] for shard in manifest["shards"]] == [4, 4, 4]
    assert sum(shard["rows"] for shard in manifest["shards"]) == 4 * (1 + 2 + 3)
    for entry in manifest["shards"]:
        path = store / DATASET / entry["file"]
        assert (entry["bytes"], entry["sha256"]) == (path.stat().st_size, sha256_file(path))
    assert len(load_from_disk(str(store / DATASET))) == 12


def test_no_path_and_no_host_is_written(tmp_path: Path):
    store = write(tmp_path / "store")
    for name in (MANIFEST, "README.md", f"{DATASET}/state.json", f"{DATASET}/dataset_info.json"):
        text = (store / name).read_text()
        assert str(tmp_path) not in text
        assert socket.gethostname() not in text


def test_finished_pieces_survive_and_nothing_is_left_over(tmp_path: Path):
    output = tmp_path / "store"
    first = make(output)
    first.claim()
    first.write_piece(1, messages(4, 4))
    first.release()
    again = make(output)
    again.claim()
    assert [again.has_piece(number) for number in range(3)] == [False, True, False]
    again.write_piece(0, messages(0, 4))
    again.write_piece(2, messages(8, 4))
    again.publish(3)
    assert again.is_published
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert content(output) == content(write(tmp_path / "other"))


@pytest.mark.parametrize("journal", [None, "", '{"fingerpr'])
def test_pieces_of_other_work_or_without_a_journal_are_dropped(tmp_path: Path, journal: str | None):
    output = tmp_path / "store"
    first = make(output, temperature=0.7)
    first.claim()
    first.write_piece(0, messages(0, 4))
    first.release()
    if journal is not None:
        (tmp_path / "store.partial" / JOURNAL).write_text(journal)
    second = make(output, temperature=1.0)
    second.claim()
    assert not second.has_piece(0)
    written = json.loads((tmp_path / "store.partial" / JOURNAL).read_text())
    assert written["fingerprint"] == second.fingerprint != first.fingerprint


def test_a_second_job_on_one_output_is_refused(tmp_path: Path):
    first, second = make(tmp_path / "store"), make(tmp_path / "store")
    first.claim()
    first.write_piece(0, messages(0, 4))
    with pytest.raises(UserError, match="another process is collecting"):
        second.claim()
    assert first.has_piece(0)
    first.release()
    second.claim()


def test_a_folder_that_is_no_store_is_not_replaced(tmp_path: Path):
    output = tmp_path / "thesis"
    output.mkdir()
    make(output).claim()
    (output / "chapter.tex").write_text("precious")
    with pytest.raises(UserError, match="not a latent store"):
        make(output).claim()
    assert (output / "chapter.tex").read_text() == "precious"


def test_an_older_store_stays_until_the_new_one_is_whole(tmp_path: Path):
    output = write(tmp_path / "store")
    before = content(output)
    writer = make(output, temperature=1.0)
    writer.claim()
    writer.write_piece(0, messages(0, 2))
    assert content(output) == before
    writer.publish(1)
    assert read_json(output / MANIFEST)["temperature"] == 1.0
    assert len(load_from_disk(str(output / DATASET))) == 2


def test_a_refused_message_leaves_no_piece(tmp_path: Path):
    writer = make(tmp_path / "store")
    writer.claim()
    with pytest.raises(UserError):
        writer.write_piece(0, [Message("t", torch.full((1, WIDTH), 1e9), "")])
    assert not writer.has_piece(0)


def test_failures_stay_with_their_piece_and_end_in_the_manifest(tmp_path: Path):
    writer = make(tmp_path / "store")
    writer.claim()
    writer.write_piece(0, messages(0, 2), {"t2": "NaN", "t3": "too long"})
    writer.write_piece(1, [], {"t4": "NaN"})
    writer.release()
    again = make(tmp_path / "store")
    again.claim()
    assert again.failures([1]) == {"t4": "NaN"}
    assert again.failures(range(2)) == {"t2": "NaN", "t3": "too long", "t4": "NaN"}
    again.publish(2)
    assert read_json(tmp_path / "store" / MANIFEST)["failures"] == [
        {"task_id": "t2", "error": "NaN"},
        {"task_id": "t3", "error": "too long"},
        {"task_id": "t4", "error": "NaN"},
    ]
    assert load_from_disk(str(tmp_path / "store" / DATASET))["task_id"][:] == ["t0", "t1"]


def test_a_store_without_any_message_is_not_published(tmp_path: Path):
    writer = make(tmp_path / "store")
    writer.claim()
    writer.write_piece(0, [], {"t0": "its prompt is too long"})
    with pytest.raises(UserError, match="no message could be collected: its prompt is too long"):
        writer.publish(1)
    assert not (tmp_path / "store").exists()


def test_a_damaged_store_counts_as_not_published(tmp_path: Path):
    store = write(tmp_path / "store")
    assert make(store).is_published
    shard = next((store / DATASET).glob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert not make(store).is_published


def test_a_piece_of_other_work_that_comes_late_is_not_taken_for_ours(tmp_path: Path):
    """A process that outlives its killed job goes on writing for a while."""
    orphan = make(tmp_path / "store", temperature=0.7)
    orphan.claim()
    orphan.release()
    ours = make(tmp_path / "store", temperature=1.0)
    ours.claim()
    orphan.write_piece(0, messages(0, 4))
    assert not ours.has_piece(0)


def test_an_older_store_is_put_back_when_a_kill_came_between_the_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    output = write(tmp_path / "store")
    before = content(output)
    writer = make(output, temperature=1.0)
    writer.claim()
    writer.write_piece(0, messages(0, 2))
    rename = Path.rename
    moved: list[Path] = []

    def killed_after_the_first(self: Path, target: Path) -> None:
        if moved:
            raise InterruptedError
        moved.append(rename(self, target))

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(Path, "rename", killed_after_the_first)
        writer.publish(1)
    with pytest.raises(UserError, match="unfinished"):
        LatentStore(output)
    writer.release()
    other = make(output, temperature=0.1)
    other.claim()
    assert content(output) == before


def replace_for_ever(output: Path) -> None:
    for turn in range(10**6):
        write(output, turn=turn % 2)


def turn_or_error(output: Path) -> int | str:
    try:
        assert verify(output) == []
    except UserError as error:
        return str(error)
    turn: int = read_json(output / MANIFEST)["turn"]
    return turn


@pytest.mark.slow
def test_whenever_it_is_killed_there_is_a_whole_store_or_a_clear_word(tmp_path: Path):
    """Twenty kills, at random moments, of a process that replaces one store by another."""
    output = write(tmp_path / "store", turn=0)
    chance = random.Random(0)
    seen: set[int | str] = set()
    for _ in range(20):
        process = in_a_fork(replace_for_ever, output)
        time.sleep(chance.uniform(0.01, 0.3))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        seen.add(turn_or_error(output))
    unfinished = f"{output} is unfinished; run its collection again to resume it"
    assert seen & {0, 1}
    assert seen <= {0, 1, unfinished}
    for turn in (0, 1):
        whole = write(tmp_path / f"whole{turn}", turn=turn)
        assert content(write(output, turn=turn)) == content(whole)
    assert {path.name for path in tmp_path.iterdir()} == {"store", "whole0", "whole1"}


def publish_as(rank: int, world: int, port: int, output: Path) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    writer = make(output)
    with distributed.process_group():
        if rank == 0:
            writer.claim()
        distributed.barrier()
        for number in distributed.shard(5):
            writer.write_piece(number, messages(4 * number, 4), {f"x{number}": "failed"})
        distributed.barrier()
        writer.publish(5)
        assert writer.is_published


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_write_the_bytes_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: int
):
    monkeypatch.setattr(shards_module, "SHARD_BYTES", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [in_a_fork(publish_as, r, world, port, tmp_path / "many") for r in range(world)]
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
    alone = make(tmp_path / "one")
    alone.claim()
    for number in range(5):
        alone.write_piece(number, messages(4 * number, 4), {f"x{number}": "failed"})
    alone.publish(5)
    assert content(tmp_path / "many") == content(tmp_path / "one")
    assert len(read_json(tmp_path / "one" / MANIFEST)["shards"]) == 5


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(writer: LatentWriter, pieces: Mapping[int, list[Message]]) -> None:
    for number, piece in pieces.items():
        if not writer.has_piece(number):
            writer.write_piece(number, piece)
    writer.publish(len(pieces))


@pytest.mark.system
@pytest.mark.parametrize("rows", [500, 1500])
def test_a_full_disk_is_told_in_a_sentence_and_nothing_is_lost(
    small_disk: Path, tmp_path: Path, rows: int
):
    """1,500 rows a piece: it is full before all pieces are there; 500: while they are joined."""
    pieces = {i: [Message(f"t{i}", torch.full((rows, 4), float(i)), "")] for i in range(24)}
    output = small_disk / "store"
    writer = make(output)
    writer.claim()
    with pytest.raises(UserError, match=r"store: no space left on the disk; free some and run"):
        fill(writer, pieces)
    finished = [number for number in pieces if writer.has_piece(number)]
    assert (len(finished) == 24) == (rows == 500)
    assert read_manifest(output) is None
    writer.release()
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    again = make(output)
    again.claim()
    assert [number for number in pieces if again.has_piece(number)] == finished
    fill(again, pieces)
    whole = make(tmp_path / "whole")
    whole.claim()
    fill(whole, pieces)
    assert content(output) == content(tmp_path / "whole")
    assert not partial_folder(output).exists()
