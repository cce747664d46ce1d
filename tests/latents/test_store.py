from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset, DatasetDict

from interlat.config import UserError
from interlat.latents.manifest import DATASET, MANIFEST, PARQUET, partial_folder
from interlat.latents.message import Message
from interlat.latents.store import LatentStore, verify
from interlat.latents.writer import LatentWriter

WIDTH = 4
NESTED = [
    {"id": f"t{i}", "plan": f"plan {i}", "hidden_state": [[i + 0.5] * 3] * (i + 1)}
    for i in range(3)
]


@pytest.fixture
def messages() -> list[Message]:
    generator = torch.Generator().manual_seed(0)
    return [
        Message(
            f"t{i}",
            torch.randn(i % 4 + 1, WIDTH, generator=generator),
            f"plan {i}",
            "task",
            i,
            "eos",
        )
        for i in range(10)
    ]


@pytest.fixture
def store(tmp_path: Path, messages: list[Message]) -> Path:
    writer = LatentWriter(tmp_path / "store", {}, width=WIDTH, dtype="float32")
    writer.claim()
    writer.write_piece(0, messages[:4])
    writer.write_piece(1, messages[4:])
    writer.publish(2)
    return tmp_path / "store"


def test_messages_come_back_by_id_and_in_order(store: Path, messages: list[Message]):
    opened = LatentStore(store)
    assert (len(opened), opened.width, opened.dtype) == (10, WIDTH, torch.float32)
    assert opened.verified
    assert opened.ids == [f"t{i}" for i in range(10)]
    for read, written in zip(opened, messages, strict=True):
        assert torch.equal(read.hidden_LD, written.hidden_LD)
        assert torch.equal(opened.get(written.task_id).hidden_LD, written.hidden_LD)
        assert (read.plan, read.task, read.n_tokens, read.finish_reason) == (
            written.plan,
            written.task,
            written.n_tokens,
            written.finish_reason,
        )


def test_rows_are_views_of_one_mapped_buffer(store: Path):
    opened = LatentStore(store)
    first, second = opened.get("t0").hidden_LD, opened.get("t1").hidden_LD
    assert second.data_ptr() - first.data_ptr() == first.numel() * first.element_size()
    assert opened.get("t0").hidden_LD.data_ptr() == first.data_ptr()


def test_positions_and_columns_are_reached_without_the_states(store: Path):
    opened = LatentStore(store)
    assert (opened[0].task_id, opened[-1].task_id) == ("t0", "t9")
    with pytest.raises(IndexError):
        opened[10]
    assert opened.index("t3") == 3
    assert opened.texts("plan")[3] == "plan 3"
    assert opened.lengths.tolist() == [i % 4 + 1 for i in range(10)]
    with pytest.raises(UserError, match="no column nonsense; its columns: task_id, task"):
        opened.texts("nonsense")


def test_questions_and_failures_come_back(tmp_path: Path):
    asked = Message("q", torch.ones(1, WIDTH), "p", "?", 1, "eos", "Algebra", "Level 2")
    writer = LatentWriter(tmp_path / "q", {}, width=WIDTH, dtype="float16", questions=True)
    writer.claim()
    writer.write_piece(0, [asked], {"r": "no memory"})
    writer.publish(1)
    opened = LatentStore(tmp_path / "q")
    assert (opened.has_questions, opened.failures) == (True, {"r": "no memory"})
    assert (opened[0].task_type, opened[0].task_level) == ("Algebra", "Level 2")


def test_an_unknown_task_is_told_with_an_example(store: Path):
    with pytest.raises(UserError, match=r"no message for task 'x'.*'t0'"):
        LatentStore(store).get("x")
    assert "x" not in LatentStore(store)
    assert "t3" in LatentStore(store)


def test_unfinished_collections_are_refused(tmp_path: Path, messages: list[Message]):
    output = tmp_path / "new"
    writer = LatentWriter(output, {}, width=WIDTH, dtype="float16")
    writer.claim()
    writer.write_piece(0, messages)
    for path in (output, partial_folder(output)):
        with pytest.raises(UserError, match="unfinished"):
            LatentStore(path)


def test_a_finished_store_is_read_while_its_successor_is_collected(store: Path):
    writer = LatentWriter(store, {"seed": 2}, width=WIDTH, dtype="float16")
    writer.claim()
    assert len(LatentStore(store)) == 10


def test_a_truncated_or_missing_shard_is_refused(store: Path):
    shard = next((store / DATASET).glob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-8])
    with pytest.raises(UserError, match="truncated"):
        LatentStore(store)
    shard.unlink()
    with pytest.raises(UserError, match="missing"):
        LatentStore(store)


@pytest.mark.parametrize("name", ["data-00000-of-00001.arrow", "state.json", PARQUET])
@pytest.mark.parametrize("place", [10, -10])
def test_verify_finds_a_flipped_byte_and_names_the_file(store: Path, name: str, place: int):
    assert verify(store) == []
    file = next(store.rglob(name))
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    assert verify(store) == [f"{file} differs from the manifest (sha256)"]


def test_verify_names_what_is_missing_or_truncated(store: Path):
    shard, table = next((store / DATASET).glob("*.arrow")), store / PARQUET
    shard.write_bytes(shard.read_bytes()[:-8])
    table.unlink()
    size = shard.stat().st_size
    assert verify(store) == [
        f"{shard} is truncated: {size} bytes, the manifest says {size + 8}",
        f"{table} is missing",
    ]


def test_verify_finds_counts_and_settings_that_differ_from_the_manifest(store: Path):
    manifest = store / MANIFEST
    text = manifest.read_text()
    manifest.write_text(text.replace('"rows": 23', '"rows": 24'))
    shard = next((store / DATASET).glob("*.arrow"))
    assert verify(store) == [f"{shard} has 23 rows, the manifest says 24"]
    manifest.write_text(text.replace('"dtype": "float32"', '"dtype": "float16"'))
    assert verify(store) == [f"{manifest} was changed: its fingerprint does not fit what it says"]


