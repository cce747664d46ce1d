import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from datasets import load_from_disk

from interlat.config import UserError
from interlat.files import read_json, sha256_file
from interlat.latents import writer as writer_module
from interlat.latents.message import Message
from interlat.latents.writer import DATASET, JOURNAL, MANIFEST, PARQUET, LatentWriter

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


def write(output: Path, order: tuple[int, ...] = (0, 1, 2)) -> Path:
    writer = make(output)
    writer.claim()
    for number in order:
        writer.write_piece(number, messages(4 * number, 4))
    writer.publish(len(order))
    return output


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_documented_readers_open_it(tmp_path: Path):
    store = write(tmp_path / "store")
    dataset = load_from_disk(str(store / DATASET))
    assert dataset["task_id"][:] == [f"t{i}" for i in range(12)]
    assert dataset[4]["hidden_state"] == [[4.0] * WIDTH] * 2
    assert dataset[4]["plan"] == "plan 4"
    table = pq.read_table(store / PARQUET)
    assert table.to_pylist() == list(dataset)


def test_the_order_of_writing_does_not_show(tmp_path: Path):
    assert content(write(tmp_path / "a")) == content(write(tmp_path / "b", (2, 0, 1)))


def test_the_manifest_describes_every_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer_module, "SHARD_BYTES", 1)
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
    import socket

    store = write(tmp_path / "store")
    for name in (MANIFEST, f"{DATASET}/state.json", f"{DATASET}/dataset_info.json"):
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