def test_verify_finds_numbers_that_are_none(tmp_path: Path):
    rows = [{"task_id": "t", "hidden_state": [[float("nan"), 1.0]]}]
    Dataset.from_list(rows).save_to_disk(str(tmp_path / "mine"))
    assert LatentStore(tmp_path / "mine").verify() == ["message t holds NaN or infinity"]


def test_width_is_checked(store: Path):
    LatentStore(store).require_width(WIDTH)
    with pytest.raises(UserError, match="width 4, the model reads 8"):
        LatentStore(store).require_width(8)


def test_the_digest_tells_stores_apart(store: Path, tmp_path: Path):
    Dataset.from_list(NESTED).save_to_disk(str(tmp_path / "a"))
    Dataset.from_list(NESTED[:2]).save_to_disk(str(tmp_path / "b"))
    digests = {LatentStore(path).digest for path in (store, tmp_path / "a", tmp_path / "b")}
    assert len(digests) == 3
    assert LatentStore(store).digest == LatentStore(store).digest


def save_nested(folder: Path) -> Path:
    Dataset.from_list(NESTED).save_to_disk(str(folder))
    return folder


def save_splits(folder: Path) -> Path:
    splits = {"a": Dataset.from_list(NESTED[:1]), "b": Dataset.from_list(NESTED[1:])}
    DatasetDict(splits).save_to_disk(str(folder))
    return folder


def save_beside(folder: Path) -> Path:
    save_nested(folder / DATASET)
    return folder


def save_table(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(Dataset.from_list(NESTED).data.table, folder / PARQUET)
    return folder


def save_file(folder: Path) -> Path:
    return save_table(folder) / PARQUET


def save_selection(folder: Path) -> Path:
    longer = Dataset.from_list([{"id": "x", "plan": "", "hidden_state": [[1.0] * 3]}, *NESTED])
    longer.select([1, 2, 3]).save_to_disk(str(folder))
    return folder


def save_slice(folder: Path) -> Path:
    folder.mkdir()
    longer = Dataset.from_list([{"id": "x", "plan": "", "hidden_state": [[1.0] * 3]}, *NESTED])
    pq.write_table(longer.data.table.slice(1), folder / PARQUET)
    return folder


@pytest.mark.parametrize(
    "save",
    [save_nested, save_splits, save_beside, save_table, save_file, save_selection, save_slice],
)
def test_what_users_have_is_read_unverified(tmp_path: Path, save):
    opened = LatentStore(save(tmp_path / "mine"))
    assert not opened.verified
    assert (opened.key_field, opened.width) == ("id", 3)
    assert opened.ids == ["t0", "t1", "t2"]
    assert opened.get("t2").hidden_LD.tolist() == [[2.5] * 3] * 3
    assert opened.get("t1").plan == "plan 1"


def test_a_split_can_be_chosen(tmp_path: Path):
    both = save_splits(tmp_path / "mine")
    assert LatentStore(both, split="b").ids == ["t1", "t2"]
    with pytest.raises(UserError, match="no split 'c'; its splits: a, b"):
        LatentStore(both, split="c")


def test_doubles_are_read_as_they_are_and_without_python_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = [{"id": "t", "plan": "p", "hidden_state": [[0.1, 0.2]]}]
    Dataset.from_list(rows).save_to_disk(str(tmp_path / "mine"))
    for method in ("__iter__", "map"):
        monkeypatch.setattr(Dataset, method, None)
    assert LatentStore(tmp_path / "mine").get("t").hidden_LD.tolist() == [[0.1, 0.2]]


def test_a_damaged_folder_of_users_own_making_is_told_in_a_sentence(tmp_path: Path):
    nested, table = save_nested(tmp_path / "nested"), save_file(tmp_path / "table")
    next(nested.glob("*.arrow")).write_bytes(b"nothing")
    table.write_bytes(b"nothing")
    for path in (nested, table):
        with pytest.raises(UserError, match="is damaged"):
            LatentStore(path)


def test_the_key_column_can_be_chosen(tmp_path: Path):
    opened = LatentStore(save_nested(tmp_path / "mine"), key_field="plan")
    assert opened.get("plan 2").hidden_LD.shape == (3, 3)
    with pytest.raises(UserError, match="no key column nothing"):
        LatentStore(tmp_path / "mine", key_field="nothing")


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"task_id": "t", "plan": "p"}], "no column hidden_state"),
        ([{"hidden_state": [[1.0]]}], "no key column"),
        ([{"task_id": "t", "hidden_state": [[1.0]]}] * 2, "'t' comes twice"),
        ([{"task_id": "t", "hidden_state": [[1.0], [1.0, 2.0]]}], "differ in width"),
        ([{"task_id": "t", "hidden_state": [1.0]}], "rows of numbers"),
    ],
)
def test_folders_that_cannot_serve_say_why(tmp_path: Path, rows: list[dict], complaint: str):
    Dataset.from_list(rows).save_to_disk(str(tmp_path / "mine"))
    with pytest.raises(UserError, match=complaint):
        LatentStore(tmp_path / "mine")


def test_a_path_without_messages_is_refused(tmp_path: Path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="no messages"):
            LatentStore(path)


def test_a_manifest_of_another_width_is_refused(store: Path):
    manifest = store / MANIFEST
    manifest.write_text(manifest.read_text().replace('"d_s": 4', '"d_s": 8'))
    with pytest.raises(UserError, match="4 wide, the manifest says 8"):
        LatentStore(store)
